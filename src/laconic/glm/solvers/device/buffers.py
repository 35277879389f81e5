"""Device memory of the fused solvers: a segment's targets and step sizes, and what a block leaves between its kernels.

All of it stays at the same addresses, so that a captured CUDA graph finds the next segment where the last one was.
"""

from dataclasses import dataclass

import numpy as np
import torch

from laconic.glm.columns import DenseColumns
from laconic.glm.problem import Problem
from laconic.glm.solvers.state import Segment
from laconic.kernels.gpu.glm import GramPlan, MarginPlan, gram_buffer


def matrix(problem: Problem) -> torch.Tensor:
    """X as stored."""
    if not isinstance(problem.columns, DenseColumns):
        raise TypeError(f"expected dense columns, got {type(problem.columns).__name__}")
    return problem.columns.X


class SegmentBuffers:
    """A segment of an epoch on the device: all about its rows but the rows themselves.

    rows    (capacity + spare,) int32 numbers of the segment's rows in the matrix
    y, w    (capacity,) float32 targets and weights in that order; w None for ones
    offset  (capacity, C) float32, or None
    rates   (n_batches,) float32 step sizes; mix likewise, or None
    """

    def __init__(self, problem: Problem, capacity: int, n_batches: int, spare: int, *, averages: bool) -> None:
        self.problem, self.capacity = problem, capacity
        device = problem.columns.device

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.float32, device=device)

        self.rows = torch.zeros(capacity + spare, dtype=torch.int32, device=device)
        self.y = zeros(capacity)
        self.w = None if problem.weights is None else zeros(capacity)
        self.offset = None if problem.offset is None else zeros(capacity, problem.family.n_outputs)
        self.rates, self.mix = zeros(n_batches), zeros(n_batches) if averages else None

    def load(self, segment: Segment) -> None:
        """Copy a segment to the device; it has as many rows as the buffers hold, or fewer."""
        k, problem = len(segment.rows), self.problem
        self.rows[:k].copy_(torch.from_numpy(np.ascontiguousarray(segment.rows, dtype=np.int32)))
        taken = self.rows[:k]
        torch.index_select(problem.y, 0, taken, out=self.y[:k])
        if self.w is not None and problem.weights is not None:
            torch.index_select(problem.weights, 0, taken, out=self.w[:k])
        if self.offset is not None and problem.offset is not None:
            torch.index_select(problem.offset, 0, taken, out=self.offset[:k])
        n = segment.n_batches
        self.rates[:n].copy_(torch.from_numpy(segment.rates.astype(np.float32)))
        if self.mix is not None:
            self.mix[:n].copy_(torch.from_numpy(segment.mix.astype(np.float32)))


class StepSizes:
    """The step sizes of a segment on the device, and their products over the batches of a block of s.

    each  (M, n_batches, 3) float32 of M models: c = η g, ρ = 1 − η λ, and d = c Π ρ over the block's later batches
    ends  (M, n_blocks, 2) float32: Π ρ and l1 Σ η of each block
    """

    def __init__(self, n_models: int, n_batches: int, s: int, device: torch.device) -> None:
        self.s = s
        self.each = torch.zeros(n_models, n_batches, 3, device=device)
        self.ends = torch.zeros(n_models, -(-n_batches // s), 2, device=device)

    def load(self, model: int, rates: np.ndarray, scales: np.ndarray, l2: float, l1: float) -> None:
        """Copy a model's η and g of a segment's batches to the device; there are as many as fit, or fewer."""
        n, n_blocks = len(rates), -(-len(rates) // self.s)
        eta = np.zeros((n_blocks, self.s))
        eta.flat[:n] = rates
        keep = 1.0 - eta * l2
        later = np.ones_like(keep)
        later[:, :-1] = np.cumprod(keep[:, :0:-1], 1)[:, ::-1]
        c = rates * scales
        each = np.stack([c, keep.flat[:n], c * later.flat[:n]], 1)
        ends = np.stack([keep.prod(1), l1 * eta.sum(1)], 1)
        self.each[model, :n].copy_(torch.from_numpy(each.astype(np.float32)))
        self.ends[model, :n_blocks].copy_(torch.from_numpy(ends.astype(np.float32)))


@dataclass(frozen=True, slots=True)
class BlockWorkspace:
    """What the kernels of a block of k rows pass on to each other.

    product  how Gram matrices are computed
    margins  how the margins are computed, and the buffer they are left in
    grams    two (n_blocks, K + B, K) float32: one is filled while the other is read
    p        (M C, k) float32, coefficients of the rows in M models
    pairs    (n_pairs,) int64, places in a Gram matrix of products of rows of different batches: what is reduced
    """

    product: GramPlan
    margins: MarginPlan
    grams: tuple[torch.Tensor, torch.Tensor]
    p: torch.Tensor
    pairs: torch.Tensor

    @classmethod
    def of(cls, k: int, batch_size: int, problem: Problem, n_models: int, *, reduces: bool) -> "BlockWorkspace":
        """For k rows of a problem's columns; `reduces` where Gram matrices are summed over ranks."""
        X, n_outputs, device = matrix(problem), problem.family.n_outputs, problem.columns.device
        n = X.shape[1]
        product = GramPlan.of(k, batch_size, n, X.dtype, device)
        grams = [gram_buffer(product.blocks, k, batch_size, n_outputs, device) for _ in range(2)]
        none = grams[0].new_empty(0, dtype=torch.int64)
        return cls(
            product,
            MarginPlan.of(k, n, n_models * n_outputs, device),
            (grams[0], grams[1]),
            torch.zeros(n_models * n_outputs, k, device=device),
            _pairs(k, batch_size, grams[0].stride(1), device) if reduces else none,
        )


def _pairs(k: int, batch_size: int, stride: int, device: torch.device) -> torch.Tensor:
    row = torch.arange(k, device=device)
    wanted = (row // batch_size)[:, None] < (row // batch_size)[None, :]
    return (row[:, None] * stride + row[None, :])[wanted]
