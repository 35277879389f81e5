"""Dense columns, in the memory where they are used or in pinned memory of the host."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from laconic.glm.columns.base import Columns, Rows
from laconic.glm.precision import Precision
from laconic.kernels.formats import Format
from laconic.kernels.glm import Batches, Weights

ACCUMULATOR_COLUMNS = 32
"""A narrow accumulator is emulated as tensor cores have it: exact products of this many columns are summed in the
carrier's type, then added to the accumulator, which is rounded."""
COMPILED = (torch.float32, torch.float64, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class DenseRows(Rows):
    """Y (k, n), float32 or float64, from a matrix stored as `stored`."""

    Y: torch.Tensor
    stored: torch.dtype | None = None

    def margins(self, x: torch.Tensor) -> torch.Tensor:
        return self.Y @ x.T

    def gram(self, cuts: np.ndarray, precision: Precision, out: torch.Tensor) -> None:
        operand_format = precision.format("gram_operand")
        operand = self.Y if operand_format.dtype == self.stored else operand_format.round(self.Y)
        accumulate, begin = precision.format("gram_accumulate"), 0
        if accumulate.dtype == out.dtype and out.device.type == "cpu":
            from laconic.kernels.cpu.recurrence import gram  # Numba is loaded where it is first needed

            gram(operand, cuts, out)
            return
        for first, last in pairwise(cuts[1:]):
            block = out[begin : begin + (last - first) * first].view(last - first, first)
            begin += (last - first) * first
            if accumulate.dtype == out.dtype:
                torch.mm(operand[first:last], operand[:first].T, out=block)
            else:
                block.copy_(_narrow_product(operand[first:last], operand[:first], accumulate))

    def batch_grams(self, n_batches: int) -> torch.Tensor:
        batches = self.Y.view(n_batches, len(self.Y) // n_batches, self.Y.shape[1])
        return batches @ batches.mT

    def combine(self, p: torch.Tensor, precision: Precision) -> torch.Tensor:
        update = precision.format("update")
        return update.round(p) @ update.round(self.Y)


def _narrow_product(a: torch.Tensor, b: torch.Tensor, accumulate: Format) -> torch.Tensor:
    """a bᵀ with an accumulator of fewer bits than the operands' type."""
    total = torch.zeros(len(a), len(b), dtype=a.dtype, device=a.device)
    for first in range(0, a.shape[1], ACCUMULATOR_COLUMNS):
        part = slice(first, first + ACCUMULATOR_COLUMNS)
        total = accumulate.round(total + a[:, part] @ b[:, part].T)
    return total


class DenseColumns(Columns):
    """X (m, n): float32, float64, bfloat16 or float16; rows may lie apart, as in a slice of a memory-mapped matrix."""

    def __init__(self, X: torch.Tensor) -> None:
        if X.dim() != 2:
            raise ValueError(f"X must have two dimensions, rows and columns; got shape {tuple(X.shape)}")
        self.X = X
        self.m, self.n = X.shape

    @property
    def device(self) -> torch.device:
        return self.X.device

    @property
    def compiled(self) -> bool:
        return self.X.device.type == "cpu" and self.X.dtype in COMPILED and self.n > 0

    def take(self, rows: np.ndarray, dtype: torch.dtype) -> DenseRows:
        index = torch.from_numpy(rows).to(self.X.device)
        return DenseRows(self.X.index_select(0, index).to(dtype), self.X.dtype)

    def sgd(self, batches: Batches, code: int | None, weights: Weights) -> float:
        from laconic.kernels.cpu import sgd  # Numba is loaded where it is first needed

        return sgd.sgd(self.X, batches, code, weights)


class PinnedColumns(DenseColumns):
    """X (m, n) in page-locked memory of the host, for a GPU that it may not fit into.

    The GPU reads rows from there by itself, and all arithmetic is done on it. X that is not page-locked is copied into
    such memory, once.
    """

    def __init__(self, X: torch.Tensor, device: "torch.device | str" = "cuda") -> None:
        if X.device.type != "cpu":
            raise ValueError(f"X is on {X.device} already: use DenseColumns")
        super().__init__(X if X.is_pinned() and X.is_contiguous() else X.contiguous().pin_memory())
        self._device = torch.device(device)

    @property
    def device(self) -> torch.device:
        return self._device

    def take(self, rows: np.ndarray, dtype: torch.dtype) -> DenseRows:
        from laconic.kernels.gpu.glm import gather_rows

        index = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.int32)).to(self._device)
        Y = torch.empty(len(rows), self.n, dtype=self.X.dtype, device=self._device)
        gather_rows(self.X, index, Y)
        return DenseRows(Y.to(dtype), self.X.dtype)
