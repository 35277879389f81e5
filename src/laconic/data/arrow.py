"""Files with named columns: choose the feature columns, and turn Arrow record batches or data frames into tables."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.data.errors import BadTable, NotNumeric, WrongWidth, missing
from laconic.data.files import Source
from laconic.data.table import RowStream, Table, as_floats, check_finite, collect, no_target, to_dtype
from laconic.errors import Option
from laconic.extras import require


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of X: a numeric column of the file, or the one-hot indicator of the category `code` ("Area=B")."""

    name: str
    source: str
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """The role of each column of a file: features of X, target, weight and offset.

    categories  of each one-hot column
    classes     of a text target
    """

    features: tuple[Feature, ...]
    categories: Mapping[str, Sequence[str]]
    target: str | None
    sample_weight: str | None
    offset: str | None
    classes: tuple[str, ...] | None

    def sources(self, columns: tuple[int, int]) -> list[str]:
        """Columns of the file needed for this block of features and for what belongs to the rows."""
        own = map(attrgetter("source"), self.features[slice(*columns)])
        needed = dict.fromkeys([*own, self.target, self.sample_weight, self.offset])
        needed.pop(None, None)
        return list(needed)


FRAME = "X"
"""What messages call a data frame, which has no path."""
_TRUTH = {other: one for one in ("true", "false") for other in (one.title(), one.upper())}
"""Other spellings of truth values in text, which as categories are those of a column of truth values."""
Categories = Callable[[str], tuple[str, ...]]
"""The sorted distinct values of a column, as text; called only where they are needed."""


def make_schema(source: Source, names: list[str], kinds: Sequence[Any], categories_of: Categories) -> Schema:
    """Decide which columns of a file are features, and check the roles that `source` gives the others.

    names, kinds  names and Arrow types of the file's columns
    """
    from pyarrow import types

    path, kind_of = source.path, dict(zip(names, kinds, strict=True))
    source.limits.check("columns", len(names), path, f"it has {len(names):,} columns, more")
    if len(kind_of) < len(names):
        raise _repeated(names, f"{path} has two columns named")
    target, weight, offset = _roles(source, kind_of)
    classes = None if target is None or is_numeric(kind_of[target]) else categories_of(target)
    features: list[Feature] = []
    one_hot: dict[str, Sequence[str]] = {}
    given = source.one_hot if isinstance(source.one_hot, Mapping) else {}
    for name, kind in kind_of.items():
        if name in (target, weight, offset, *source.exclude):
            continue
        if name in source.one_hot or types.is_dictionary(kind):
            found = given.get(name) or sorted_categories(list(map(_spelled, categories_of(name))))
            one_hot[name] = list(dict.fromkeys(map(_spelled, found)))
            features += [Feature(f"{name}={one}", name, code) for code, one in enumerate(one_hot[name])]
        elif is_numeric(kind):
            features.append(Feature(name, name))
        else:
            raise NotNumeric(path, name)
    return Schema(tuple(features), one_hot, target, weight, offset, classes)


