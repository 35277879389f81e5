"""A rank's columns of the input matrix: dense, pinned beside a GPU, mapped from a file, or sparse."""

import mmap
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import starmap
from typing import Any, TypeVar

import numpy as np
import torch

from laconic.errors import InvalidOption, Option
from laconic.glm.precision import AUTO
from laconic.glm.rows import DENSITY, DenseRows, HalfRows, SampledRows, SparseRows, StoredRows
from laconic.kernels import require_gpu
from laconic.kernels.formats import FORMAT_OF, FORMATS
from laconic.kernels.glm import CSR, Batches, Weights
from laconic.kernels.threads import in_order, serial_libraries

R = TypeVar("R")

CHUNK_VALUES = 2**20
"""Values widened at a time by a product with all rows."""
LEAST_VALUES = 16
"""For which a row of a sparse X counts at least, since it has margins as well."""
SHARE = 0.7
"""Of the GPU's free memory that a matrix may take; a larger one stays in the host's memory, page-locked."""
RESIDENT_BYTES, FAULT_BYTES = 1 << 25, 1 << 21
"""Of a mapped file that are in memory at a time, and that one access may bring in: a huge page."""
WIDE_PRODUCTS = 2**28
"""Products up to which a basis of the rows is found where these are fewer than columns."""
COMPILED = (torch.float32, torch.float64, torch.bfloat16)
COMPILED_VALUES = 2**22
"""Values of a dense X from which on compiled kernels, which take a moment to load, read its rows as they are stored."""


