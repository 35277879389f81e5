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
    columns: Columns,
    options: FitOptions,
    comm: Communicator,
    first: int,
    n_features: int,
    weights: torch.Tensor | None = None,
) -> Scaling | None:
    """The scaling of a rank's columns, if they are to be scaled. All ranks call this.

    first, n_features  of the rank's first column, and of all ranks' columns
    weights            (m,) of the rows, the same on every rank; None for ones

    >>> columns = DenseColumns(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    >>> scaling = scaling_for(columns, FitOptions(standardize=True), Communicator(), 0, 2)
    >>> scaling.mean.tolist(), scaling.deviation.tolist()
    ([2.0, 5.0], [1.0, 1.0])
    """
    if options.standardize is False:
        return None
    mean, deviation = moments(columns) if weights is None else _moments(columns, weights)
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


def _moments(columns: Columns, weights: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The same by weight: a row of weight 2 is two rows, one of weight 0 none."""
    weights = None if weights is None else weights.double()
    if isinstance(columns, SparseColumns):
        mean, variance = _sparse_moments(columns, weights)
    elif weights is None and 0 < columns.m * columns.n <= CACHED_VALUES:
        X = columns.between(slice(0, columns.m), torch.float64).dense()
        variance, mean = (t.cpu() for t in torch.var_mean(X, 0, correction=0))
    else:
        mean, variance = _dense_moments(columns, weights)
    deviation = variance.sqrt()
    return mean, torch.where(deviation <= 1e-12 * mean.abs(), 0.0, deviation)


def _dense_moments(columns: Columns, weights: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance by differences from the first row that counts."""
    size = columns.m if weights is None else float(weights.sum())
    w = None if weights is None else weights.to(columns.device)
    begin = 0 if weights is None or not columns.m else int((weights > 0).int().argmax())
    first = columns.between(slice(begin, min(begin + 1, columns.m)), torch.float64).dense().sum(0)
    how = (None, None) if columns.in_place else (torch.float64, max(1, CACHED_VALUES // max(1, columns.n)))

    def work(rows: slice, Y: SampledRows) -> torch.Tensor:
        sums = torch.zeros(2, columns.n, dtype=torch.float64, device=columns.device)
        if w is None:
            Y.add_moments(first, *sums)
        else:
            d = torch.where(w[rows, None] > 0, Y.dense() - first, 0.0)
            sums[0], sums[1] = w[rows] @ d, w[rows] @ d.square_()
        return sums

    nothing = torch.zeros(2, columns.n, dtype=torch.float64, device=columns.device)
    total, squares = sum(columns.map_blocks(work, None, *how), nothing) / (size or 1)
    return (first + total).cpu(), (squares - total.square()).clamp(min=0).cpu()


def _sparse_moments(columns: SparseColumns, weights: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Σ w x / W and (Σ w (x − mean)² − (Σ w (x − mean))² / W) / W, W = Σ w, where values that are not stored are zeros.

    The second term of the variance would be zero, were the mean not rounded.
    """
    n_rows, size = columns.m, float(columns.m)
    if weights is not None:
        n_rows, size = int((weights > 0).sum()), float(weights.sum()) or 1.0
    n_stored, stored, total, from_mean, squares = torch.zeros(5, columns.n, dtype=torch.float64)
    for j, x, w in _stored(columns, weights):
        n_stored.index_add_(0, j, (w > 0).double())
        stored.index_add_(0, j, w)
        total.index_add_(0, j, w * x)
    mean, zeros = total / size, torch.where(n_stored < n_rows, size - stored, 0.0)  # not what rounding leaves of W − W
    for j, x, w in _stored(columns, weights):
        from_mean.index_add_(0, j, w * (x - mean[j]))
        squares.index_add_(0, j, torch.where(w > 0, w * (x - mean[j]).square(), 0.0))
    from_mean -= zeros * mean
    squares += zeros * mean.square()
    return mean, ((squares - from_mean.square() / size) / size).clamp(min=0)


def _stored(
    columns: SparseColumns, weights: torch.Tensor | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Column numbers and values of what is stored, and the weights of their rows, some at a time."""
    values, index, begins = columns.matrix
    for first in range(0, len(values), CHUNK_VALUES):
        part = slice(first, min(first + CHUNK_VALUES, len(values)))
        x = values[part].double()
        if weights is None:
            yield index[part].long(), x, torch.ones_like(x)
        else:
            rows = torch.searchsorted(begins, torch.arange(part.start, part.stop), right=True) - 1
            yield index[part].long(), x, weights[rows]
