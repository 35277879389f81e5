"""The suite `glm-stages`: each kernel of a block of CA-SGD on one GPU, beside its hardware limits."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from benchmarks.glm.device import DEVICE_SHAPES, WIDE
from benchmarks.kernels import TimedGraph, compare_graphs, fastest_copy
from laconic.bench.protocol import Spread
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm import Bernoulli, DenseColumns, Problem
from laconic.glm.solvers.state import Segment
from laconic.kernels.glm import LinkCode
from laconic.measure.solvers import ETA, Contender, Copies, SolverRun
from laconic.options import check_counts, check_names, option
from laconic.report import BarChart, Column, Presentation, RowTable, text
from laconic.report.values import Row, number_in, text_in

BLOCKS = 64
"""Blocks in a CUDA graph, each with rows of its own: together far larger than the second-level cache."""
BLOCK_STEPS = {"epsilon": 16, "synth": 16, WIDE: 8}
"""Iterations per block, the fastest for each problem."""
TENSOR_RATE = 990e12
"""Operations per second of an H200's tensor cores on bfloat16, as stated by its vendor."""
COPIED = 2**27


@dataclass(frozen=True, slots=True)
class StageOptions:
    """What to run."""

    device: str = option("cuda", "The GPU: cuda, cuda:1, ...")
    problem: Sequence[str] = option(("epsilon", WIDE), f"Of {', '.join(BLOCK_STEPS)}.", metavar="NAME,...")
    batch_size: int = option(32, "Rows of a batch.")
    repeats: int = option(11, "Timed rounds.")

    def __post_init__(self) -> None:
        check_names(self.problem, tuple(BLOCK_STEPS), "problem")
        check_counts(self)
        if not (self.device.startswith("cuda") and torch.cuda.is_available()):
            raise InvalidOption(Option("device"), f" must be a CUDA GPU that is here; got {self.device!r}")

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(self.problem)


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage of a block of s iterations, by itself, or all of them.

    seconds       per block; for `whole`, everything including the host
    n_bytes       that must be read and written once
    operations    multiplications and additions on the tensor cores
    n_steps       sequential steps
    step_seconds  least time of a step: one of the recurrence of batches of two rows (one warp), or an empty launch
    bandwidth     bytes per second of the fastest copy
    """

    problem: str
    n_features: int
    batch_size: int
    s: int
    stage: str
    seconds: Spread
    n_bytes: int
    operations: int
    n_steps: int
    step_seconds: float
    bandwidth: float

    @property
    def bytes_seconds(self) -> float:
        """Bytes over the bandwidth."""
        return self.n_bytes / self.bandwidth

    @property
    def operations_seconds(self) -> float:
        """Operations over the rate of the tensor cores."""
        return self.operations / TENSOR_RATE

    @property
    def steps_seconds(self) -> float:
        """Steps times their latency."""
        return self.n_steps * self.step_seconds

    @property
    def over_limit(self) -> float:
        """Seconds over the largest of the three limits."""
        return self.seconds.median / max(self.bytes_seconds, self.operations_seconds, self.steps_seconds)


class _Block:
    """Blocks of k rows of n columns, and the calls of their kernels."""

    def __init__(self, n: int, batch_size: int, s: int, device: torch.device) -> None:
        from laconic.glm.solvers.device.buffers import BlockWorkspace, StepSizes  # Triton, only where there is a GPU

        self.n, self.b, self.s, self.k = n, batch_size, s, batch_size * s
        m = (BLOCKS + 1) * self.k
        X = torch.empty(m, n, dtype=torch.bfloat16, device=device).normal_(0, n**-0.5)
        self.problem = Problem(DenseColumns(X), Bernoulli(), (torch.rand(m, device=device) < 0.5).float())
        self.X, self.y = X, self.problem.y
        self.rows = torch.randperm(m, device=device).int()
        self.work = BlockWorkspace.of(self.k, batch_size, self.problem, 1, reduces=False)
        self.base, self.x = torch.zeros((), dtype=torch.int64, device=device), torch.zeros(1, n, device=device)
        self.steps, self.intercept = StepSizes(1, m // batch_size, s, device), torch.zeros(1, device=device)
        self.steps.load(0, np.full(m // batch_size, ETA), np.full(m // batch_size, 1 / batch_size), 0.0, 0.0)
        self.losses, self.gathered = torch.zeros(1, BLOCKS + 1, device=device), torch.empty_like(X[: self.k])

    def gather(self) -> None:
        """Copy the rows of every block, for comparison: the kernels of a block read rows in place."""
        from laconic.kernels.gpu.glm import gather_rows

        for i in range(BLOCKS):
            gather_rows(self.X, self.rows[i * self.k : (i + 1) * self.k], self.gathered)

    def gram(self) -> None:
        """The Gram matrices of all blocks."""
        from laconic.kernels.gpu.glm import gram

        at_once = self.work.product.blocks
        for i in range(0, BLOCKS, at_once):
            G = self.work.grams[0][: min(at_once, BLOCKS - i)]
            gram(self.X, self.rows, self.base, i * self.s, self.work.product, self.b, "bf16", G)

    def recurrence(self) -> None:
        """The recurrences of all blocks."""
        from laconic.kernels.gpu.glm import recurrence

        given = (self.work.grams[0][0], self.work.margins.sums, self.y, None, None, self.steps.each, self.base)
        how: dict[str, Any] = {
            "batch_size": self.b,
            "s": self.s,
            "fitted": True,
            "narrow": True,
            "code": int(LinkCode.BERNOULLI),
        }
        for i in range(BLOCKS):
            recurrence(*given, i * self.s, self.intercept, self.work.p, self.losses, **how)

    def update(self) -> None:
        """New weights, and the margins of the next block, of all blocks."""
        from laconic.kernels.gpu.glm import update

        given = (self.X, self.rows, self.rows, self.base)
        rest = (self.work.p, self.steps.ends, self.x, self.work.margins)
        for i in range(BLOCKS):
            update(*given, i * self.s, *rest, batch_size=self.b, s=self.s, shrinks=False, narrow=True, last=False)

    def whole(self, repeats: int) -> Spread:
        """Seconds per block of a fit, by the host's clock."""
        run = SolverRun.of(Contender("ca_sgd", "C", self.s), Copies(self.problem), self.b, Communicator())
        n = 8192 // self.s
        rows = np.random.default_rng(0).integers(0, self.X.shape[0], n * self.k, dtype=np.int32)
        part = Segment(rows, self.b * np.arange(n * self.s + 1), np.full(n * self.s, ETA), np.empty(0))
        samples = []
        for _ in range(2 + repeats):
            began = time.perf_counter()
            run.advance(part)
            samples.append((time.perf_counter() - began) / n)
        return Spread.of(samples[2:])


