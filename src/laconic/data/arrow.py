"""CSV and Parquet: which columns are features, and Arrow's record batches as row blocks of a table."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.data.errors import BadTable, NotNumeric, missing
from laconic.data.files import Source
from laconic.data.table import RowStream, Table, as_floats, as_offset, as_weights, check_finite, no_target
from laconic.errors import Option


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of X: a numeric column of the file, or whether a column of the file is of one category ("Area=B")."""

    name: str
    source: str
    category: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """The part each column of a file plays: of X, and by its name as target and the like.

    categories  of each column that is one-hot
    classes     those of a target of text
    """

    features: tuple[Feature, ...]
    categories: Mapping[str, Sequence[str]]
    target: str | None
    sample_weight: str | None
    offset: str | None
    classes: tuple[str, ...] | None

    def sources(self, columns: tuple[int, int]) -> list[str]:
        """Columns of the file needed for this block of features and for what belongs to the rows."""
        needed: dict[str, None] = {}
        for feature in self.features[slice(*columns)]:
            needed[feature.source] = None
        for name in (self.target, self.sample_weight, self.offset):
            if name is not None:
                needed[name] = None
        return list(needed)


def make_schema(
    source: Source, names: list[str], kinds: list[Any], categories_of: Callable[[str], tuple[str, ...]]
) -> Schema:
    """Decide which columns of a file are features, and check what the caller said about the others.

    names, kinds   of the file's columns, kinds as Arrow types
    categories_of  the sorted distinct values of a column, as text; called only where they are needed
    """
    path, numeric = source.path, dict(zip(names, map(is_numeric, kinds), strict=True))
    if len(numeric) < len(names):
        twice = min(name for name in names if names.count(name) > 1)
        raise BadTable(f"{path} has two columns named {twice!r}; rename one")
    if source.target is None or source.target is True:
        known = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
        raise BadTable(f"{path}: which column is the target? Give ", Option("target", ...), f", one of {known}")
    target, weight = _named(path, names, source.target), _named(path, names, source.sample_weight)
    offset = _named(path, names, source.offset if source.exposure is None else source.exposure)
    for name in (weight, offset):
        if name is not None and not numeric[name]:
            raise BadTable(f"{path}: column {name!r} is not numeric and cannot be a weight or an offset")
    for name in (*source.exclude, *source.one_hot):
        _named(path, names, name)
    features: list[Feature] = []
    categories: dict[str, Sequence[str]] = {}
    for name in names:
        if name in (target, weight, offset, *source.exclude):
            continue
        if name in source.one_hot:
            fixed = source.one_hot[name] if isinstance(source.one_hot, Mapping) else categories_of(name)
            categories[name] = fixed
            features += [Feature(f"{name}={category}", name, category) for category in fixed]
        elif numeric[name]:
            features.append(Feature(name, name))
        else:
            raise NotNumeric(path, name)
    classes = None if target is None or numeric[target] else categories_of(target)
    return Schema(tuple(features), categories, target, weight, offset, classes)


def _named(path: str, names: list[str], column: str | int | None) -> str | None:
    """The name of a column that is given by name or number; None for None and False."""
    if column is None or column is False:
        return None
    if isinstance(column, int):
        if not -len(names) <= column < len(names):
            raise BadTable(f"{path} has {len(names)} columns, there is no column number {column} (they count from 0)")
        return names[column]
    if column not in names:
        raise BadTable(missing(column, names, path))
    return column


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


def is_numeric(kind: Any) -> bool:
    """Whether a column of this Arrow type can be a feature as it stands: numbers, booleans, or nothing but gaps."""
    from pyarrow import types

    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(number or types.is_boolean(kind) or types.is_null(kind))


def categories(path: str, name: str, batches: Iterable[Any]) -> tuple[str, ...]:
    """The distinct values of a column, as text, in order."""
    found: set[str] = set()
    row = 0
    for batch in batches:
        column = _as_text(path, name, batch.column(name), row)
        found.update(column.unique().to_pylist())
        row += len(column)
    return sorted_categories(list(found))


