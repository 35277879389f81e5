"""Arrow record batches as row blocks of a table: what CSV and Parquet share."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.data.errors import BadTable
from laconic.data.rows import RowStream
from laconic.data.schema import Schema, sorted_categories
from laconic.data.table import Table, as_floats, as_weights, check_finite, no_target


def is_numeric(kind: Any) -> bool:
    """Whether a column of this Arrow type can be a feature as it stands: numbers, booleans, or nothing but gaps."""
    from pyarrow import types

    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(number or types.is_boolean(kind) or types.is_null(kind))


def numeric_columns(path: str, names: list[str], kinds: list[Any]) -> Mapping[str, bool]:
    """Each column's name and whether it is numeric; a name that occurs twice is an error."""
    if len(set(names)) < len(names):
        twice = min(name for name in names if names.count(name) > 1)
        raise BadTable(f"{path} has two columns named {twice!r}; rename one")
    return dict(zip(names, map(is_numeric, kinds), strict=True))


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
    path: Path, batches: Iterable[Any], schema: Schema, columns: tuple[int, int], dtype: torch.dtype, n_rows: int
) -> RowStream:
    """The batches of a file as a stream of row blocks, with these columns of X."""
    return RowStream(
        _blocks(str(path), batches, schema, columns, dtype),
        n_rows,
        len(schema.features),
        columns,
        dtype=dtype,
        has_target=schema.target is not None,
        has_sample_weight=schema.sample_weight is not None,
        has_offset=schema.offset is not None,
        feature_names=schema.feature_names,
        classes=schema.classes,
        source=path.name,
    )


def _blocks(
    path: str, batches: Iterable[Any], schema: Schema, columns: tuple[int, int], dtype: torch.dtype
) -> Iterator[Table]:
    """A table for each batch; y is float64."""
    row = 0
    for batch in batches:
        yield _block(path, batch, schema, columns, dtype, row)
        row += batch.num_rows


def _block(
    path: str, batch: Any, schema: Schema, columns: tuple[int, int], dtype: torch.dtype, first_row: int
) -> Table:
    wide = np.empty((batch.num_rows, columns[1] - columns[0]), np.float64 if dtype == torch.float64 else np.float32)
    codes: dict[str, np.ndarray] = {}
    categories_of = schema.categories
    with np.errstate(over="ignore"):
        for j, feature in enumerate(schema.features[slice(*columns)]):
            source = feature.source
            if feature.category is None:
                wide[:, j] = _numbers(batch.column(source))
                continue
            known = categories_of[source]
            if source not in codes:
                codes[source] = _codes(path, source, batch.column(source), known, first_row)
            wide[:, j] = codes[source] == known.index(feature.category)
    X = torch.from_numpy(wide).to(dtype)
    check_finite(X, first_row=first_row, first_column=columns[0], names=schema.feature_names)
    weight = offset = None
    if schema.sample_weight is not None:
        weight = as_weights(_numbers(batch.column(schema.sample_weight)), schema.sample_weight, first_row=first_row)
    if schema.offset is not None:
        offset = as_floats(_numbers(batch.column(schema.offset)), schema.offset, first_row=first_row)
    y = _target(path, batch, schema, first_row)
    return Table(X, y, weight, offset, columns=columns, n_features=len(schema.features))


def _target(path: str, batch: Any, schema: Schema, first_row: int) -> torch.Tensor:
    if schema.target is None:
        return no_target(batch.num_rows)
    column = batch.column(schema.target)
    if schema.classes is None:
        return as_floats(_numbers(column), schema.target, first_row=first_row)
    return torch.from_numpy(_codes(path, schema.target, column, list(schema.classes), first_row)).double()


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


def _codes(path: str, name: str, column: Any, known: list[str], first_row: int) -> np.ndarray:
    """The number of each value's category."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = _as_text(path, name, column, first_row)
    codes = pc.index_in(text, value_set=pa.array(known, pa.string()))
    if codes.null_count:
        row = codes.is_null().to_pylist().index(True)
        raise BadTable(
            f"{path}: column {name!r} has category {text[row].as_py()!r} in row {first_row + row + 1}, "
            f"which is not one of {', '.join(map(repr, known[:8]))}"
        )
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)
