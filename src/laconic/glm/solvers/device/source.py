"""Where the kernels find the rows of a block: in the matrix itself, or in a buffer that is filled ahead of them."""

from dataclasses import dataclass
from typing import Protocol

import torch

from laconic.glm.columns import PinnedColumns
from laconic.glm.problem import Problem
from laconic.glm.solvers.device.lane import Lane, matrix
from laconic.kernels.gpu.glm import gather_rows
from laconic.kernels.side_stream import SideStream

STAGED_BYTES = 2**29
"""Of one of the two buffers."""


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a run of blocks.

    X                (any, n) on the GPU
    rows, next_rows  (all,) int32: where in X the rows of a block, and of the block after it, lie
    """

    X: torch.Tensor
    rows: torch.Tensor
    next_rows: torch.Tensor


class Source(Protocol):
    """Where rows come from.

    spare  rows beyond a segment's last that must be there, whatever they are
    """

    spare: int

    def enter(self, lane: Lane, block: int, n_blocks: int) -> Found:
        """Called before each run of blocks of a segment."""

    def place(self, block: int) -> tuple[int, int]:
        """Which of its buffers a block is in, and how many blocks from this one on are in the same."""


class Resident:
    """The whole matrix is on the GPU, and its rows are read from where they are."""

    def __init__(self, X: torch.Tensor, k: int) -> None:
        self.X, self.spare = X, k

    def enter(self, lane: Lane, block: int, n_blocks: int) -> Found:
        return Found(self.X, lane.rows, lane.rows)

    def place(self, block: int) -> tuple[int, int]:
        return 0, 2**31


class Staged:
    """The matrix is in the host's memory: two buffers of `run` blocks each, and the rows of one more block, whose
    margins are made by the last. While the blocks of one are worked on, the GPU fills the other.
    """

    def __init__(self, X: torch.Tensor, k: int, runs: tuple[int, ...], device: torch.device) -> None:
        self.X, self.k, self.side = X, k, SideStream(device)
        row_bytes = max(1, X.shape[1] * X.element_size())
        self.run = next((run for run in runs if (run + 1) * k * row_bytes <= STAGED_BYTES), runs[-1])
        self.spare = (self.run + 2) * k
        self.buffers = torch.zeros(2, (self.run + 1) * k, X.shape[1], dtype=X.dtype, device=device)
        self.rows = self.next_rows = torch.empty(0, dtype=torch.int32, device=device)

    def enter(self, lane: Lane, block: int, n_blocks: int) -> Found:
        if block == 0:
            self._number(len(lane.rows))
            self._fetch(lane, 0)
        if block % self.run == 0:
            self.side.join()
            if block + self.run <= n_blocks:
                self._fetch(lane, block + self.run)
        return Found(self.buffers[self.place(block)[0]], self.rows, self.next_rows)

    def place(self, block: int) -> tuple[int, int]:
        return block // self.run % 2, self.run - block % self.run

    def _number(self, capacity: int) -> None:
        if len(self.rows) != capacity:
            place = torch.arange(capacity, device=self.rows.device)
            self.rows = (place % (self.run * self.k)).int()
            self.next_rows = ((place - self.k) % (self.run * self.k) + self.k).int()

    def _fetch(self, lane: Lane, block: int) -> None:
        rows = lane.rows[block * self.k : (block + self.run + 1) * self.k]
        with self.side.fork():
            gather_rows(self.X, rows, self.buffers[self.place(block)[0]])


def source(problem: Problem, k: int, runs: tuple[int, ...]) -> Source:
    """The one for these columns."""
    X = matrix(problem)
    if isinstance(problem.columns, PinnedColumns):
        return Staged(X, k, runs, problem.columns.device)
    return Resident(X, k)
