"""Columns of mean zero and variance one, and the way back."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from laconic.data.errors import BadTable
from laconic.exchange import Communicator
from laconic.glm.columns import CHUNK_VALUES, Columns, DenseColumns, MappedColumns, SparseColumns
from laconic.glm.options import FitOptions
from laconic.glm.precision import AUTO
from laconic.glm.ranks import gather_columns

DIFFER = 10.0
"""Columns are scaled by themselves where the largest is more than so many times the size of the median one."""


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """X → (X − mean) / deviation, column by column.

    mean       (n,) float64; zeros where columns are not to be centred: of a sparse X, or without an intercept
    deviation  (n,) float64; 1 for a column that is constant
    spread     size of the largest column over the median one, where that is why they are scaled
    """

    mean: torch.Tensor
    deviation: torch.Tensor
    spread: float | None = None

    @classmethod
    def of(cls, columns: Columns, *, centre: bool) -> "Scaling":
        """From all rows, in two passes.

        >>> scaling = Scaling.of(DenseColumns(torch.tensor([[1.0, 5.0], [3.0, 5.0]])), centre=True)
        >>> scaling.mean.tolist(), scaling.deviation.tolist()
        ([2.0, 5.0], [1.0, 1.0])
        """
        sparse = isinstance(columns, SparseColumns)
        mean, variance = _sparse_moments(columns) if isinstance(columns, SparseColumns) else _moments(columns)
        deviation = variance.sqrt()
        flat = deviation <= 1e-12 * mean.abs()
        return cls(torch.zeros_like(mean) if sparse or not centre else mean, torch.where(flat, 1.0, deviation))

    def apply(self, columns: Columns, dtype: torch.dtype) -> Columns:
        """The columns scaled and, if they are dense, stored as `dtype`, made a block of rows at a time.

        Rows of mapped columns are scaled as they are taken.
        """
        factor = 1 / self.deviation
        if isinstance(columns, MappedColumns):
            return MappedColumns(columns.X, columns.mapped, (self.mean, factor), dtype)
        if isinstance(columns, SparseColumns):
            values, index, begins = columns.matrix
            wide = torch.float64 if values.dtype == torch.float64 else torch.float32
            return SparseColumns((values.double() * factor[index]).to(wide), index, begins, columns.n)
        scaled = torch.empty(columns.m, columns.n, dtype=dtype, device=columns.device)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        mean, factor = self.mean.to(columns.device, wide), factor.to(columns.device, wide)
        for rows, Y in columns.blocks(None, wide):
            scaled[rows] = ((Y.dense() - mean) * factor).to(dtype)
        return DenseColumns(scaled)

    def explain(self, options: FitOptions) -> str:
        """That columns were scaled, why, and what the penalty is of."""
        centred = "mean 0 and variance 1" if bool(self.mean.any()) else "variance 1"
        why = (
            "" if self.spread is None else f", since the largest is {self.spread:.3g} times the size of the median one"
        )
        own = options.penalises_given
        return f"columns were scaled to {centred}{why}; the penalty is of columns {'as given' if own else 'as scaled'}"

    def undo(self, coef: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Coefficients (C, n) for X itself, and what they take from the intercept (C,)."""
        plain = coef.double() / self.deviation
        return plain.to(coef.dtype), plain @ self.mean


def scaling_for(
    columns: Columns, options: FitOptions, comm: Communicator, first: int, n_features: int
) -> Scaling | None:
    """The scaling of a rank's columns, if they are to be scaled. All ranks call this.

    first, n_features  of the rank's first column, and of all ranks' columns
    """
    if options.standardize is False:
        return None
    spread = None
    if options.standardize == AUTO:
        squares = torch.zeros(columns.n, dtype=torch.float64)
        if isinstance(columns, SparseColumns):
            for j, x in _stored(columns):
                squares.index_add_(0, j, x.square())
        else:
            for _, Y in columns.blocks(None, torch.float64):
                squares += Y.dense().square().sum(0).cpu()
        sizes = gather_columns(torch.sqrt(squares / max(1, columns.m))[None], first, n_features, comm)
        if not bool(sizes.isfinite().all()):
            raise BadTable("X is so large that squares of its values overflow float64; divide its columns")
        sizes = sizes[sizes > 0]
        spread = float(sizes.max() / sizes.median()) if len(sizes) else 1.0
        if spread <= DIFFER:
            return None
    return replace(Scaling.of(columns, centre=options.fit_intercept), spread=spread)


def _moments(columns: Columns) -> tuple[torch.Tensor, torch.Tensor]:
    total, squares = torch.zeros(2, columns.n, dtype=torch.float64, device=columns.device)
    for _, Y in columns.blocks(None, torch.float64):
        total += Y.dense().sum(0)
    mean = total / columns.m
    for _, Y in columns.blocks(None, torch.float64):
        squares += (Y.dense() - mean).square().sum(0)
    return mean.cpu(), (squares / columns.m).cpu()


def _sparse_moments(columns: SparseColumns) -> tuple[torch.Tensor, torch.Tensor]:
    """Σ x / m and (Σ (x − mean)² − (Σ (x − mean))² / m) / m, where values that are not stored are zeros.

    The second term of the variance would be zero, were the mean not rounded.
    """
    m = columns.m
    stored, total, from_mean, squares = torch.zeros(4, columns.n, dtype=torch.float64)
    for j, x in _stored(columns):
        stored.index_add_(0, j, torch.ones_like(x))
        total.index_add_(0, j, x)
    mean, zeros = total / m, m - stored
    for j, x in _stored(columns):
        from_mean.index_add_(0, j, x - mean[j])
        squares.index_add_(0, j, (x - mean[j]).square())
    from_mean -= zeros * mean
    squares += zeros * mean.square()
    return mean, ((squares - from_mean.square() / m) / m).clamp(min=0)


def _stored(columns: SparseColumns) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Column numbers and values of what is stored, some at a time."""
    values, index, _ = columns.matrix
    for first in range(0, len(values), CHUNK_VALUES):
        part = slice(first, first + CHUNK_VALUES)
        yield index[part].long(), values[part].double()
