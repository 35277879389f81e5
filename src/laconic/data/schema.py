"""Which columns of a CSV or Parquet file are features, and what the others are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from laconic.data.errors import BadTable, NotNumeric, missing
from laconic.errors import Option

OneHot = Sequence[str] | Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of X: a numeric column of the file, or whether a column of the file is of one category.

    >>> Feature("Area", "B").name, Feature("Age").name
    ('Area=B', 'Age')
    """

    source: str
    category: str | None = None

    @property
    def name(self) -> str:
        """As in `feature_names`."""
        return self.source if self.category is None else f"{self.source}={self.category}"


@dataclass(frozen=True, slots=True)
class Roles:
    """The part of each column of a file, as given by the caller.

    target         column of y, by name or by number (from 0; negative from the end); False where there is none
    sample_weight, offset  columns of these, or None
    one_hot        columns to turn into one feature per category; a mapping also fixes the categories
    exclude        columns to leave out
    """

    target: str | int | bool | None = None
    sample_weight: str | int | None = None
    offset: str | int | None = None
    one_hot: OneHot = ()
    exclude: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Schema:
    """The part each column of a file plays. `target` and the like are names; `classes` those of a target of text."""

    features: tuple[Feature, ...]
    feature_names: tuple[str, ...]
    target: str | None
    sample_weight: str | None
    offset: str | None
    classes: tuple[str, ...] | None

    @property
    def categories(self) -> dict[str, list[str]]:
        """Column to categories, for each column that is one-hot."""
        found: dict[str, list[str]] = {}
        for feature in self.features:
            if feature.category is not None:
                found.setdefault(feature.source, []).append(feature.category)
        return found

    def sources(self, columns: tuple[int, int]) -> list[str]:
        """Columns of the file needed for this block of features and for what belongs to the rows."""
        features = [feature.source for feature in self.features[slice(*columns)]]
        rest = [name for name in (self.target, self.sample_weight, self.offset) if name is not None]
        return list(dict.fromkeys([*features, *rest]))


def make_schema(
    path: str, numeric: Mapping[str, bool], roles: Roles, categories_of: Callable[[str], tuple[str, ...]]
) -> Schema:
    """Decide which columns of a file are features, and check what the caller said about the others.

    numeric        every column of the file in order, and whether it holds numbers
    categories_of  the sorted distinct values of a column, as text; called only where they are needed
    """
    names = list(numeric)
    if roles.target is None or roles.target is True:
        known = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
        raise BadTable(f"{path}: which column is the target? Give ", Option("target", ...), f", one of {known}")
    target = None if roles.target is False else _named(path, names, roles.target)
    weight = None if roles.sample_weight is None else _named(path, names, roles.sample_weight)
    offset = None if roles.offset is None else _named(path, names, roles.offset)
    for name in [*roles.exclude, *roles.one_hot]:
        _named(path, names, name)
    taken = {target, weight, offset, *roles.exclude}
    features: list[Feature] = []
    for name in names:
        if name in taken:
            continue
        if name in roles.one_hot:
            fixed = roles.one_hot[name] if isinstance(roles.one_hot, Mapping) else categories_of(name)
            features += [Feature(name, category) for category in fixed]
        elif numeric[name]:
            features.append(Feature(name))
        else:
            raise NotNumeric(path, name)
    named = [feature.name for feature in features]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise BadTable(f"{path}: a column and a category would both be named {twice!r}; rename one")
    for name in (weight, offset):
        if name is not None and not numeric[name]:
            raise BadTable(f"{path}: column {name!r} is not numeric and cannot be a weight or an offset")
    classes = None if target is None or numeric[target] else categories_of(target)
    return Schema(tuple(features), tuple(named), target, weight, offset, classes)


def sorted_categories(values: Sequence[str]) -> tuple[str, ...]:
    """Distinct values in order: of size where all are numbers, else of the alphabet.

    >>> sorted_categories(["10", "9", "9"]), sorted_categories(["b", "a"])
    (('9', '10'), ('a', 'b'))
    """
    distinct = sorted(set(values))
    try:
        return tuple(sorted(distinct, key=float))
    except ValueError:
        return tuple(distinct)


def _named(path: str, names: list[str], column: str | int) -> str:
    if isinstance(column, int):
        if not -len(names) <= column < len(names):
            raise BadTable(f"{path} has {len(names)} columns, there is no column number {column} (they count from 0)")
        return names[column]
    if column not in names:
        raise BadTable(missing(column, names, path))
    return column
