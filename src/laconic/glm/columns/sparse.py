"""Sparse columns, on the CPU."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from laconic.glm.columns.base import Columns, Rows
from laconic.glm.precision import Precision
from laconic.kernels.glm import Batches, Weights

CSR = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Compressed sparse rows: values, their columns (int32), and where each row begins (int64)."""


@dataclass(frozen=True, slots=True)
class SparseRows(Rows):
    """Some rows of n sparse columns; nothing but the Gram matrix becomes dense."""

    matrix: CSR
    n: int

    def margins(self, x: torch.Tensor) -> torch.Tensor:
        from laconic.kernels.cpu import sparse

        return sparse.margins(self.matrix, x)

    def gram(self, cuts: np.ndarray, precision: Precision, out: torch.Tensor) -> None:
        from laconic.kernels.cpu import sparse

        values, columns, begins = self.matrix
        accumulate = precision.format("gram_accumulate")
        operand = precision.format("gram_operand").round(values).to(accumulate.storage).to(out.dtype)
        sparse.gram((operand, columns, begins), cuts, self.n, out)
        out.copy_(accumulate.round(out))

    def batch_grams(self, n_batches: int) -> torch.Tensor:
        from laconic.kernels.cpu import sparse

        return sparse.batch_grams(self.matrix, self.n, n_batches)

    def combine(self, p: torch.Tensor, precision: Precision) -> torch.Tensor:
        from laconic.kernels.cpu import sparse

        update, (values, columns, begins) = precision.format("update"), self.matrix
        return sparse.combine((update.round(values), columns, begins), update.round(p), self.n)


class SparseColumns(Columns):
    """A matrix of compressed sparse rows (CSR), on the CPU."""

    def __init__(self, values: torch.Tensor, columns: torch.Tensor, begins: torch.Tensor, n: int) -> None:
        self.matrix: CSR = (values, columns, begins)
        self.m, self.n = len(begins) - 1, n

    @classmethod
    def of(cls, X: Any, dtype: torch.dtype = torch.float32) -> "SparseColumns":
        """From a SciPy matrix in CSR form, values stored as `dtype`."""
        values = torch.from_numpy(np.ascontiguousarray(X.data)).to(dtype)
        columns = torch.from_numpy(np.ascontiguousarray(X.indices, dtype=np.int32))
        begins = torch.from_numpy(np.ascontiguousarray(X.indptr, dtype=np.int64))
        return cls(values, columns, begins, X.shape[1])

    @property
    def device(self) -> torch.device:
        return self.matrix[0].device

    @property
    def compiled(self) -> bool:
        return self.matrix[0].dtype != torch.float16 and self.n > 0

    def take(self, rows: np.ndarray, dtype: torch.dtype) -> SparseRows:
        from laconic.kernels.cpu import sparse

        values, columns, begins = self.matrix
        if values.dtype == torch.float16:
            values = values.float()
        return SparseRows(sparse.take((values, columns, begins), rows, dtype), self.n)

    def sgd(self, batches: Batches, code: int | None, weights: Weights) -> float:
        from laconic.kernels.cpu import sparse

        return sparse.sgd(self.matrix, batches, code, weights)