def _spread(call: Callable[[], object], repeats: int) -> Spread:
    """Seconds per block of a graph of all blocks."""
    graph = TimedGraph(call)
    times = compare_graphs(graph, graph, repeats).seconds
    return Spread(*(value / BLOCKS for value in (times.median, times.p20, times.p80)))


def stage_rows(options: StageOptions, progress: Progress = no_progress) -> Iterator[StageRow]:
    """Run the suite."""
    device = torch.device(options.device)
    with torch.cuda.device(device):
        v = torch.randn(COPIED, device=device)
        copy = fastest_copy(v, torch.empty_like(v), options.repeats)
        bandwidth = 8 * COPIED / compare_graphs(copy, copy, options.repeats).seconds.median
        two = [_spread(_Block(16, 2, s, device).recurrence, options.repeats).median for s in (8, 16)]
        nothing = _spread(lambda: [v[:1].add_(1.0) for _ in range(BLOCKS)], options.repeats).median
        for name in options.problem:
            progress(name)
            yield from _rows(name, options, device, bandwidth, (two[1] - two[0]) / 8, nothing)


def _rows(
    name: str, options: StageOptions, device: torch.device, bandwidth: float, step: float, nothing: float
) -> Iterator[StageRow]:
    s, b, n, repeats = BLOCK_STEPS[name], options.batch_size, DEVICE_SHAPES[name].n_features, options.repeats
    block, k = _Block(n, b, s, device), s * b
    row = StageRow(name, n, b, s, "", Spread.of([0.0]), 0, 0, 1, nothing, bandwidth)
    yield replace(row, stage="gather", seconds=_spread(block.gather, repeats), n_bytes=4 * k * n)
    product: dict[str, Any] = {"n_bytes": 2 * k * n + 2 * k * k, "operations": k * k * n}
    yield replace(row, stage="Gram", seconds=_spread(block.gram, repeats), **product)
    chain: dict[str, Any] = {"n_bytes": 2 * k * k, "n_steps": s, "step_seconds": step}
    yield replace(row, stage="recurrence", seconds=_spread(block.recurrence, repeats), **chain)
    yield replace(row, stage="update", seconds=_spread(block.update, repeats), n_bytes=4 * k * n)
    yield replace(row, stage="whole", seconds=block.whole(repeats), **{**product, **chain, "n_bytes": 2 * k * n})


def _heading(rows: list[Row]) -> str:
    n, s, b = (number_in(rows[0], name) or 0 for name in ("n_features", "s", "batch_size"))
    return f"{text_in(rows[0], 'problem')}: {n:,.0f} columns, blocks of {s:.0f} batches of {b:.0f}; per block"


PRESENTATION = Presentation(
    "CA-SGD on a GPU, stage by stage",
    [
        RowTable(
            _heading,
            [
                text("stage", "stage"),
                Column("µs", "seconds", "µs"),
                Column("bytes ÷ bandwidth, µs", "bytes_seconds", "µs"),
                Column("products ÷ rate, µs", "operations_seconds", "µs"),
                Column("steps × latency, µs", "steps_seconds", "µs"),
                Column("÷ largest limit", "over_limit"),
            ],
            "Bandwidth: the fastest copy's. Rate: 990 · 10¹² per second. Latency: a step of batches of two rows in one "
            "warp; of other stages, an empty launch after another.",
            by="problem",
        ),
        BarChart("Seconds per block", "seconds", "s", group="problem", label=lambda row: text_in(row, "stage", "?")),
    ],
)
SUITE = Suite(
    "glm-stages",
    StageOptions,
    stage_rows,
    """Gather, Gram matrix, recurrence and update of a block of CA-SGD, each beside what bounds it. Needs a CUDA GPU.

    Bytes over the bandwidth, products over the rate of the tensor cores, dependent steps times their latency.
    """,
)