def _roles(source: Source, kind_of: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    """The columns of target, weight and offset; raises `BadTable` for one that `source` names and cannot be that."""
    path, names = source.path, list(kind_of)
    if source.target is None or source.target is True:
        known = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
        raise BadTable(f"{path}: which column is the target? Give ", Option("target", ...), f", one of {known}")
    target, weight = _named(path, names, source.target), _named(path, names, source.sample_weight)
    offset = _named(path, names, source.offset if source.exposure is None else source.exposure)
    for name in (*source.exclude, *source.one_hot):
        _named(path, names, name)
    for name in (weight, offset):
        if name is not None and not is_numeric(kind_of[name]):
            raise BadTable(f"{path}: column {name!r} is not numeric and cannot be a weight or an offset")
    for name in source.one_hot:
        if name in (target, weight, offset, *source.exclude):
            what = " is to make features of it, and it is left out, or the target, weight or offset"
            raise BadTable(f"{path}: column {name!r}: ", Option("one_hot", (name,)), what)
    return target, weight, offset


def _repeated(names: Sequence[str], what: str) -> BadTable:
    """The error for names of which one occurs twice."""
    return BadTable(f"{what} {Counter(names).most_common(1)[0][0]!r}; rename one")


def _named(path: str, names: list[str], column: str | int | None) -> str | None:
    """The name of a column given by name or number; None for None and False."""
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
    """Distinct values, sorted numerically where all are numbers, else alphabetically.

    >>> sorted_categories(["10", "9", "9"]), sorted_categories(["b", "a"])
    (('9', '10'), ('a', 'b'))
    """
    distinct = sorted(set(values))
    try:
        return tuple(sorted(distinct, key=float))
    except ValueError:
        return tuple(distinct)


def is_numeric(kind: Any) -> bool:
    """Whether a column of this Arrow type can be a feature as it stands: numeric, boolean or all null."""
    from pyarrow import types

    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(number or types.is_boolean(kind) or types.is_null(kind))


def categories(path: str, name: str, batches: Iterable[Any]) -> tuple[str, ...]:
    """The sorted distinct values of a column, as text."""
    found: set[str] = set()
    row = 0
    for batch in batches:
        column = _as_text(path, name, batch.column(name), row)
        found.update(column.unique().to_pylist())
        row += len(column)
    return sorted_categories(list(found))


def rows(
    source: Source,
    batches: AbstractContextManager[Iterable[Any]],
    schema: Schema,
    columns: tuple[int, int],
    dtype: "str | torch.dtype",
    n_rows: int,
    notes: tuple[str, ...] = (),
) -> RowStream:
    """A stream of row blocks with these columns of X, one block per batch of the file."""
    names, none = tuple(map(attrgetter("name"), schema.features)), torch.empty(0, dtype=torch.float64)
    if len(set(names)) < len(names):
        raise _repeated(names, f"{source.path}: a column and a category would both be named")
    if source.n_features not in (None, len(names)):
        raise WrongWidth(source.path, len(names), source.n_features)
    if any(feature.source == "" for feature in schema.features):
        notes = (*notes, f"{source.path}: a column without a name is a feature; leave it out if it numbers the rows")
    margin = "offset" if source.exposure is None else "exposure"
    roles = {"target": schema.target, "sample_weight": schema.sample_weight, margin: schema.offset}
    like = Table(
        torch.empty(0, columns[1] - columns[0], dtype=to_dtype(dtype)),
        none,
        None if schema.sample_weight is None else none,
        None if schema.offset is None else none,
        names,
        columns,
        len(names),
        schema.classes,
        one_hot=schema.categories,
        notes=notes,
        roles={role: [name] for role, name in roles.items() if name is not None},
    )
    blocks = _blocks(source, batches, schema, like)
    return RowStream(blocks, n_rows, like, None, schema.target is not None, Path(source.path).name)


def _blocks(
    source: Source, batches: AbstractContextManager[Iterable[Any]], schema: Schema, like: Table
) -> Iterator[Table]:
    """One table per batch; y is float64."""
    margin, where = "offset" if source.exposure is None else "exposure", f"{source.path}: " * (source.path != FRAME)
    parts = [("y", schema.target, "target"), ("sample_weight", schema.sample_weight, "sample_weight")]
    row = 0
    with batches as opened:
        for batch in opened:
            of = dict(zip(batch.schema.names, batch.columns, strict=True))
            X = _matrix(source.path, of, batch.num_rows, schema, like, row)
            check_finite(X, f"{where}X", first_row=row, first_column=like.columns[0], names=like.feature_names)
            block: dict[str, Any] = {"X": X}
            for key, name, part in (*parts, ("offset", schema.offset, margin)):
                if name is not None:
                    text = key == "y" and schema.classes
                    values = _codes(source.path, name, of[name], text, row) if text else _numbers(of[name])
                    block[key] = as_floats(values, where + name, part=part, first_row=row)
                elif key == "y":
                    block[key] = no_target(batch.num_rows)
            yield replace(like, **block)
            row += batch.num_rows


def _matrix(path: str, of: Mapping[str, Any], n_rows: int, schema: Schema, like: Table, row: int) -> torch.Tensor:
    """X of a batch whose first row is `row`."""
    wide, codes = like.X.dtype == torch.float64, {}
    X = np.empty((n_rows, like.X.shape[1]), np.float64 if wide else np.float32)
    with np.errstate(over="ignore"):
        for j, feature in enumerate(schema.features[slice(*like.columns)]):
            name = feature.source
            if feature.code is None:
                X[:, j] = _numbers(of[name])
                continue
            if name not in codes:
                codes[name] = _codes(path, name, of[name], schema.categories[name], row)
            X[:, j] = codes[name] == feature.code
    return torch.from_numpy(X).to(like.X.dtype)


def _numbers(column: Any) -> np.ndarray:
    """A numeric column as a writable NumPy array, NaN where it is null."""
    import pyarrow as pa

    plain = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
    column = column if plain and column.type != pa.float16() else column.cast(pa.float64(), safe=False)
    numbers: np.ndarray = column.to_numpy(zero_copy_only=False)
    return numbers if numbers.flags.writeable else numbers.copy()


def is_frame(X: Any) -> bool:
    """Whether X is a data frame of pandas, polars or Arrow."""
    return hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "__arrow_c_stream__"))


