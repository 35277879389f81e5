"""A segment of an epoch in device memory: everything about its rows but the rows themselves."""

import numpy as np
import torch

from laconic.glm.columns import DenseColumns
from laconic.glm.problem import Problem
from laconic.glm.solvers.segment import Segment


class Lane:
    """Buffers that stay where they are, so that a captured graph finds the next segment in them.

    rows     (capacity + spare,) int32, where the segment's rows are found in the matrix
    y, w     (capacity,) float32 targets and weights in that order; w None for ones
    offset   (capacity, C) float32, or None
    rates    (n_batches,) float32 step sizes; mix likewise, or None
    """

    def __init__(self, problem: Problem, capacity: int, n_batches: int, spare: int, *, averages: bool) -> None:
        self.problem, self.capacity = problem, capacity
        device = problem.columns.device

        def room(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.float32, device=device)

        self.rows = torch.zeros(capacity + spare, dtype=torch.int32, device=device)
        self.y = room(capacity)
        self.w = None if problem.weights is None else room(capacity)
        self.offset = None if problem.offset is None else room(capacity, problem.n_outputs)
        self.rates, self.mix = room(n_batches), room(n_batches) if averages else None

    def load(self, segment: Segment) -> None:
        """Bring a segment over; its rows are as many as the buffers hold, or fewer."""
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


def matrix(problem: Problem) -> torch.Tensor:
    """X as stored."""
    if not isinstance(problem.columns, DenseColumns):
        raise TypeError(f"expected dense columns, got {type(problem.columns).__name__}")
    return problem.columns.X
