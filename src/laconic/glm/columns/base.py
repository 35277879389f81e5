"""A rank's block of the columns of the input matrix, and rows taken from it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import torch

from laconic.glm.precision import Precision
from laconic.kernels.sgd import Batches, Weights

CHUNK_VALUES = 2**20
"""Values widened at a time when all rows are passed over."""


class Rows(ABC):
    """Y, some rows of a block (k, n), widened to the carrier's type."""

    @abstractmethod
    def margins(self, x: torch.Tensor) -> torch.Tensor:
        """Y xᵀ for x (C, n): (k, C)."""

    @abstractmethod
    def gram(self, cuts: np.ndarray, precision: Precision, out: torch.Tensor) -> None:
        """The strictly lower block triangle of Y Yᵀ into `out`, laid out as in `kernels.recurrence.Block`."""

    @abstractmethod
    def batch_grams(self, n_batches: int) -> torch.Tensor:
        """Y_j Y_jᵀ of equal batches j of the rows, (n_batches, b, b), in the type of Y."""

    @abstractmethod
    def combine(self, p: torch.Tensor, precision: Precision) -> torch.Tensor:
        """p Y for p (C, k): (C, n)."""


class Columns(ABC):
    """A_p, (m, n_p), as stored; `n` may be 0."""

    m: int
    n: int

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where it lies."""

    @abstractmethod
    def take(self, rows: np.ndarray, dtype: torch.dtype) -> Rows:
        """Some rows, in any order, widened."""

    @abstractmethod
    def sgd(self, batches: Batches, code: int | None, weights: Weights) -> float:
        """A run of SGD iterations in one process by a compiled kernel; returns Σ w φ."""

    @property
    @abstractmethod
    def compiled(self) -> bool:
        """Whether `sgd` can run on it."""

    def margins(self, x: torch.Tensor, rows: np.ndarray | None = None) -> torch.Tensor:
        """A xᵀ over all rows, or those asked for, a chunk at a time: (m, C)."""
        parts = [self.take(part, x.dtype).margins(x) for part in self._chunks(rows)]
        return torch.cat(parts) if parts else torch.empty(0, x.shape[0], dtype=x.dtype)

    def _chunks(self, rows: np.ndarray | None) -> Iterator[np.ndarray]:
        rows = np.arange(self.m) if rows is None else rows
        step = max(1, CHUNK_VALUES // max(1, self.n))
        for first in range(0, len(rows), step):
            yield rows[first : first + step]