def rows(
    source: Source, batches: Iterable[Any], schema: Schema, columns: tuple[int, int], dtype: torch.dtype, n_rows: int
) -> RowStream:
    """The batches of a file as a stream of row blocks, with these columns of X."""
    names = tuple(map(attrgetter("name"), schema.features))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadTable(f"{source.path}: a column and a category would both be named {twice!r}; rename one")
    return RowStream(
        _blocks(source, batches, schema, columns, dtype, names),
        n_rows,
        len(names),
        columns,
        dtype=dtype,
        has_target=schema.target is not None,
        has_sample_weight=schema.sample_weight is not None,
        has_offset=schema.offset is not None,
        feature_names=names,
        classes=schema.classes,
        source=Path(source.path).name,
    )


def _blocks(
    source: Source,
    batches: Iterable[Any],
    schema: Schema,
    columns: tuple[int, int],
    dtype: torch.dtype,
    names: tuple[str, ...],
) -> Iterator[Table]:
    """A table for each batch; y is float64."""
    path, row = source.path, 0
    for batch in batches:
        X = torch.from_numpy(_matrix(path, batch, schema, columns, row, wide=dtype == torch.float64)).to(dtype)
        check_finite(X, first_row=row, first_column=columns[0], names=names)
        weight = offset = None
        if schema.sample_weight is not None:
            weight = as_weights(_numbers(batch.column(schema.sample_weight)), schema.sample_weight, first_row=row)
        if schema.offset is not None:
            offset = as_offset(source, _numbers(batch.column(schema.offset)), schema.offset, first_row=row)
        if schema.target is None:
            y = no_target(batch.num_rows)
        elif schema.classes is None:
            y = as_floats(_numbers(batch.column(schema.target)), schema.target, first_row=row)
        else:
            y = torch.from_numpy(_codes(path, schema.target, batch, schema.classes, row)).double()
        yield Table(X, y, weight, offset, columns=columns, n_features=len(names))
        row += batch.num_rows


def _matrix(
    path: str, batch: Any, schema: Schema, columns: tuple[int, int], first_row: int, *, wide: bool
) -> np.ndarray:
    """X of a batch, in float32 or, if wide, float64."""
    X = np.empty((batch.num_rows, columns[1] - columns[0]), np.float64 if wide else np.float32)
    codes: dict[str, np.ndarray] = {}
    with np.errstate(over="ignore"):
        for j, feature in enumerate(schema.features[slice(*columns)]):
            name = feature.source
            if feature.category is None:
                X[:, j] = _numbers(batch.column(name))
                continue
            known = list(schema.categories[name])
            if name not in codes:
                codes[name] = _codes(path, name, batch, known, first_row)
            X[:, j] = codes[name] == known.index(feature.category)
    return X


def _numbers(column: Any) -> np.ndarray:
    """float64, NaN where there is a gap."""
    import pyarrow as pa

    return np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def _as_text(path: str, name: str, column: Any, first_row: int) -> Any:
    import pyarrow as pa

    try:
        text = column.cast(pa.string())
    except pa.ArrowException as error:
        what = f"column {name!r} is {column.type}, which cannot be made categories of; leave it out"
        raise BadTable(f"{path}: {what}") from error
    if text.null_count:
        row = first_row + text.is_null().to_pylist().index(True) + 1
        raise BadTable(f"{path}: column {name!r} is empty in row {row}; drop the row or fill it in")
    return text


def _codes(path: str, name: str, batch: Any, known: Sequence[str], first_row: int) -> np.ndarray:
    """The number of each value's category."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = _as_text(path, name, batch.column(name), first_row)
    codes = pc.index_in(text, value_set=pa.array(list(known), pa.string()))
    if codes.null_count:
        row = codes.is_null().to_pylist().index(True)
        raise BadTable(
            f"{path}: column {name!r} has category {text[row].as_py()!r} in row {first_row + row + 1}, "
            f"which is not one of {', '.join(map(repr, known[:8]))}"
        )
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)
