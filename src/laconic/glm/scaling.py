"""Columns of mean zero and variance one, and the way back."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from laconic.data.errors import BadTable
from laconic.exchange import Communicator
from laconic.glm.columns import CHUNK_VALUES, Columns, DenseColumns, MappedColumns, SparseColumns
from laconic.glm.options import FitOptions
from laconic.glm.ranks import gather_columns
from laconic.glm.rows import SampledRows

DIFFER = 10.0
"""Columns are scaled by themselves where the largest is more than so many times the size of the median one, or where
a mean is more than so many times the deviation of its column and can be taken off."""
CACHED_VALUES = 2**16
"""Values of X whose moments are taken at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """X → (X − mean) / deviation, column by column.

    mean       (n,) float64; zeros where columns are not to be centred: of a sparse X, or without an intercept
    deviation  (n,) float64; 1 for a column that is constant
    why        they are scaled, where that was not asked for
    """

    mean: torch.Tensor
    deviation: torch.Tensor
    why: str = ""

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

        def work(rows: slice, Y: SampledRows) -> None:
            scaled[rows] = ((Y.dense() - mean) * factor).to(dtype)

        for _ in columns.map_blocks(work, None, wide):
            pass
        return DenseColumns(scaled)

    def explain(self, options: FitOptions) -> str:
        """That columns were scaled, why, and what the penalty is of."""
        centred = "mean 0 and variance 1" if bool(self.mean.any()) else "variance 1"
        why, own = f", since {self.why}" if self.why else "", options.penalises_given
        return f"columns were scaled to {centred}{why}; the penalty is of columns {'as given' if own else 'as scaled'}"

    def undo(self, coef: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Coefficients (C, n) for X itself, and what they take from the intercept (C,), rounded as they are, and as the
        mean was that was taken off."""
        plain = (coef.double() / self.deviation).to(coef.dtype)
        return plain, plain.double() @ self.mean.to(coef.dtype).double()


def scaling_for(
    columns: Columns, options: FitOptions, comm: Communicator, first: int, n_features: int
) -> Scaling | None:
    """The scaling of a rank's columns, if they are to be scaled. All ranks call this.

    first, n_features  of the rank's first column, and of all ranks' columns

    >>> columns = DenseColumns(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    >>> scaling = scaling_for(columns, FitOptions(standardize=True), Communicator(), 0, 2)
    >>> scaling.mean.tolist(), scaling.deviation.tolist()
    ([2.0, 5.0], [1.0, 1.0])
    """
    if options.standardize is False:
        return None
    mean, deviation = moments(columns)
    centred = options.fit_intercept and not isinstance(columns, SparseColumns)
    own = Scaling(mean if centred else torch.zeros_like(mean), torch.where(deviation > 0, deviation, 1.0))
    if options.standardize is True:
        return own
    mu, sigma = mean.numpy(), deviation.numpy()
    with np.errstate(all="ignore"):
        shift = np.where(sigma > 0, np.abs(own.mean.numpy()) / own.deviation.numpy(), 0.0)
        both = torch.from_numpy(np.stack([np.hypot(mu, sigma), shift]))
    sizes, shifts = gather_columns(both, first, n_features, comm).numpy()
    if not np.isfinite(sizes).all():
        raise BadTable("X is so large that squares of its values overflow float64; divide its columns")
    sizes = np.sort(sizes[sizes > 0])
    with np.errstate(all="ignore"):
        spread = sizes[-1] / sizes[(len(sizes) - 1) // 2] if len(sizes) else 1.0
    largest = shifts.max(initial=0.0)
    if spread > DIFFER:
        return replace(own, why=f"the largest is {spread:.3g} times the size of the median one")
    if largest > DIFFER:
        return replace(own, why=f"the mean of one is {largest:.3g} times its deviation")
    return None


def moments(columns: Columns) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and deviation (n,) of each column; 0 is the deviation of one that is constant.

    Of a dense X in one pass, by differences from its first row: their squares add up to what that row is off by, at
    least, so that no more than its share of digits is lost.
    """
    if columns.known_moments is None:
        columns.known_moments = _moments(columns)
    return columns.known_moments


def _moments(columns: Columns) -> tuple[torch.Tensor, torch.Tensor]:
    if isinstance(columns, SparseColumns):
        mean, variance = _sparse_moments(columns)
    elif 0 < columns.m * columns.n <= CACHED_VALUES:
        X = columns.between(slice(0, columns.m), torch.float64).dense()
        variance, mean = (t.cpu() for t in torch.var_mean(X, 0, correction=0))
    else:
        first = columns.between(slice(0, min(1, columns.m)), torch.float64).dense().sum(0)
        how = (None, None) if columns.in_place else (torch.float64, max(1, CACHED_VALUES // max(1, columns.n)))

        def work(_: slice, Y: SampledRows) -> torch.Tensor:
            sums = torch.zeros(2, columns.n, dtype=torch.float64, device=columns.device)
            Y.add_moments(first, *sums)
            return sums

        nothing = torch.zeros(2, columns.n, dtype=torch.float64, device=columns.device)
        total, squares = sum(columns.map_blocks(work, None, *how), nothing)
        off = total / max(1, columns.m)
        mean = (first + off).cpu()
        variance = (squares / max(1, columns.m) - off.square()).clamp(min=0).cpu()
    deviation = variance.sqrt()
    return mean, torch.where(deviation <= 1e-12 * mean.abs(), 0.0, deviation)


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
