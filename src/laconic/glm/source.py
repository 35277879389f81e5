"""Files that models are fitted to and predict: which column is what, and rows in the order a model wants them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from laconic.data import (
    BadTable,
    RowStream,
    Table,
    column_cuts,
    column_weights,
    describe,
    read,
    scan_libsvm,
    stream,
    take_columns,
)
from laconic.data.read import format_of
from laconic.exchange import Communicator
from laconic.glm.model import Model

NAMED = ("csv", "parquet")
"""Formats whose columns have names."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file and the parts its columns play; see `data.read`. All are JSON values.

    exposure    a column whose logarithm is the offset
    one_hot     columns to spread out into one per category; a mapping also fixes the categories
    drop        columns to leave out
    zero_based  whether a LIBSVM file counts columns from 0; None to find out
    """

    path: str
    target: str | None = None
    weight: str | None = None
    offset: str | None = None
    exposure: str | None = None
    one_hot: "tuple[str, ...] | list[str] | Mapping[str, list[str]]" = ()
    drop: "tuple[str, ...] | list[str]" = ()
    n_features: int | None = None
    dense: bool = False
    zero_based: bool | None = None

    @property
    def format(self) -> str:
        """Of the file, by its name."""
        return format_of(self.path)

    def options(self, target: "str | bool | None" = None) -> dict[str, Any]:
        """Arguments of `data.read` and `data.stream`."""
        if self.offset is not None and self.exposure is not None:
            raise BadTable("give an offset or an exposure, not both: the offset is the logarithm of the exposure")
        return {
            "target": self.target if target is None else target,
            "sample_weight": self.weight,
            "offset": self.offset or self.exposure,
            "n_features": self.n_features,
            "one_hot": self.one_hot,
            "exclude": tuple(self.drop),
            "dense": self.dense,
            "zero_based": self.zero_based,
        }


def load(source: Source, comm: Communicator, dtype: str, *, target: "str | bool | None" = None) -> Table:
    """This rank's columns of the file.

    dtype   "fp32", "fp64" or "bf16", to read text and Parquet in; files with a type of their own keep that
    target  False where y comes from elsewhere
    """
    options = source.options(target if source.format in (*NAMED, "npy") else None)
    if source.format in NAMED or source.dense:
        options["dtype"] = dtype
    columns = None if comm.size == 1 else _columns(source, options, comm)
    table = read(source.path, **options, columns=columns)
    if table.is_sparse and comm.size > 1 and source.format != "libsvm":
        cuts = column_cuts(column_weights(table.X), comm.size)
        first, last = cuts[comm.rank], cuts[comm.rank + 1]
        table = replace(table, X=take_columns(table.X, first, last), columns=(first, last))
    if table.n_rows == 0 or table.n_features == 0:
        raise BadTable(f"{source.path} has {table.n_rows} rows and {table.n_features} features; nothing can be fitted")
    if target is not False and bool(table.y[:1].isnan().all()):
        raise BadTable(f"{source.path} has no target; convert it again with one")
    return table if source.exposure is None else replace(table, offset=_offset(source, table))


def _columns(source: Source, options: dict[str, Any], comm: Communicator) -> tuple[int, int] | None:
    """The columns of one of several ranks; None where all of them have to be read."""
    if source.format == "libsvm":
        scan = scan_libsvm(source.path, zero_based=source.zero_based, count_columns=True)
        n = scan.n_features if source.n_features is None else source.n_features
        counts = scan.column_counts
        if source.dense or counts is None:
            cuts = column_cuts(n, comm.size)
        else:
            cuts = [*column_cuts(counts, comm.size)[:-1], n]
    elif source.format == "store" and describe(source.path).is_sparse:
        return None
    else:
        cuts = column_cuts(read(source.path, **options, columns=(0, 0)).n_features, comm.size)
    return cuts[comm.rank], cuts[comm.rank + 1]


def _offset(source: Source, table: Table, first_row: int = 0) -> torch.Tensor | None:
    """The offset of each row: as the file has it, or the logarithm of the exposure.

    first_row  the number of the table's first row in the file, counted from 0
    """
    if source.exposure is None or table.offset is None:
        return table.offset
    if bool((table.offset <= 0).any()):
        row = int((table.offset <= 0).int().argmax())
        what = f"{source.exposure} is {table.offset[row].item():g} in row {first_row + row + 1}"
        raise BadTable(f"{source.path}: {what}; an exposure must be positive")
    return table.offset.log()


def with_offset(source: Source, blocks: Iterable[Table]) -> Iterator[Table]:
    """Successive blocks of the file's rows, with the logarithm of the exposure as their offset if there is one."""
    n_before = 0
    for block in blocks:
        yield replace(block, offset=_offset(source, block, n_before))
        n_before += block.n_rows


