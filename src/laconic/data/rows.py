"""`RowStream`: a table in blocks of rows, so that one larger than memory can be written."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from laconic.data.errors import BadTable
from laconic.data.table import Matrix, Table, as_target

BLOCK_VALUES = 1 << 21
"""Values of a row block: 8 MiB of float32."""


@dataclass(frozen=True, slots=True)
class RowStream:
    """A table whose shape is known and whose rows come as tables, in order.

    blocks        tables of successive rows, all with the same columns; y may be float64 in each
    n_rows        rows of all blocks together
    n_features    columns of the whole matrix, and `columns` those of the blocks
    n_nonzero     entries of a sparse X in all blocks together; None where X is dense
    dtype         of a dense X
    has_target    False where y is all NaN for want of a target
    has_sample_weight, has_offset  whether each block brings them
    source        where the rows come from, for the reader of the store
    zero_based    as in `Table`
    """

    blocks: Iterable[Table]
    n_rows: int
    n_features: int
    columns: tuple[int, int]
    n_nonzero: int | None = None
    dtype: torch.dtype = torch.float32
    has_target: bool = True
    has_sample_weight: bool = False
    has_offset: bool = False
    feature_names: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    source: str = ""
    zero_based: bool | None = None


def rows_of(table: Table, source: str = "") -> RowStream:
    """A table as a stream of its own row blocks (views).

    >>> stream = rows_of(Table(torch.zeros(5, 2), torch.arange(5)))
    >>> [block.n_rows for block in stream.blocks]
    [5]
    """
    return RowStream(
        _row_blocks(table),
        table.n_rows,
        table.n_features,
        table.columns,
        table.X.nnz if table.is_sparse else None,
        torch.float32 if table.is_sparse else table.X.dtype,
        table.n_rows == 0 or not bool(table.y[:1].isnan().all()),
        table.sample_weight is not None,
        table.offset is not None,
        table.feature_names,
        table.classes,
        source,
        table.zero_based,
    )


def rows_at_once(n_columns: int) -> int:
    """Rows of a block of about BLOCK_VALUES values."""
    return max(1, min(65536, BLOCK_VALUES // max(1, n_columns)))


def _row_blocks(table: Table) -> Iterator[Table]:
    first, last = table.columns
    step = rows_at_once(last - first)
    if table.is_sparse and table.X.nnz:
        step = max(1, min(65536, table.n_rows * BLOCK_VALUES // table.X.nnz))
    for start in range(0, table.n_rows, step):
        rows = slice(start, start + step)
        yield Table(
            table.X[rows],
            table.y[rows],
            None if table.sample_weight is None else table.sample_weight[rows],
            None if table.offset is None else table.offset[rows],
            columns=table.columns,
            n_features=table.n_features,
        )


def collect(stream: RowStream) -> Table:
    """All rows in memory; beyond the result never more than one block is.

    >>> table = Table(torch.arange(6.0).view(3, 2), torch.tensor([1, 0, 1]))
    >>> torch.equal(collect(rows_of(table)).X, table.X)
    True
    """
    if stream.n_nonzero is not None:
        raise BadTable("collect() is for dense rows; read a sparse file with read()")
    first, last = stream.columns
    X = torch.empty((stream.n_rows, last - first), dtype=stream.dtype)
    y = torch.empty(stream.n_rows, dtype=torch.float64)
    weight = torch.empty_like(y) if stream.has_sample_weight else None
    offset = torch.empty_like(y) if stream.has_offset else None
    row = 0
    for block in stream.blocks:
        rows = slice(row, row + block.n_rows)
        row += block.n_rows
        if row > stream.n_rows:
            break
        for whole, part in ((X, block.X), (y, block.y), (weight, block.sample_weight), (offset, block.offset)):
            if whole is not None and part is not None:
                whole[rows] = part
    check_count(row, stream.n_rows)
    target = as_target(y) if stream.has_target else y
    return Table(X, target, weight, offset, stream.feature_names, stream.columns, stream.n_features, stream.classes)


def check_count(n_rows: int, expected: int, what: str = "rows") -> None:
    """Raise `BadTable` if a stream brings another number of rows, or non-zero values, than it announced."""
    if n_rows != expected:
        more = "more" if n_rows > expected else f"only {n_rows}"
        raise BadTable(f"the stream announced {expected} {what} and brought {more}; was the file written to meanwhile?")


def to_dense(X: Matrix, dtype: torch.dtype) -> torch.Tensor:
    """A CSR matrix as a row-major tensor; a tensor in another dtype."""
    if isinstance(X, torch.Tensor):
        return X.to(dtype)
    dense = torch.empty(X.shape, dtype=dtype)
    step = rows_at_once(X.shape[1])
    for first in range(0, X.shape[0], step):
        dense[first : first + step] = torch.from_numpy(X[first : first + step].toarray())
    return dense
