"""`Table`, which every reader returns: a block of columns of X, with target, weights and offset of the rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from laconic.data.errors import BadTable
from laconic.errors import Option

Matrix = Any
"""A torch tensor, or a `scipy.sparse.csr_array`, which has no types of its own."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}
_CHECKED_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of a regression or classification problem, with the columns of X that this rank owns.

    X              (m, n_p): a row-major torch tensor (float32, bfloat16 or float64; may be mapped from a file), or a
                   `scipy.sparse.csr_array` of float32 with column indices counted from columns[0]
    y              (m,) int64 or float64; all NaN where the file was read without a target
    sample_weight  (m,) float64, not negative, or None
    offset         (m,) float64, added to the margins, or None
    feature_names  of all n_features columns, not only of this rank's, or None
    columns        (first, last): X holds columns first to last - 1 of the whole matrix; by default all there are
    n_features     columns of the whole matrix; by default `last`
    classes        labels for the codes 0, 1, ... in y, where the target was text
    zero_based     whether the first column was written as 0 in a LIBSVM file; None for other formats

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

    def __post_init__(self) -> None:
        _check_matrix(self.X)
        first, last = self.columns
        last = first + self.X.shape[1] if last < 0 else last
        object.__setattr__(self, "columns", (first, last))
        object.__setattr__(self, "n_features", last if self.n_features < 0 else self.n_features)
        _check_shapes(self)

    @property
    def n_rows(self) -> int:
        """Rows, the same on every rank."""
        return int(self.X.shape[0])

    @property
    def is_sparse(self) -> bool:
        """Whether X is a CSR matrix."""
        return not isinstance(self.X, torch.Tensor)


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


def as_floats(values: Any, what: str, *, first_row: int = 0) -> torch.Tensor:
    """A finite vector as float64, or `BadTable` with the first row that is not finite.

    first_row  the number of values[0] among all rows, counted from 0
    """
    tensor = torch.as_tensor(values, dtype=torch.float64)
    if tensor.ndim != 1:
        raise BadTable(f"{what} must have one dimension, it has shape {tuple(tensor.shape)}")
    finite = torch.isfinite(tensor)
    if not finite.all():
        row = int(finite.int().argmin())
        raise BadTable(f"{what} is {tensor[row].item()} in row {first_row + row + 1}; drop the row or fill it in")
    return tensor


def as_weights(values: Any, what: str = "sample_weight", *, first_row: int = 0) -> torch.Tensor:
    """A finite, non-negative vector as float64."""
    weights = as_floats(values, what, first_row=first_row)
    if (weights < 0).any():
        row = int((weights < 0).int().argmax())
        raise BadTable(f"{what} is {weights[row].item()} in row {first_row + row + 1}; a weight cannot be negative")
    return weights


def check_finite(X: Matrix, *, first_row: int = 0, first_column: int = 0, names: tuple[str, ...] | None = None) -> None:
    """Raise `BadTable` naming the first row and column where X is NaN or infinite (both count from 1).

    >>> check_finite(torch.tensor([[1.0, 2.0], [3.0, float("nan")]]))
    Traceback (most recent call last):
    laconic.data.errors.BadTable: X is nan in row 2, column 2; drop the row or fill the value in
    """
    rows_at_once = max(1, _CHECKED_AT_ONCE // max(1, X.shape[1]))
    for start in range(0, X.shape[0], rows_at_once):
        block = X[start : start + rows_at_once]
        values = block if isinstance(block, torch.Tensor) else torch.from_numpy(block.data)
        if torch.isfinite(values.sum()):  # one pass; a sum of finite values that overflows is looked at again
            continue
        finite = torch.isfinite(values)
        if not finite.all():
            found = int(finite.flatten().int().argmin())
            row, column = _place(block, found)
            column += first_column
            name = f" ({names[column]!r})" if names else ""
            where = f"row {first_row + start + row + 1}, column {column + 1}{name}"
            raise BadTable(f"X is {values.flatten()[found].item()} in {where}; drop the row or fill the value in")


def _place(block: Matrix, found: int) -> tuple[int, int]:
    if isinstance(block, torch.Tensor):
        return divmod(found, block.shape[1])
    return int(np.searchsorted(block.indptr, found, side="right")) - 1, int(block.indices[found])


def _check_matrix(X: Matrix) -> None:
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


def _check_shapes(table: Table) -> None:
    (first, last), n_features, names = table.columns, table.n_features, table.feature_names
    column_block(table.columns, n_features)
    if table.X.shape[1] != last - first:
        raise BadTable(f"X has {table.X.shape[1]} columns and columns=({first}, {last}) needs {last - first}")
    if names is not None and len(names) != n_features:
        raise BadTable(f"there are {len(names)} feature names and {n_features} features")

    if table.y.dtype not in (torch.int64, torch.float64):
        raise BadTable(f"y must be int64 or float64, not {table.y.dtype}; make it with as_target(y)")
    for name in ("y", "sample_weight", "offset"):
        values = getattr(table, name)
        if values is not None and tuple(values.shape) != (table.n_rows,):
            raise BadTable(f"X has {table.n_rows} rows and {name} has shape {tuple(values.shape)}; they must agree")
