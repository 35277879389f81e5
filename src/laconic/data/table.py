"""`Table`, which every reader returns: a block of columns of X, with target, weights and offset of the rows.

`RowStream` is a table in blocks of rows, for one larger than memory.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from mmap import mmap
from typing import Any

import numpy as np
import torch

from laconic.data.errors import BadTable
from laconic.errors import Option

Matrix = Any
"""A torch tensor or a `scipy.sparse.csr_array` (which is not typed)."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}
ROWS = ("X", "y", "sample_weight", "offset")
"""The fields of a table with one entry per row."""
_CHECKED_AT_ONCE = 1 << 20
BLOCK_VALUES = 1 << 21
"""Values of a row block: 8 MiB of float32."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of a regression or classification problem, with the columns of X that this rank owns.

    X              (m, n_p): a row-major torch tensor (float32, bfloat16 or float64; may be mapped from a file), or a
                   `scipy.sparse.csr_array` of float32 with column indices counted from columns[0]
    y              (m,) int64 or float64; all NaN where the file was read without a target
    sample_weight  (m,) float64, not negative, or None
    offset         (m,) float64, added to the margins, or None
    feature_names  of all n_features columns, not only of this rank's, or None
    columns        (first, last): X holds columns first to last - 1 of the whole matrix; by default all
    n_features     columns of the whole matrix; by default `last`
    classes        labels for the codes 0, 1, ... in y, where the target was text
    zero_based     whether a LIBSVM file counted columns from 0; None for other formats
    one_hot        categories of each column of the file that became one column per category
    notes          what the user should know about the file, a sentence each
    mapped         the memory map that X lies in, if any
    roles          the file's columns that became target, sample_weight, offset and exposure, each as a list of one name

    >>> table = Table(torch.eye(3)[:, 1:], torch.tensor([1, 0, 1]), columns=(1, 3), n_features=3)
    >>> table.n_rows, table.columns, table.is_sparse
    (3, (1, 3), False)
    """

    X: Matrix
    y: torch.Tensor
    sample_weight: torch.Tensor | None = None
    offset: torch.Tensor | None = None
    feature_names: tuple[str, ...] | None = None
    columns: tuple[int, int] = (0, -1)
    n_features: int = -1
    classes: tuple[str, ...] | None = None
    zero_based: bool | None = None
    one_hot: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    mapped: mmap | None = None
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        X, (first, last) = self.X, self.columns
        if isinstance(X, torch.Tensor):
            if X.ndim != 2:
                raise BadTable(f"X must have two dimensions, rows and columns; it has shape {tuple(X.shape)}")
            if X.dtype not in DTYPES.values():
                raise BadTable(f"X must be float32, bfloat16 or float64, not {X.dtype}; convert it with X.float()")
            if X.numel() and X.shape[1] > 1 and X.stride(1) != 1:
                raise BadTable("X must be row-major; convert it with X.contiguous()")
        elif getattr(X, "format", None) != "csr" or X.dtype != np.float32:
            kind = f"{getattr(X, 'format', type(X).__name__)} of {getattr(X, 'dtype', 'unknown type')}"
            raise BadTable(f"X must be a torch tensor or a scipy.sparse.csr_array of float32, not {kind}")
        m, n = X.shape
        last = first + n if last < 0 else last
        object.__setattr__(self, "columns", (first, last))
        object.__setattr__(self, "n_features", last if self.n_features < 0 else self.n_features)
        column_block(self.columns, self.n_features)
        if n != last - first:
            raise BadTable(f"X has {n} columns and columns=({first}, {last}) needs {last - first}")
        if self.feature_names is not None and len(self.feature_names) != self.n_features:
            raise BadTable(f"there are {len(self.feature_names)} feature names and {self.n_features} features")
        if self.y.dtype not in (torch.int64, torch.float64):
            raise BadTable(f"y must be int64 or float64, not {self.y.dtype}; make it with as_target(y)")
        for name, values in (("y", self.y), ("sample_weight", self.sample_weight), ("offset", self.offset)):
            if values is not None and tuple(values.shape) != (m,):
                raise BadTable(f"X has {m} rows and {name} has shape {tuple(values.shape)}; they must agree")

    @property
    def n_rows(self) -> int:
        """Rows, the same on every rank."""
        return int(self.X.shape[0])

    @property
    def is_sparse(self) -> bool:
        """Whether X is a CSR matrix."""
        return not isinstance(self.X, torch.Tensor)

    def __getitem__(self, rows: slice) -> "Table":
        """A slice of the rows, as views."""
        whole: list[Any] = [getattr(self, name) for name in ROWS]
        taken: list[Any] = [None if values is None else values[rows] for values in whole]
        return replace(self, X=taken[0], y=taken[1], sample_weight=taken[2], offset=taken[3])