def inputs_of(source: Source, table: Table) -> dict[str, Any]:
    """How a model's columns came from the file: what `rows_for` needs to read another one for it. JSON values."""
    one_hot: dict[str, list[str]] = {}
    if isinstance(source.one_hot, Mapping):
        one_hot = {column: list(found) for column, found in source.one_hot.items()}
    elif source.one_hot:
        columns = describe(source.path).columns or ()
        spread = [name for name in table.feature_names or () if name not in columns]  # "a=b" may be a name by itself
        for column in source.one_hot:
            start = f"{column}="
            one_hot[column] = [name.removeprefix(start) for name in spread if name.startswith(start)]
    return {
        "target": source.target,
        "offset": source.offset,
        "exposure": source.exposure,
        "one_hot": one_hot,
        "zero_based": table.zero_based,
    }


def rows_for(model: Model, source: Source, *, target: "str | bool | None" = None) -> tuple[RowStream, Iterator[Table]]:
    """A file's rows in blocks, with the columns in the model's order and type.

    target  False to do without a y

    Columns that the model does not know are passed over; `BadTable` names one that it needs and the file lacks. Offset
    or exposure are those of the fit, unless others are given, where the file has such a column.
    """
    source = _source_for(model, source)
    asked = target if source.format in (*NAMED, "npy") else None  # the others have their own place for y
    dtype = "fp64" if model.coef.dtype == torch.float64 else "fp32"
    rows = stream(source.path, **source.options(asked), dtype=dtype)
    return rows, _ordered(model, source, rows)


def _source_for(model: Model, source: Source) -> Source:
    if source.format == "libsvm":
        return replace(source, n_features=model.n_features, zero_based=model.inputs.get("zero_based"))
    if source.format not in NAMED:
        return source
    names = describe(source.path).columns or ()
    if source.offset is None and source.exposure is None:
        known = {name: model.inputs.get(name) for name in ("offset", "exposure")}
        source = replace(source, **{name: column for name, column in known.items() if column in names})
    if model.feature_names is None:
        return source
    one_hot: dict[str, list[str]] = dict(model.inputs.get("one_hot", {}))
    spread = {f"{column}={category}" for column, found in one_hot.items() for category in found}
    needed = {*one_hot, *(name for name in model.feature_names if name not in spread)}
    kept = {*needed, source.target, source.weight, source.offset, source.exposure}
    missing = [name for name in model.feature_names if name in needed and name not in names]
    missing += [name for name in one_hot if name not in names]
    if missing:
        raise BadTable(f"{source.path} has no column {missing[0]!r}, which the model needs")
    return replace(source, one_hot=one_hot, drop=tuple(name for name in names if name not in kept))


def _ordered(model: Model, source: Source, rows: RowStream) -> Iterator[Table]:
    if rows.n_features != model.n_features:
        raise BadTable(f"{source.path} has {rows.n_features} features and the model {model.n_features}")
    order = None
    if rows.feature_names is not None and model.feature_names not in (None, rows.feature_names):
        place = {name: j for j, name in enumerate(rows.feature_names)}
        missing = [name for name in model.feature_names or () if name not in place]
        if missing:
            raise BadTable(f"{source.path} has no feature {missing[0]!r}, which the model needs")
        order = [place[name] for name in model.feature_names or ()]
    for block in with_offset(source, rows.blocks):
        yield block if order is None else replace(block, X=block.X[:, order])
