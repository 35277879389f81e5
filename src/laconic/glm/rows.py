"""Rows taken from a rank's columns of the input matrix: dense, as they are stored, or sparse."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise

import numpy as np
import torch

from laconic.glm.precision import Precision
from laconic.kernels.formats import Format
from laconic.kernels.glm import CSR

CHAIN = 4096
"""Rows that matrix units add up in one accumulator of float32, which they do not round to nearest."""
DENSITY = 0.2
"""Share of a sparse X that is not zero from which on products of all its rows are faster as those of a dense one."""
SYMMETRIC = 32
"""Columns from which on AᵀdA is faster as BᵀB, of which NumPy computes one half."""
OUTER_VALUES, OUTER_ROWS = 2**18, 256
"""Products of rows and outputs that are formed at a time, so that they stay in cache, if that leaves so many rows."""
ACCUMULATOR_COLUMNS = 32
"""A narrow accumulator is emulated as tensor cores have it: exact products of this many columns are summed in the
carrier's type, then added to the accumulator, which is rounded."""


class SampledRows(ABC):
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
    def combine(self, p: torch.Tensor, precision: Precision | None = None) -> torch.Tensor:
        """p Y for p (C, k): (C, n). Operands are rounded as the update of a precision is; with None they are not."""

    def add_combination(self, p: torch.Tensor, precision: Precision | None, out: torch.Tensor) -> None:
        """out += p Y, for out (C, n) in the type of Y or a wider one."""
        out += self.combine(p, precision)

    def add_moments(self, origin: torch.Tensor, total: torch.Tensor, squares: torch.Tensor) -> None:
        """Add the sums (n,) over the rows of Y − origin, and of its squares."""
        d = self.dense() - origin
        total += d.sum(0)
        squares += d.square_().sum(0)

    def add_gram(self, h: torch.Tensor, total: torch.Tensor) -> None:
        """Add Σ_i h_i[c] a_i a_iᵀ, with 1 for the intercept at the end of each row a, to total[c, :, c].

        h      (k, C)
        total  (C, n + 1, C, n + 1)
        """
        A = self.dense()
        for c, own in enumerate(h.T[:, :, None]):
            if len(total[c]) > SYMMETRIC and bool((own >= 0).all()):
                B = own.sqrt() * A
                total[c, :-1, c, :-1] += product(B.T, B)
            else:
                total[c, :-1, c, :-1] += product(A.T, own * A)
            total[c, :-1, c, -1] += (border := (own.T @ A)[0])
            total[c, -1, c] += torch.cat([border, own.sum()[None]])

    def add_outer(self, q: torch.Tensor, total: torch.Tensor) -> None:
        """Add Σ_i (q_i ⊗ a_i)(q_i ⊗ a_i)ᵀ, with the same rows a, to all of total; q (k, C)."""
        total += outer_products(torch.cat([self.dense(), q.new_ones(len(q), 1)], 1), q)

    @abstractmethod
    def squared(self) -> "SampledRows":
        """The squares of the values, at their places."""

    @abstractmethod
    def dense(self) -> torch.Tensor:
        """Y itself."""


@dataclass(frozen=True, slots=True)
class DenseRows(SampledRows):
    """Y (k, n), float32 or float64, from a matrix stored as `stored`."""

    Y: torch.Tensor
    stored: torch.dtype | None = None

    def margins(self, x: torch.Tensor) -> torch.Tensor:
        return product(self.Y, x.T)

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

    def combine(self, p: torch.Tensor, precision: Precision | None = None) -> torch.Tensor:
        if precision is None:
            return product(p, self.Y)
        update = precision.format("update")
        return product(update.round(p), update.round(self.Y))

    def add_combination(self, p: torch.Tensor, precision: Precision | None, out: torch.Tensor) -> None:
        rounded = precision is not None and precision.format("update").dtype != torch.float32
        if out.dtype == self.Y.dtype == torch.float32 and out.is_contiguous() and not rounded:
            # a single row is contiguous with any stride, and cuBLAS takes that for the row's length; a view's is right
            out.view(out.shape).addmm_(p.view(p.shape), self.Y)
        else:
            out += self.combine(p, precision)

    def squared(self) -> "DenseRows":
        return DenseRows(self.Y.square())

    def dense(self) -> torch.Tensor:
        return self.Y