def has_categories(X: Any) -> bool:
    """Whether a data frame has a categorical column."""
    kinds = X.dtypes if hasattr(X, "dtypes") else X.schema.types
    return any(str(kind).startswith(("category", "Categorical", "Enum", "dictionary")) for kind in kinds)


def read_frame(X: Any, one_hot: Mapping[str, Sequence[str]], names: Sequence[str] | None, dtype: str) -> Table:
    """A data frame (pandas, polars, Arrow) as a table without a target; categorical columns become one-hot.

    one_hot  categories of each one-hot column of a model already fitted
    names    that model's features, in order; None for all columns of X
    """
    pa = require("pyarrow", for_="categories of a data frame", extra="files")
    found = pa.Table.from_pandas(X, preserve_index=False) if hasattr(X, "iloc") else pa.table(X)
    if names is not None:
        owners = {f"{column}={one}": column for column, known in one_hot.items() for one in known}
        needed = list(dict.fromkeys(owners.get(name, name) for name in names))
        lacking = [name for name in needed if name not in found.schema.names]
        if lacking:
            raise BadTable(missing(lacking[0], found.schema.names, FRAME))
        found = found.select(needed)
    source, kinds = Source(FRAME, target=False, one_hot=one_hot), found.schema
    try:
        schema = make_schema(
            source, kinds.names, kinds.types, lambda name: categories(FRAME, name, found.select([name]).to_batches())
        )
    except NotNumeric as error:
        what = f"{FRAME}: column {error.column!r} is neither of numbers nor of categories"
        raise BadTable(f"{what}; leave it out, or make it categorical") from error
    batches, block = found.to_batches(max_chunksize=1 << 16), (0, len(schema.features))
    return collect(rows(source, nullcontext(batches), schema, block, dtype, len(found)))


def _as_text(path: str, name: str, column: Any, first_row: int) -> Any:
    import pyarrow as pa

    try:
        of = column.dictionary if pa.types.is_dictionary(column.type) else column
        text = of.cast(pa.string())
        text = text if of is column else text.take(column.indices)
    except pa.ArrowException as error:
        what = f"column {name!r} is {column.type}, which cannot be made categories of; leave it out"
        raise BadTable(f"{path}: {what}") from error
    if text.null_count:
        row = first_row + text.is_null().to_pylist().index(True) + 1
        raise BadTable(f"{path}: column {name!r} is empty in row {row}; drop the row or fill it in")
    return text


def _spelled(category: str) -> str:
    return _TRUTH.get(category, category)


def _codes(path: str, name: str, column: Any, known: Sequence[str], first_row: int) -> np.ndarray:
    """The index of each value's category in `known`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = _as_text(path, name, column, first_row)
    others = {other: known.index(one) for other, one in _TRUTH.items() if one in known and other not in known}
    codes = pc.index_in(text, value_set=pa.array([*known, *others], pa.string()))
    if codes.null_count:
        row = codes.is_null().to_pylist().index(True)
        raise BadTable(
            f"{path}: column {name!r} has category {text[row].as_py()!r} in row {first_row + row + 1}, "
            f"which is not one of {', '.join(map(repr, known[:8]))}"
        )
    found: np.ndarray = np.asarray([*range(len(known)), *others.values()])[codes.to_numpy(zero_copy_only=False)]
    return found