def to_dtype(name: "str | torch.dtype") -> torch.dtype:
    """The dtype a name stands for.

    >>> to_dtype("bf16"), to_dtype(torch.float64)
    (torch.bfloat16, torch.float64)
    """
    if name in DTYPES.values():
        return name  # type: ignore[return-value]
    if name not in DTYPES:
        raise BadTable(Option("dtype"), f" must be one of {', '.join(DTYPES)}; got {name!r}")
    return DTYPES[str(name)]


def column_block(columns: tuple[int, int] | None, n: int, *hint: str | Option) -> tuple[int, int]:
    """`columns`, checked to lie within n columns; all of them for None. `hint` ends the message of `BadTable`.

    >>> column_block(None, 5), column_block((1, 3), 5)
    ((0, 5), (1, 3))
    """
    first, last = columns or (0, n)
    if not 0 <= first <= last <= n:
        raise BadTable(f"columns must lie within 0 to {n}, got {first} to {last}", *hint)
    return first, last


def no_target(n_rows: int) -> torch.Tensor:
    """The y of a table without a target: all NaN."""
    return torch.full((n_rows,), torch.nan, dtype=torch.float64)


def as_target(y: Any, what: str = "y") -> torch.Tensor:
    """y as int64 where every value is a whole number, else as float64: the same for every file format.

    >>> as_target([1.0, -1.0]), as_target([0.5])
    (tensor([ 1, -1]), tensor([0.5000], dtype=torch.float64))
    """
    values = as_floats(y, what)
    for first in range(0, len(values), _CHECKED_AT_ONCE):
        part = values[first : first + _CHECKED_AT_ONCE]
        if not ((part == part.round()) & (part.abs() < 2**53)).all():
            return values
    return values.long()


def as_floats(values: Any, what: str, *, part: str = "", first_row: int = 0) -> torch.Tensor:
    """A finite vector as float64; raises `BadTable` with the first invalid row.

    part       field of `Source`: a "sample_weight" is at least 0; an "exposure" is positive, its logarithm returned
    first_row  row number of values[0], counted from 0
    """
    if isinstance(values, np.ndarray) and not values.flags.writeable:
        values = values.copy()  # torch warns of others
    tensor = torch.as_tensor(values, dtype=torch.float64)
    if tensor.ndim != 1:
        raise BadTable(f"{what} must have one dimension, it has shape {tuple(tensor.shape)}")
    rules = [(torch.isfinite(tensor), "drop the row or fill it in")]
    if part == "sample_weight":
        rules.append((tensor >= 0, "a weight cannot be negative"))
    elif part == "exposure":
        rules.append((tensor > 0, "an exposure must be positive"))
    for good, why in rules:
        if not bool(good.all()):
            row = int(good.int().argmin())
            raise BadTable(f"{what} is {tensor[row].item()} in row {first_row + row + 1}; {why}")
    return tensor.log() if part == "exposure" else tensor


