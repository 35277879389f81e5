"""Where the kernels find the rows of a block: in the matrix on the GPU, or in buffers filled ahead from the host."""

from dataclasses import dataclass

import torch

from laconic.glm.columns import PinnedColumns
from laconic.glm.problem import Problem
from laconic.glm.solvers.device.buffers import SegmentBuffers, matrix
from laconic.kernels.gpu.glm import gather_rows
from laconic.kernels.side_stream import SideStream

STAGED_BYTES = 2**29
"""Of one of the two buffers."""


@dataclass(frozen=True, slots=True)
class BlockRows:
    """The rows of a run of blocks.

    X                (any, n) on the GPU
    rows, next_rows  (all,) int32 numbers in X of the rows of a block, and of the block after it
    """

    X: torch.Tensor
    rows: torch.Tensor
    next_rows: torch.Tensor


class RowSource:
    """The whole matrix is on the GPU; rows are read where they lie.

    spare  row numbers that must exist beyond a segment's last, whatever they are
    """

    def __init__(self, X: torch.Tensor, spare: int) -> None:
        self.X, self.spare = X, spare

    def rows_of(self, segment: SegmentBuffers, block: int, n_blocks: int) -> BlockRows:
        """The rows of block `block` and of those in the same buffer; called before each run of blocks, in order."""
        return BlockRows(self.X, segment.rows, segment.rows)

    def buffer_of(self, block: int) -> tuple[int, int]:
        """The number of the buffer that holds a block, and how many blocks from this one on are in it."""
        return 0, 2**31


class Staged(RowSource):
    """The matrix is in the host's memory; while the blocks of one buffer are worked on, the GPU fills the other.

    A buffer holds `run` blocks, and the rows of one more, whose margins the last block computes.
    """

    def __init__(self, X: torch.Tensor, k: int, runs: tuple[int, ...], device: torch.device) -> None:
        self.k, self.stream = k, SideStream(device)
        row_bytes = max(1, X.shape[1] * X.element_size())
        self.run = next((run for run in runs if (run + 1) * k * row_bytes <= STAGED_BYTES), runs[-1])
        super().__init__(X, (self.run + 2) * k)
        self.buffers = torch.zeros(2, (self.run + 1) * k, X.shape[1], dtype=X.dtype, device=device)
        self.rows = self.next_rows = torch.empty(0, dtype=torch.int32, device=device)

    def rows_of(self, segment: SegmentBuffers, block: int, n_blocks: int) -> BlockRows:
        if block == 0:
            self._number(len(segment.rows))
            self._fetch(segment, 0)
        if block % self.run == 0:
            self.stream.join()
            if block + self.run <= n_blocks:
                self._fetch(segment, block + self.run)
        return BlockRows(self.buffers[self.buffer_of(block)[0]], self.rows, self.next_rows)

    def buffer_of(self, block: int) -> tuple[int, int]:
        return block // self.run % 2, self.run - block % self.run

    def _number(self, capacity: int) -> None:
        if len(self.rows) != capacity:
            place = torch.arange(capacity, device=self.rows.device)
            self.rows = (place % (self.run * self.k)).int()
            self.next_rows = ((place - self.k) % (self.run * self.k) + self.k).int()

    def _fetch(self, segment: SegmentBuffers, block: int) -> None:
        rows = segment.rows[block * self.k : (block + self.run + 1) * self.k]
        with self.stream.fork():
            gather_rows(self.X, rows, self.buffers[self.buffer_of(block)[0]])


def row_source(problem: Problem, k: int, runs: tuple[int, ...]) -> RowSource:
    """For blocks of k rows of a problem's columns; `runs` are the numbers of blocks that a buffer may hold."""
    X = matrix(problem)
    if isinstance(problem.columns, PinnedColumns):
        return Staged(X, k, runs, problem.columns.device)
    return RowSource(X, k)
