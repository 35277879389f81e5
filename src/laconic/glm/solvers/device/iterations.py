"""SGD on a GPU for few columns: many iterations per kernel launch."""

import torch

from laconic.glm.options import FitOptions
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire
from laconic.glm.solvers.device.buffers import SegmentBuffers, matrix
from laconic.glm.solvers.state import Segment, State
from laconic.kernels.gpu.glm import gather_rows, row_buffer, sgd, sgd_fits
from laconic.kernels.side_stream import SideStream

PIECE_BYTES = 2**26
"""Rows gathered at a time; while one piece is stepped through, the next one is gathered."""


class Iterations:
    """Steps through segments of an epoch; bound to one state."""

    name = "fused iterations"

    def __init__(self, problem: Problem, options: FitOptions, state: State) -> None:
        self.problem, self.options, self.state = problem, options, state
        self.X, device = matrix(problem), problem.columns.device
        n, size = self.X.shape[1], options.batch_size
        batches = max(1, PIECE_BYTES // (size * n * self.X.element_size()))
        self.piece = min(batches, options.n_batches(problem.n_rows)) * size
        self.Y = [row_buffer(self.piece, n, size, self.X.dtype, device) for _ in range(2)]
        self.stream = SideStream(device)
        self.segment: SegmentBuffers | None = None

    @staticmethod
    def suits(problem: Problem, options: FitOptions, wire: Wire) -> bool:
        """Whether the kernel knows this fit."""
        plain, size = options.precision.is_plain("update"), options.batch_size
        return wire.comm.size == 1 and problem.family.n_outputs == 1 and plain and sgd_fits(problem.columns.n, size)

    def advance(self, segment: Segment) -> float:
        """Step through a segment, changing the state's weights; returns Σ w φ."""
        buffers = self._load(segment)
        own = self.state.weights.intercept
        intercepts = torch.cat([own.value, own.momentum, own.average])
        pieces = [slice(i, min(i + self.piece, len(segment.rows))) for i in range(0, len(segment.rows), self.piece)]
        losses = torch.zeros(len(pieces), dtype=torch.float64, device=intercepts.device)
        self._gather(buffers, pieces, 0)
        for i, piece in enumerate(pieces):
            self.stream.join()
            self._gather(buffers, pieces, i + 1)
            self._step(buffers, piece, self.Y[i % 2], intercepts, losses[i : i + 1])
        for target, value in zip((own.value, own.momentum, own.average), intercepts, strict=True):
            target.copy_(value)
        return float(losses.sum())

    def _load(self, segment: Segment) -> SegmentBuffers:
        if self.segment is None or self.segment.capacity < len(segment.rows):
            averages = self.options.average_after is not None
            self.segment = SegmentBuffers(self.problem, len(segment.rows), segment.n_batches, 0, averages=averages)
        self.segment.load(segment)
        return self.segment

    def _gather(self, segment: SegmentBuffers, pieces: list[slice], i: int) -> None:
        if i < len(pieces):
            with self.stream.fork():
                gather_rows(self.X, segment.rows[pieces[i]], self.Y[i % 2][:, : self.X.shape[1]])

    def _step(
        self, segment: SegmentBuffers, rows: slice, Y: torch.Tensor, intercepts: torch.Tensor, loss: torch.Tensor
    ) -> None:
        options, weights, size = self.options, self.state.weights, self.options.batch_size
        batches = slice(rows.start // size, -(-rows.stop // size))
        sgd(
            Y,
            segment.y[rows],
            None if segment.w is None else segment.w[rows],
            None if segment.offset is None else segment.offset[rows],
            segment.rates[batches],
            None if segment.mix is None else segment.mix[batches],
            weights.x,
            weights.momentum,
            weights.average,
            intercepts,
            loss,
            code=self.problem.family.kernel_code,
            batch_size=size,
            l2=options.l2,
            l1=options.l1,
            momentum=options.momentum,
            fitted=weights.intercept.fitted,
            narrow=options.precision.margin == "bf16",
            mean=options.gradient == "mean",
        )
