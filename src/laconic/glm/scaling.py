"""Columns of mean zero and variance one, and the way back."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from laconic.data.errors import BadTable
from laconic.exchange import Communicator
from laconic.glm.columns import Columns, MappedColumns, as_matrix
from laconic.glm.options import FitOptions
from laconic.glm.precision import AUTO
from laconic.glm.ranks import gather_columns
from laconic.kernels.formats import format_named

CHUNK_VALUES = 1 << 20
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
    def of(cls, X: Any, *, centre: bool) -> "Scaling":
        """From the rows of X, in two passes over it.

        >>> scaling = Scaling.of(torch.tensor([[1.0, 5.0], [3.0, 5.0]]), centre=True)
        >>> scaling.mean.tolist(), scaling.deviation.tolist()
        ([2.0, 5.0], [1.0, 1.0])
        """
        dense = isinstance(X, torch.Tensor | MappedColumns)
        mean, variance = _moments(X) if dense else _sparse_moments(X)
        deviation = variance.sqrt()
        flat = deviation <= 1e-12 * mean.abs()
        return cls(mean if centre and dense else torch.zeros_like(mean), torch.where(flat, 1.0, deviation))

    def apply(self, X: Any, data_format: str) -> Any:
        """X scaled: one new matrix, made a block of rows at a time; of mapped columns, rows as they are taken."""
        if isinstance(X, MappedColumns):
            return MappedColumns(X.X, X.mapped, (self.mean, 1 / self.deviation), format_named(data_format).storage)
        if not isinstance(X, torch.Tensor):
            kind = "float64" if X.dtype == "float64" else "float32"
            return X.multiply((1 / self.deviation).numpy()[None, :]).tocsr().astype(kind)
        storage = format_named(data_format).storage
        scaled = torch.empty(X.shape, dtype=storage, device=X.device)
        wide = torch.float64 if storage == torch.float64 else torch.float32
        mean, factor = self.mean.to(X.device, wide), (1 / self.deviation).to(X.device, wide)
        for rows in _blocks(X):
            scaled[rows] = ((X[rows].to(wide) - mean) * factor).to(storage)
        return scaled

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


def scaling_for(X: Any, options: FitOptions, comm: Communicator, first: int, n_features: int) -> Scaling | None:
    """The scaling of a rank's columns, if they are to be scaled. All ranks call this.

    X                  a tensor, a CSR matrix, or `Columns`
    first, n_features  of the rank's first column, and of all ranks' columns
    """
    if options.standardize is False:
        return None
    if comm.peers.size > 1 and isinstance(X, Columns):
        return None  # each team has rows of its own, and would scale by those
    X, spread = as_matrix(X), None
    if options.standardize == AUTO:
        sizes = gather_columns(column_sizes(X)[None], first, n_features, comm)
        if not bool(sizes.isfinite().all()):
            raise BadTable("X is so large that squares of its values overflow float64; divide its columns")
        sizes = sizes[sizes > 0]
        spread = float(sizes.max() / sizes.median()) if len(sizes) else 1.0
        if spread <= DIFFER:
            return None
    found = Scaling.of(X, centre=options.fit_intercept)
    return Scaling(found.mean, found.deviation, spread)


def column_sizes(X: Any) -> torch.Tensor:
    """Root mean squares of the columns."""
    m, n = X.shape
    squares = torch.zeros(n, dtype=torch.float64)
    if isinstance(X, torch.Tensor | MappedColumns):
        for part in _parts(X):
            squares += part.square().sum(0).cpu()
    else:
        for j, x in _stored(X):
            squares.index_add_(0, j, x.square())
    return torch.sqrt(squares / max(1, m))


def _blocks(X: Any) -> Iterator[slice]:
    m, n = X.shape
    step = max(1, CHUNK_VALUES // max(1, n))
    for first in range(0, m, step):
        yield slice(first, min(first + step, m))


def _parts(X: Any) -> Iterator[torch.Tensor]:
    """Rows of a dense X in float64, some at a time."""
    for rows in _blocks(X):
        yield X[rows].double() if isinstance(X, torch.Tensor) else X.between(rows, torch.float64).Y


def _moments(X: Any) -> tuple[torch.Tensor, torch.Tensor]:
    mean = sum(part.sum(0) for part in _parts(X)) / X.shape[0]
    variance = sum((part - mean).square().sum(0) for part in _parts(X)) / X.shape[0]
    return mean.cpu(), variance.cpu()


def _sparse_moments(X: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Σ x / m and (Σ (x − mean)² − (Σ (x − mean))² / m) / m, where values that are not stored are zeros.

    The second term of the variance would be zero, were the mean not rounded.
    """
    m = X.shape[0]
    stored, total, from_mean, squares = torch.zeros(4, X.shape[1], dtype=torch.float64)
    for j, x in _stored(X):
        stored.index_add_(0, j, torch.ones_like(x))
        total.index_add_(0, j, x)
    mean, zeros = total / m, m - stored
    for j, x in _stored(X):
        from_mean.index_add_(0, j, x - mean[j])
        squares.index_add_(0, j, (x - mean[j]).square())
    from_mean -= zeros * mean
    squares += zeros * mean.square()
    return mean, ((squares - from_mean.square() / m) / m).clamp(min=0)


def _stored(X: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Columns and values of what a CSR matrix stores, some at a time."""
    for first in range(0, len(X.data), CHUNK_VALUES):
        part = slice(first, first + CHUNK_VALUES)
        yield torch.from_numpy(X.indices[part]).long(), torch.from_numpy(X.data[part]).double()