def check_finite(
    X: Matrix, what: str = "X", *, first_row: int = 0, first_column: int = 0, names: tuple[str, ...] | None = None
) -> None:
    """Raise `BadTable` naming the first row and column where X is NaN or infinite (both count from 1).

    >>> check_finite(torch.tensor([[1.0, 2.0], [3.0, float("nan")]]))
    Traceback (most recent call last):
    laconic.data.errors.BadTable: X is nan in row 2, column 2; drop the row or fill the value in
    """
    rows_at_once = max(1, _CHECKED_AT_ONCE // max(1, X.shape[1]))
    for start in range(0, X.shape[0], rows_at_once):
        block = X[start : start + rows_at_once]
        values = block if isinstance(block, torch.Tensor) else torch.from_numpy(block.data)
        if torch.isfinite(values.sum()):  # one pass; if the sum of finite values overflows, they are checked below
            continue
        finite = torch.isfinite(values)
        if not finite.all():
            found = int(finite.flatten().int().argmin())
            row, column = _place(block, found)
            column += first_column
            name = f" ({names[column]!r})" if names else ""
            where = f"row {first_row + start + row + 1}, column {column + 1}{name}"
            value = values.flatten()[found].item()
            raise BadTable(f"{what} is {value} in {where}; drop the row or fill the value in")


def _place(block: Matrix, found: int) -> tuple[int, int]:
    if isinstance(block, torch.Tensor):
        return divmod(found, block.shape[1])
    return int(np.searchsorted(block.indptr, found, side="right")) - 1, int(block.indices[found])


@dataclass(frozen=True, slots=True, eq=False)
class RowStream:
    """A table of known shape whose rows come in blocks, in order.

    blocks      tables of successive rows, all with the same columns; y may be float64 in each
    n_rows      rows of all blocks together
    like        the table with no rows: its columns and their names, the dtype of X, which optional fields it has
    n_nonzero   entries of a sparse X in all blocks together; None where X is dense
    has_target  False where y is all NaN because there is no target
    source      where the rows come from, as noted in a store
    """

    blocks: Iterable[Table]
    n_rows: int
    like: Table
    n_nonzero: int | None = None
    has_target: bool = True
    source: str = ""


def rows_of(table: Table, source: str = "") -> RowStream:
    """A table as a stream of row blocks (views).

    >>> stream = rows_of(Table(torch.zeros(5, 2), torch.arange(5)))
    >>> [block.n_rows for block in stream.blocks]
    [5]
    """
    has_target = table.n_rows == 0 or not bool(table.y[:1].isnan().all())
    n_nonzero = table.X.nnz if table.is_sparse else None
    return RowStream(_row_blocks(table), table.n_rows, table[:0], n_nonzero, has_target, source)


def rows_at_once(n_columns: int) -> int:
    """Rows in a block of about BLOCK_VALUES values."""
    return max(1, min(65536, BLOCK_VALUES // max(1, n_columns)))


def _row_blocks(table: Table) -> Iterator[Table]:
    first, last = table.columns
    step = rows_at_once(last - first)
    if table.is_sparse and table.X.nnz:
        step = max(1, min(65536, table.n_rows * BLOCK_VALUES // table.X.nnz))
    for start in range(0, table.n_rows, step):
        yield table[start : start + step]


def collect(stream: RowStream) -> Table:
    """The whole stream as one table in memory; beyond the result only one block is held.

    >>> table = Table(torch.arange(6.0).view(3, 2), torch.tensor([1, 0, 1]))
    >>> torch.equal(collect(rows_of(table)).X, table.X)
    True
    """
    if stream.n_nonzero is not None:
        raise BadTable("collect() is for dense rows; read a sparse file with read()")
    whole: dict[str, Any] = {}
    for name in ROWS:
        empty = getattr(stream.like, name)
        if empty is not None:
            whole[name] = empty.new_empty(stream.n_rows, *empty.shape[1:])
    row = 0
    for block in stream.blocks:
        rows = slice(row, row + len(block.y))
        row = rows.stop
        if row > stream.n_rows:
            break
        for name, values in whole.items():
            values[rows] = getattr(block, name)
    if row != stream.n_rows:
        raise wrong_count(row, stream.n_rows)
    y = as_target(whole.pop("y")) if stream.has_target else whole.pop("y")
    return replace(stream.like, y=y, **whole)


def wrong_count(found: int, expected: int, what: str = "rows") -> BadTable:
    """The error for a stream with another number of rows, or non-zero values, than announced."""
    more = "more" if found > expected else f"only {found}"
    return BadTable(f"the stream announced {expected} {what} and brought {more}; was the file written to meanwhile?")


def to_dense(X: Matrix, dtype: torch.dtype) -> torch.Tensor:
    """A CSR matrix as a row-major dense tensor; raises `BadTable` if it would not fit into this machine's memory."""
    n_bytes = X.shape[0] * X.shape[1] * dtype.itemsize
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else sys.maxsize
    if n_bytes > most:
        what = f"{X.shape[0]} rows of {X.shape[1]} columns, dense, would take {n_bytes} bytes"
        raise BadTable(f"{what}, and this machine has {most}; keep fewer columns, or sparse")
    dense = torch.empty(X.shape, dtype=dtype)
    step = rows_at_once(X.shape[1])
    for first in range(0, X.shape[0], step):
        dense[first : first + step] = torch.from_numpy(X[first : first + step].toarray())
    return dense