class _Scratch(threading.local):
    """Memory of a thread for the rows that it widens: memory that is taken anew for each block is slower than that."""

    def __init__(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)

    def widened(self, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The rows in another type, until other rows are widened on this thread."""
        n_bytes = rows.numel() * dtype.itemsize
        if len(self.memory) < n_bytes:
            self.memory = torch.empty(n_bytes, dtype=torch.uint8)
        return self.memory[:n_bytes].view(dtype).view(rows.shape).copy_(rows)


_scratch = _Scratch()


class Columns(ABC):
    """The columns A_p (m, n_p) of rank p, as stored.

    m         rows of the whole matrix
    n         columns of this rank, which may be 0
    dtype     of the values as stored
    device    where the arithmetic is done
    compiled  whether `sgd` can run on these columns
    row_values  values of a row as stored, by which blocks of rows are cut
    in_place  whether rows can be taken as they are stored, with products in float64, on a GPU in float32
    known_moments  mean and deviation of each column, once they were asked for (`scaling.moments`): X must not change
    """

    m: int
    n: int
    dtype: torch.dtype
    device: torch.device
    compiled: bool
    row_values: int
    in_place: bool = False
    known_moments: tuple[torch.Tensor, torch.Tensor] | None = None

    @abstractmethod
    def take(self, rows: np.ndarray, dtype: torch.dtype | None) -> SampledRows:
        """Some rows, in any order, widened to `dtype`; None for rows as stored, where that can be."""

    @abstractmethod
    def stored(self, dtype: torch.dtype) -> "Columns":
        """The same columns with their values in `dtype`; themselves where they have it, and rows lie as they should."""

    @abstractmethod
    def sgd(self, batches: Batches, code: int | None, weights: Weights) -> float:
        """Run SGD iterations in one process by a compiled kernel; code is a `LinkCode`. Returns Σ w φ."""

    def margins(self, x: torch.Tensor, rows: np.ndarray | None = None) -> torch.Tensor:
        """A xᵀ over all rows, or those asked for, a chunk at a time: (m, C)."""
        z = torch.empty(self.m if rows is None else len(rows), x.shape[0], dtype=x.dtype, device=x.device)

        def work(part: slice, Y: SampledRows) -> None:
            z[part] = Y.margins(x)

        for _ in self.map_blocks(work, rows, x.dtype):
            pass
        return z

    def blocks(
        self, rows: np.ndarray | None, dtype: torch.dtype | None, step: int | None = None
    ) -> Iterator[tuple[slice, SampledRows]]:
        """All rows, or those asked for, `step` at a time, as `take` has them, with their places among them."""
        for part in self._parts(rows, step):
            yield part, self._at(part, rows, dtype)

    def map_blocks(
        self,
        work: Callable[[slice, SampledRows], R],
        rows: np.ndarray | None,
        dtype: torch.dtype | None,
        step: int | None = None,
    ) -> Iterator[R]:
        """work(places, rows) of each of the `blocks`, in their order: on the CPU on all threads, a block on each.

        What `work` returns may not share memory with the rows.
        """
        if self.device.type != "cpu":
            yield from starmap(work, self.blocks(rows, dtype, step))
            return
        with serial_libraries() as n_threads:
            parts = self._parts(rows, step)
            yield from in_order(lambda part: work(part, self._lent(part, rows, dtype)), parts, n_threads)

    def _parts(self, rows: np.ndarray | None, step: int | None) -> list[slice]:
        step = step or max(1, CHUNK_VALUES // max(1, self.row_values))
        m = self.m if rows is None else len(rows)
        return [slice(first, min(first + step, m)) for first in range(0, m, step)]

    def _at(self, part: slice, rows: np.ndarray | None, dtype: torch.dtype | None) -> SampledRows:
        return self.between(part, dtype) if rows is None else self.take(rows[part], dtype)

    def _lent(self, part: slice, rows: np.ndarray | None, dtype: torch.dtype | None) -> SampledRows:
        """The same, until the next call on this thread."""
        return self._at(part, rows, dtype)

    def between(self, part: slice, dtype: torch.dtype | None) -> SampledRows:
        """Consecutive rows, as `take` has them."""
        return self.take(np.arange(part.start, part.stop), dtype)


class DenseColumns(Columns):
    """X (m, n): float32, float64, bfloat16 or float16; rows may lie apart, as in a slice of a memory-mapped matrix."""

    def __init__(self, X: torch.Tensor) -> None:
        if X.dim() != 2:
            raise ValueError(f"X must have two dimensions, rows and columns; got shape {tuple(X.shape)}")
        self.X = X
        self.m, self.n = X.shape
        self.dtype, self.device = X.dtype, X.device
        self.compiled, self.row_values = X.device.type == "cpu" and X.dtype in COMPILED and self.n > 0, self.n
        halves = X.device.type == "cuda" and X.dtype == torch.bfloat16
        self.in_place = (self.compiled or halves) and X.is_contiguous() and X.numel() >= COMPILED_VALUES

    def take(self, rows: np.ndarray, dtype: torch.dtype | None) -> DenseRows:
        index = torch.from_numpy(rows).to(self.X.device)
        return _rows(self.X.index_select(0, index), dtype, self.X.dtype)

    def between(self, part: slice, dtype: torch.dtype | None) -> DenseRows:
        return _rows(self.X[part].to(self.device), dtype, self.X.dtype)

    def _lent(self, part: slice, rows: np.ndarray | None, dtype: torch.dtype | None) -> SampledRows:
        if dtype is None or self.dtype == dtype:
            return self._at(part, rows, dtype)
        return DenseRows(_scratch.widened(self._at(part, rows, self.dtype).dense(), dtype), self.dtype)

    def stored(self, dtype: torch.dtype) -> "DenseColumns":
        if dtype == self.dtype and (self.n <= 1 or self.X.stride(1) == 1):
            return self
        return DenseColumns(self.X.to(dtype, copy=True, memory_format=torch.contiguous_format))

    def sgd(self, batches: Batches, code: int | None, weights: Weights) -> float:
        from laconic.kernels.cpu import sgd  # Numba is loaded where it is first needed

        return sgd.sgd(self.X, batches, code, weights)


def _rows(Y: torch.Tensor, dtype: torch.dtype | None, stored: torch.dtype) -> DenseRows:
    if dtype is None:
        return HalfRows(Y) if Y.is_cuda else StoredRows(Y)
    return DenseRows(Y.to(dtype), stored)


class PinnedColumns(DenseColumns):
    """X (m, n) in page-locked memory of the host, for a GPU that it may not fit into.

    The GPU reads rows from there by itself, and all arithmetic is done on it. X that is not page-locked is copied into
    such memory, once.
    """

    def __init__(self, X: torch.Tensor, device: "torch.device | str" = "cuda") -> None:
        if X.device.type != "cpu":
            raise ValueError(f"X is on {X.device} already: use DenseColumns")
        super().__init__(X if X.is_pinned() and X.is_contiguous() else X.contiguous().pin_memory())
        self.device, self.in_place = torch.device(device), False

    def take(self, rows: np.ndarray, dtype: torch.dtype | None) -> DenseRows:
        from laconic.kernels.gpu.glm import gather_rows

        index = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.int32)).to(self.device)
        Y = torch.empty(len(rows), self.n, dtype=self.X.dtype, device=self.device)
        gather_rows(self.X, index, Y)
        return _rows(Y, dtype, self.X.dtype)


class MappedColumns(DenseColumns):
    """X (m, n) in a mapped file that may be larger than memory: what was read of it is given back to the system.

    Rows are gathered in the order in which they lie, and for SGD many batches at a time; they are scaled as they are
    taken, since a scaled copy would have to be in memory. Nobody may write to X.

    mapped   the map that X lies in
    scaling  mean and factor (n,) each, where columns are (X − mean) · factor
    dtype    in which rows are kept
    """

    def __init__(
        self,
        X: torch.Tensor,
        mapped: mmap.mmap,
        scaling: tuple[torch.Tensor, torch.Tensor] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(X)
        self.mapped, self.scaling, self.dtype = mapped, scaling, X.dtype if dtype is None else dtype
        self.compiled = self.dtype in COMPILED and self.n > 0
        self.in_place = self.compiled and X.is_contiguous() and X.numel() >= COMPILED_VALUES
        self.row_bytes, self.shape, self.n_read = X.stride(0) * X.element_size(), (self.m, self.n), 0

    def take(self, rows: np.ndarray, dtype: torch.dtype | None) -> DenseRows:
        order, Y = np.argsort(rows, kind="stable"), torch.empty(len(rows), self.n, dtype=self.dtype)
        place = rows[order] * self.row_bytes // RESIDENT_BYTES
        for part in np.split(order, np.flatnonzero(np.diff(place)) + 1):
            Y[torch.from_numpy(part)] = self._kept(self.X.index_select(0, torch.from_numpy(rows[part])))
            self._release(min(RESIDENT_BYTES, len(part) * (self.row_bytes + FAULT_BYTES)))
        return _rows(Y, dtype, self.dtype)

    def between(self, part: slice, dtype: torch.dtype | None) -> DenseRows:
        Y = self._kept(self.X[part])
        self._release(len(Y) * self.row_bytes)
        if dtype is not None:
            Y = Y.to(dtype, copy=Y.data_ptr() == self.X[part].data_ptr())
        return _rows(Y, dtype, self.dtype)

    def stored(self, dtype: torch.dtype) -> "MappedColumns":
        return self if dtype == self.dtype else MappedColumns(self.X, self.mapped, self.scaling, dtype)

    def sgd(self, batches: Batches, code: int | None, weights: Weights) -> float:
        from laconic.kernels.cpu import sgd  # Numba is loaded where it is first needed

        step = max(1, RESIDENT_BYTES // (batches.size * self.n * self.dtype.itemsize))
        loss = 0.0
        for first in range(0, len(batches.rates), step):
            part = slice(first, first + step)
            rows = batches.rows[first * batches.size : (first + step) * batches.size]
            index = torch.from_numpy(rows)
            own = replace(
                batches,
                rows=np.arange(len(rows)),
                y=batches.y[index],
                w=batches.w[index],
                offset=batches.offset[index] if len(batches.offset) else batches.offset,
                rates=batches.rates[part],
                mix=batches.mix[part],
            )
            loss += sgd.sgd(self.take(rows, self.dtype).Y, own, code, weights)
        return loss

    def _kept(self, rows: torch.Tensor) -> torch.Tensor:
        if self.scaling is None:
            return rows.to(self.dtype)
        wide = torch.float64 if self.dtype == torch.float64 else torch.float32
        mean, factor = (t.to(wide) for t in self.scaling)
        return ((rows.to(wide) - mean) * factor).to(self.dtype)

    def _release(self, n_bytes: int) -> None:
        """Count what was read; drop pages from this process, not from the system's cache, where they are too many."""
        self.n_read += n_bytes
        if self.n_read >= RESIDENT_BYTES:
            self.mapped.madvise(mmap.MADV_DONTNEED)
            self.n_read = 0


class SparseColumns(Columns):
    """A matrix of compressed sparse rows (CSR), on the CPU."""

    def __init__(self, values: torch.Tensor, columns: torch.Tensor, begins: torch.Tensor, n: int) -> None:
        self.matrix: CSR = (values, columns, begins)
        self.m, self.n = len(begins) - 1, n
        self.dtype, self.device = values.dtype, values.device
        self.compiled = values.dtype != torch.float16 and n > 0
        self.row_values = min(n, max(LEAST_VALUES, len(values) // max(1, self.m)))

    @classmethod
    def of(cls, X: Any, dtype: torch.dtype | None = None) -> "SparseColumns":
        """From a SciPy matrix in CSR form, values stored as `dtype`; by default float64 if they are, else float32."""
        own = torch.float64 if X.dtype == np.float64 else torch.float32
        values = torch.from_numpy(np.ascontiguousarray(X.data)).to(dtype or own)
        columns = torch.from_numpy(np.ascontiguousarray(X.indices, dtype=np.int32))
        begins = torch.from_numpy(np.ascontiguousarray(X.indptr, dtype=np.int64))
        return cls(values, columns, begins, X.shape[1])

    def take(self, rows: np.ndarray, dtype: torch.dtype | None) -> SparseRows:
        from laconic.kernels.cpu import sparse

        values, columns, begins = self.matrix
        if values.dtype == torch.float16:
            values = values.float()
        return SparseRows(sparse.take((values, columns, begins), rows, dtype or values.dtype), self.n)

    def between(self, part: slice, dtype: torch.dtype | None) -> SparseRows:
        values, columns, begins = self.matrix
        own = begins[part.start : part.stop + 1]
        first, last = int(own[0]), int(own[-1])
        return SparseRows((values[first:last].to(dtype or values.dtype), columns[first:last], own - first), self.n)

    def stored(self, dtype: torch.dtype) -> "SparseColumns":
        values, index, begins = self.matrix
        return self if dtype == self.dtype else SparseColumns(values.to(dtype), index, begins, self.n)

    def sgd(self, batches: Batches, code: int | None, weights: Weights) -> float:
        from laconic.kernels.cpu import sparse

        return sparse.sgd(self.matrix, batches, code, weights)


def is_wide(columns: Columns, m: int) -> bool:
    """Whether columns are more than the m rows to fit to, and a basis of these is cheap: (n, m), and as good for a fit
    with a penalty of squares, whose weights are a combination of rows."""
    n = columns.n
    dense = not isinstance(columns, SparseColumns) or len(columns.matrix[0]) >= DENSITY * columns.m * n
    near = columns.device.type == "cpu" and not isinstance(columns, MappedColumns)
    return near and dense and m < n and m * m * n <= WIDE_PRODUCTS


def as_columns(X: Any, data_format: str | None = None) -> Columns:
    """A tensor, an array, a SciPy matrix in CSR form or `Columns`, stored in a format.

    data_format  a dense X keeps its own where this holds every value of it; None to store X as it is
    """
    columns: Columns = X
    if not isinstance(X, Columns):
        dense = isinstance(X, torch.Tensor | np.ndarray)
        columns = DenseColumns(torch.as_tensor(X)) if dense else SparseColumns.of(X)
    if data_format is None:
        return columns
    wanted = FORMATS[data_format]
    keeps = isinstance(columns, DenseColumns) and wanted.precision >= FORMAT_OF[columns.dtype].precision
    return columns.stored(columns.dtype if keeps else wanted.storage)


def placed(columns: Columns, device: str, n_ranks: int = 1) -> Columns:
    """The columns in the memory that `device` says.

    "auto" is a GPU where there is one and it can be used: one process, a dense X; else where they are.

    >>> placed(DenseColumns(torch.ones(2, 2)), "cpu").device
    device(type='cpu')
    """
    if device == AUTO:
        usable = torch.cuda.is_available() and n_ranks == 1 and isinstance(columns, DenseColumns)
        device = "cuda" if usable else str(columns.device)
    wanted = torch.device(device)
    if wanted == columns.device:
        return columns
    if not isinstance(columns, DenseColumns):
        why = " needs a dense X, and this one is sparse: pass it dense (a LIBSVM file with "
        raise InvalidOption(
            Option("device", device), why, Option("dense", True), "), or leave ", Option("device"), " out"
        )
    require_gpu(device)
    if wanted.type == "cuda" and columns.X.device.type == "cpu":
        free, _ = torch.cuda.mem_get_info(wanted)
        if columns.X.numel() * columns.X.element_size() > SHARE * free:
            return PinnedColumns(columns.X, wanted)
    return DenseColumns(columns.X.to(wanted))
