"""The interface of a rank's columns of the input matrix, and of rows taken from them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import torch

from laconic.glm.precision import Precision
from laconic.kernels.glm import Batches, Weights

CHUNK_VALUES = 2**20
"""Values widened at a time by a product with all rows."""


class Rows(ABC):
    """Some rows Y (k, n) of a rank's columns, widened to the type that the arithmetic runs in."""

    @abstractmethod
    def margins(self, x: torch.Tensor) -> torch.Tensor:
        """Y xᵀ for x (C, n): (k, C)."""

    @abstractmethod
    def gram(self, cuts: np.ndarray, precision: Precision, out: torch.Tensor) -> None:
        """Write the strictly lower block triangle of Y Yᵀ to `out`, laid out as in `kernels.glm.Block`."""

    @abstractmethod
    def batch_grams(self, n_batches: int) -> torch.Tensor:
        """Y_j Y_jᵀ of equal batches j of the rows, (n_batches, b, b), in the type of Y."""

    @abstractmethod
    def combine(self, p: torch.Tensor, precision: Precision) -> torch.Tensor:
        """p Y for p (C, k): (C, n)."""


class Columns(ABC):
    """The columns A_p (m, n_p) of rank p, as stored.

    m  rows of the whole matrix
    n  columns of this rank, which may be 0
    """

    m: int
    n: int

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the arithmetic is done."""

    @abstractmethod
    def take(self, rows: np.ndarray, dtype: torch.dtype) -> Rows:
        """Some rows, in any order, widened to `dtype`."""

    @abstractmethod
    def sgd(self, batches: Batches, code: int | None, weights: Weights) -> float:
        """Run SGD iterations in one process by a compiled kernel; code is a `LinkCode`. Returns Σ w φ."""

    @property
    @abstractmethod
    def compiled(self) -> bool:
        """Whether `sgd` can run on these columns."""

    def margins(self, x: torch.Tensor, rows: np.ndarray | None = None) -> torch.Tensor:
        """A xᵀ over all rows, or those asked for, a chunk at a time: (m, C)."""
        parts = [self.take(part, x.dtype).margins(x) for part in self._chunks(rows)]
        return torch.cat(parts) if parts else torch.empty(0, x.shape[0], dtype=x.dtype)

    def _chunks(self, rows: np.ndarray | None) -> Iterator[np.ndarray]:
        rows = np.arange(self.m) if rows is None else rows
        step = max(1, CHUNK_VALUES // max(1, self.n))
        for first in range(0, len(rows), step):
            yield rows[first : first + step]
