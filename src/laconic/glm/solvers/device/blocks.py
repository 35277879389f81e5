"""CA-SGD on a GPU, block after block, without waiting for the host."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from laconic.exchange import Accounting
from laconic.glm.options import FitOptions
from laconic.glm.problem import Problem
from laconic.glm.ranks import Reduction, Wire, reduction_for
from laconic.glm.solvers.device.buffers import BlockWorkspace, SegmentBuffers, StepSizes
from laconic.glm.solvers.device.rows import BlockRows, row_source
from laconic.glm.solvers.state import Segment, State
from laconic.kernels.gpu.glm import gram, margins, recurrence, recurrence_fits, update
from laconic.kernels.side_stream import SideStream

RUNS = (32, 8, 1)
"""Blocks per CUDA graph; a segment is made up of these."""


@dataclass(frozen=True, slots=True)
class CapturedRun:
    """A CUDA graph of a run of blocks, and what one replay of it sends."""

    graph: torch.cuda.CUDAGraph
    accounting: Accounting
    messages: int


def fitting_s(problem: Problem, options: FitOptions, wire: Wire) -> int:
    """Iterations per block that one multiprocessor can hold: s, or in one process the most that fit; 0 for none."""
    size = options.batch_size
    choices = range(options.step, 0, -1) if wire.comm.size == 1 else [options.step]
    return next((s for s in choices if recurrence_fits(s * size, size, problem.family.n_outputs)), 0)


class Blocks:
    """Steps through segments of an epoch in blocks of s iterations; bound to one state.

    Several models of a sweep lie one after another in that state's weights, and share everything but the recurrence.

    several  the options of these models; by default there is one

    1. The Gram matrices of the next few blocks and their AllReduces run on a second stream, while
    2. the recurrence of block i runs as one kernel, and
    3. the new weights and the margins of block i + 1 as another, followed by the margins' AllReduce.

    On CUDA a run of blocks is one graph, captured once; only a segment's first margins and last rows are launched one
    by one.
    """

    name = "fused blocks"

    def __init__(
        self, problem: Problem, options: FitOptions, state: State, wire: Wire, several: Sequence[FitOptions] = ()
    ) -> None:
        self.problem, self.options, self.state, self.wire = problem, options, state, wire
        self.models = several or [options]
        self.s, self.size = fitting_s(problem, options, wire), options.batch_size
        self.k, device = self.s * self.size, problem.columns.device
        self.base = torch.zeros((), dtype=torch.int64, device=device)
        self.stream, self.workspaces = SideStream(device), dict[int, BlockWorkspace]()
        self._workspace(self.k)
        self.source = row_source(problem, self.k, RUNS)
        self.segment: SegmentBuffers | None = None
        self.steps = StepSizes(len(self.models), 0, self.s, device)
        self.losses = torch.empty(len(self.models), 0, device=device)
        self.graphs: dict[tuple[int, int], CapturedRun] = {}
        self.warm = False
        self.captures = device.type == "cuda" and not wire.comm.is_gloo(device)

    @staticmethod
    def suits(problem: Problem, options: FitOptions, wire: Wire) -> bool:
        """Whether the kernels know this fit."""
        p = options.precision
        return (
            options.momentum == 0
            and options.average_after is None
            and (isinstance(p.gram_wire, str) or wire.comm.size == 1)
            and p.gram_operand in ("fp32", "tf32", "bf16", "fp16")
            and p.gram_accumulate == "fp32"
            and p.update in ("fp32", "bf16")
            and fitting_s(problem, options, wire) > 0
        )

    def advance(self, segment: Segment) -> float:
        """Step through a segment, changing the state's weights; returns Σ w φ."""
        return float(self.advance_several([segment])[0])

    def advance_several(self, segments: Sequence[Segment]) -> np.ndarray:
        """The same for every model, whose segments differ in nothing but their rates; returns Σ w φ of each."""
        segment = segments[0]
        buffers = self._load(segments)
        n_blocks, rest = divmod(len(segment.rows), self.k)
        self.base.zero_()
        done = 0
        while done < n_blocks:
            rows = self.source.rows_of(buffers, done, n_blocks)
            if done == 0:
                self._margins(rows, self.workspaces[self.k])
            done += self._advance_run(buffers, rows, done, n_blocks)
        if rest:
            rows, workspace = self.source.rows_of(buffers, done, n_blocks), self._workspace(rest)
            self._margins(rows, workspace)
            self._launch(buffers, rows, workspace, 1, last=True)
        found: np.ndarray = self.losses[:, : n_blocks + (rest > 0)].sum(1, dtype=torch.float64).cpu().numpy()
        return found

    def _load(self, segments: Sequence[Segment]) -> SegmentBuffers:
        segment = segments[0]
        if self.segment is None or self.segment.capacity < len(segment.rows):
            rows, n_batches = len(segment.rows), segment.n_batches
            self.segment = SegmentBuffers(self.problem, rows, n_batches, self.source.spare, averages=False)
            self.losses = torch.zeros(len(self.models), rows // self.k + 1, device=self.base.device)
            self.steps = StepSizes(len(self.models), n_batches, self.s, self.base.device)
            self.graphs.clear()
        self.segment.load(segment)
        scales = segment.scales(self.options.gradient)
        for model, (own, part) in enumerate(zip(self.models, segments, strict=True)):
            self.steps.load(model, part.rates, scales, own.l2, own.l1)
        return self.segment

    def _advance_run(self, segment: SegmentBuffers, rows: BlockRows, done: int, n_blocks: int) -> int:
        """The next run of blocks; returns how many."""
        if not self.captures or not self.warm:
            self._launch(segment, rows, self.workspaces[self.k], 1)  # compiles the kernels, which a capture cannot
            self.warm = True
            return 1
        buffer, remaining = self.source.buffer_of(done)
        n = next(run for run in RUNS if run <= min(n_blocks - done, remaining))
        if (n, buffer) not in self.graphs:
            self.graphs[n, buffer] = self._capture(segment, rows, n)
        run = self.graphs[n, buffer]
        run.graph.replay()
        self.wire.accounting += run.accounting
        self.wire.messages += run.messages
        return n

    def _capture(self, segment: SegmentBuffers, rows: BlockRows, n: int) -> CapturedRun:
        kept, self.wire.accounting, messages = self.wire.accounting, Accounting(), self.wire.messages
        graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
        gc.disable()  # a graph of an earlier fit that is freed now would end the capture
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._launch(segment, rows, self.workspaces[self.k], n)
        finally:
            if collects:
                gc.enable()
        run = CapturedRun(graph, self.wire.accounting, self.wire.messages - messages)
        self.wire.accounting, self.wire.messages = kept, messages
        return run

    def _launch(
        self, segment: SegmentBuffers, rows: BlockRows, workspace: BlockWorkspace, n: int, *, last: bool = False
    ) -> None:
        """Queue n blocks; `last` where no block follows."""
        options, weights = self.options, self.state.weights
        reduction = reduction_for(self.wire, workspace.pairs, options.precision.format("margin"))
        at_once = workspace.product.blocks
        self._gram(rows, workspace, range(min(at_once, n)), reduction)
        for i in range(n):
            if i % at_once == 0:
                self.stream.join()
                self._gram(rows, workspace, range(i + at_once, min(i + 2 * at_once, n)), reduction)
            G, ahead = workspace.grams[i // at_once % 2][i % at_once], i * self.s
            parts = reduction.before_recurrence(workspace.margins.sums, G, self.state.iteration + ahead)
            recurrence(
                G, parts, segment.y, segment.w, segment.offset, self.steps.each, self.base, ahead,
                weights.intercept.value, workspace.p, self.losses, code=self.problem.family.kernel_code,
                batch_size=self.size, s=self.s, fitted=weights.intercept.fitted,
                narrow=options.precision.margin == "bf16", follows=i % at_once > 0 and self.wire.comm.size == 1,
            )  # fmt: skip
            update(
                rows.X, rows.rows, rows.next_rows, self.base, ahead, workspace.p, self.steps.ends, weights.x,
                workspace.margins, batch_size=self.size, s=self.s, shrinks=any(own.l1 for own in self.models),
                narrow=options.precision.update == "bf16", last=last,
            )  # fmt: skip
        self.base.add_(n * self.s)

    def _gram(self, rows: BlockRows, workspace: BlockWorkspace, blocks: range, reduction: Reduction) -> None:
        """Queue the Gram matrices of some blocks of a run on the second stream."""
        if not blocks:
            return
        grams = workspace.grams[blocks.start // workspace.product.blocks % 2][: len(blocks)]
        with self.stream.fork():
            operand, ahead = self.options.precision.gram_operand, blocks.start * self.s
            gram(rows.X, rows.rows, self.base, ahead, workspace.product, self.size, operand, grams)
            for G in grams:
                reduction.after_gram(G)

    def _margins(self, rows: BlockRows, workspace: BlockWorkspace) -> None:
        margins(rows.X, rows.rows, self.base, self.state.weights.x, workspace.margins, self.size)

    def _workspace(self, k: int) -> BlockWorkspace:
        if k not in self.workspaces:
            self.workspaces[k] = BlockWorkspace.of(
                k, self.size, self.problem, len(self.models), reduces=self.wire.comm.size > 1
            )
        return self.workspaces[k]