class RoughRows(DenseRows):
    """Y (k, n), float32, for products that need not have all digits of that: by NumPy, as of float64."""

    def margins(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(array_product(self.Y.numpy(), x.numpy().T))

    def combine(self, p: torch.Tensor, precision: Precision | None = None) -> torch.Tensor:
        return torch.from_numpy(array_product(p.numpy(), self.Y.numpy()))


class StoredRows(DenseRows):
    """Y (k, n) as it is stored: products in float64, with one vector by kernels that widen values on the way."""

    def margins(self, x: torch.Tensor) -> torch.Tensor:
        from laconic.kernels.cpu import dense  # Numba is loaded where it is first needed

        return dense.margins(self.Y, x[0])[:, None] if len(x) == 1 else product(self.dense(), x.T)

    def combine(self, p: torch.Tensor, precision: Precision | None = None) -> torch.Tensor:
        return DenseRows(self.dense()).combine(p, precision)

    def add_combination(self, p: torch.Tensor, precision: Precision | None, out: torch.Tensor) -> None:
        from laconic.kernels.cpu import dense

        if len(p) == 1 and precision is None:
            dense.add_combination(self.Y, p[0], out[0])
        else:
            out += self.combine(p, precision)

    def add_moments(self, origin: torch.Tensor, total: torch.Tensor, squares: torch.Tensor) -> None:
        from laconic.kernels.cpu import dense

        dense.add_moments(self.Y, origin, total, squares)

    def squared(self) -> DenseRows:
        return DenseRows(self.dense().square_())

    def dense(self) -> torch.Tensor:
        return self.Y.to(torch.float64, copy=True)


class HalfRows(DenseRows):
    """Y (k, n), bfloat16 on a GPU, as it is stored: products of its matrix units, as exact as those in float32.

    A float32 is the sum of three bfloat16 numbers, whose products with Y are exact, and are summed in float32.
    """

    def margins(self, x: torch.Tensor) -> torch.Tensor:
        products = torch.mm(three_parts(x).flatten(0, 1), self.Y.T, out_dtype=torch.float32)
        return products.view(3, len(x), len(self.Y)).sum(0).T

    def combine(self, p: torch.Tensor, precision: Precision | None = None) -> torch.Tensor:
        if precision is not None:
            return DenseRows(self.dense(), self.stored).combine(p, precision)
        parts, (k, n) = three_parts(p).flatten(0, 1), self.Y.shape
        chains = k // CHAIN
        whole = parts[:, : chains * CHAIN].view(len(parts), chains, CHAIN).transpose(0, 1)
        chained = torch.bmm(whole, self.Y[: chains * CHAIN].view(chains, CHAIN, n), out_dtype=torch.float32).sum(0)
        rest = torch.mm(parts[:, chains * CHAIN :], self.Y[chains * CHAIN :], out_dtype=torch.float32)
        return (chained + rest).view(3, len(p), n).sum(0)

    def add_combination(self, p: torch.Tensor, precision: Precision | None, out: torch.Tensor) -> None:
        out += self.combine(p, precision)

    def squared(self) -> DenseRows:
        return DenseRows(self.dense().square_())

    def dense(self) -> torch.Tensor:
        return self.Y.float()


def three_parts(x: torch.Tensor) -> torch.Tensor:
    """(3, …) bfloat16 that add up to x, float32, below half of its largest values and above its smallest.

    >>> x = torch.randn(1000)
    >>> bool((three_parts(x).double().sum(0) == x).all())
    True
    """
    parts = []
    for _ in range(3):
        parts.append(x.bfloat16())
        x = x - parts[-1]
    return torch.stack(parts)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a b; of float64 on a CPU as `array_product`."""
    if a.dtype == b.dtype == torch.float64 and a.device.type == "cpu":
        return torch.from_numpy(array_product(a.numpy(), b.numpy()))
    return a @ b


def array_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b; on one thread by NumPy's BLAS, which on AMD's machines is faster than torch's. On several by torch's, whose
    threads would otherwise hold cores that NumPy's wait for."""
    if torch.get_num_threads() == 1:
        with np.errstate(all="ignore"):
            found: np.ndarray = a @ b
    else:
        found = torch.mm(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    return found


def outer_products(A: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Σ_i (q_i ⊗ a_i)(q_i ⊗ a_i)ᵀ, (C, n, C, n), for A (k, n) and q (k, C)."""
    size, total = q.shape[1] * A.shape[1], A.new_zeros(q.shape[1] * A.shape[1], q.shape[1] * A.shape[1])
    step = max(OUTER_ROWS, OUTER_VALUES // max(1, size))
    for rows, factors in zip(torch.split(A, step), torch.split(q, step), strict=True):
        B = (factors[:, :, None] * rows[:, None]).flatten(1)
        total += product(B.T, B)
    return total.view(q.shape[1], A.shape[1], q.shape[1], A.shape[1])


def _narrow_product(a: torch.Tensor, b: torch.Tensor, accumulate: Format) -> torch.Tensor:
    """a bᵀ with an accumulator of fewer bits than the operands' type."""
    total = torch.zeros(len(a), len(b), dtype=a.dtype, device=a.device)
    for first in range(0, a.shape[1], ACCUMULATOR_COLUMNS):
        part = slice(first, first + ACCUMULATOR_COLUMNS)
        total = accumulate.round(total + a[:, part] @ b[:, part].T)
    return total


@dataclass(frozen=True, slots=True)
class SparseRows(SampledRows):
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
        from scipy.sparse import csr_matrix

        values, columns, begins = (t.numpy() for t in self.matrix)
        Y, b = csr_matrix((values, columns, begins), (len(begins) - 1, self.n)), (len(begins) - 1) // n_batches
        batches = [Y[j * b : (j + 1) * b] for j in range(n_batches)]
        return torch.stack([torch.from_numpy((batch @ batch.T).toarray()) for batch in batches])

    def combine(self, p: torch.Tensor, precision: Precision | None = None) -> torch.Tensor:
        out = torch.zeros(self.n, len(p), dtype=p.dtype).T
        self.add_combination(p, precision, out)
        return out

    def add_combination(self, p: torch.Tensor, precision: Precision | None, out: torch.Tensor) -> None:
        from laconic.kernels.cpu import sparse

        values, columns, begins = self.matrix
        if precision is not None:
            values, p = precision.format("update").round(values), precision.format("update").round(p)
        sparse.add_combination((values, columns, begins), p, out)

    def add_gram(self, h: torch.Tensor, total: torch.Tensor) -> None:
        if self._is_dense():
            SampledRows.add_gram(self, h, total)
            return
        for c in range(h.shape[1]):
            total[c, :, c] += self._weighted_gram(h[:, c])

    def add_outer(self, q: torch.Tensor, total: torch.Tensor) -> None:
        if self._is_dense():
            SampledRows.add_outer(self, q, total)
            return
        for d, c in combinations_with_replacement(range(q.shape[1]), 2):
            gram = self._weighted_gram(q[:, c] * q[:, d])
            total[c, :, d] += gram
            if c > d:
                total[d, :, c] += gram

    def _is_dense(self) -> bool:
        return len(self.matrix[0]) > DENSITY * (len(self.matrix[2]) - 1) * self.n

    def _weighted_gram(self, h: torch.Tensor) -> torch.Tensor:
        from laconic.kernels.cpu import sparse

        return sparse.weighted_gram(self.matrix, h.contiguous(), self.n)

    def squared(self) -> "SparseRows":
        return SparseRows((self.matrix[0].square(), *self.matrix[1:]), self.n)

    def dense(self) -> torch.Tensor:
        values, columns, begins = self.matrix
        rows = torch.repeat_interleave(torch.arange(len(begins) - 1), begins.diff())
        return values.new_zeros(len(begins) - 1, self.n).index_put_((rows, columns.long()), values, accumulate=True)
