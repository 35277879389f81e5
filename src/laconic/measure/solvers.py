"""Rates of our solvers: a handful of small outer iterations, timed on all ranks at once, and a fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.exchange.messages import Wait
from laconic.glm import (
    Bernoulli,
    Columns,
    Constant,
    DenseColumns,
    Penalty,
    Problem,
    Sampling,
    Settings,
    State,
    begin,
)
from laconic.glm import (
    recipe as recipe_named,
)
from laconic.glm.solvers import ca_sgd, sgd
from laconic.glm.solvers.state import Segment
from laconic.glm.solvers.wire import Wire
from laconic.kernels.glm import triangle_size
from laconic.planner import Cluster, GlmJob, GlmOption, SolverRates
from laconic.planner.calibrate import Measurements, Progress, announced
from laconic.planner.collectives import all_reduce
from laconic.planner.glm import Counts, cost, counts
from laconic.planner.terms import total
from laconic.planner.timing import Stopwatch, Timing, fit_rates

ALPHA = 1e-4
ETA = 1e-3
LONE_ITERATIONS = 64
"""Of SGD in one process, whose compiled loop runs through them in one call."""
N_NARROW, N_WIDE = 8, 512
"""Columns of a rank: so few that they cost nothing, and enough that they cost most."""
N_ROWS = 2**14
SGD_SIZES = ((N_NARROW, 8, 1), (N_NARROW, 64, 1), (N_WIDE, 8, 1), (N_WIDE, 64, 1))
CA_SIZES = (
    *((n, 8, s) for n in (N_NARROW, N_WIDE) for s in (1, 16, 64)),
    (N_NARROW, 32, 16),
    (N_WIDE, 32, 8),
)
"""(n_p, b, s) of what is timed."""
RECIPES = {"sgd": ("fp32", "C"), "ca_sgd": ("fp32", "C", "D")}
"""Recipes of each solver."""
TALKING = (("sgd", "fp32", 1), ("sgd", "C", 1), ("ca_sgd", "fp32", 8), ("ca_sgd", "C", 16), ("ca_sgd", "fp32", 32))
"""(solver, recipe, s) of real iterations."""
GATHER_ROWS, GEMM_ROWS, GEMM_BATCH = 256, 512, 8
LEAST_LEFT = 0.2
"""Of a time, that is not the Gram product's, whatever that was timed to take by itself."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A solver with its precision.

    silent  the same work without a message: each rank keeps to its own columns. No solver of this kind can be faster
    """

    solver: str
    recipe: str
    s: int = 1
    silent: bool = False

    @property
    def label(self) -> str:
        """Its name in tables.

        >>> Contender("ca_sgd", "C", 32, silent=True).label
        'ca_sgd C s=32, no messages'
        """
        name = f"{self.solver} {self.recipe}" + (f" s={self.s}" if self.solver == "ca_sgd" else "")
        return f"{name}, no messages" if self.silent else name

    def settings(self, eta0: float, batch_size: int, seed: int = 0) -> Settings:
        """As the solver takes them."""
        return Settings(
            solver=self.solver,
            s=self.s,
            sampling=Sampling(batch_size=batch_size, seed=seed),
            schedule=Constant(eta0),
            penalty=Penalty(ALPHA),
            precision=recipe_named(self.recipe),
            tol=None,
        )


class SilentCommunicator(Communicator):
    """As many ranks as there are, none of which hears another: sums stay what they were."""

    def all_reduce(self, v: torch.Tensor, *, phase: int = 0) -> Wait:
        return lambda: None


@dataclass(frozen=True, slots=True)
class Noise:
    """Rows of a rank, m × n_p, in the storage that recipes ask for; made once for each shape."""

    blocks: Mapping[torch.dtype, Columns]
    y: torch.Tensor
    order: np.ndarray

    @classmethod
    def of(cls, m: int, n_p: int, seed: int = 0) -> "Noise":
        """The same on every rank, which does not matter for time."""
        X = torch.randn(m, n_p, generator=torch.Generator().manual_seed(seed)) / max(1, n_p) ** 0.5
        y = (X[:, 0] > 0).float()
        order = np.random.default_rng(seed).integers(0, m, 1 << 16)
        return cls({torch.float32: DenseColumns(X), torch.bfloat16: DenseColumns(X.bfloat16())}, y, order)


@dataclass(slots=True)
class SolverRun:
    """A solver with its state; `run` goes on by `iterations` iterations."""

    contender: Contender
    problem: Problem
    state: State
    wire: Wire
    batch_size: int
    iterations: int
    order: np.ndarray
    at: int = field(default=0)

    @classmethod
    def of(cls, contender: Contender, noise: Noise, batch_size: int, comm: Communicator) -> "SolverRun":
        """On all ranks of `comm`, or without messages if the contender is silent."""
        settings = contender.settings(ETA, batch_size)
        columns = noise.blocks[settings.precision.format("data").storage]
        problem = Problem(columns, Bernoulli(), noise.y).cast(settings.precision.carrier)
        if contender.silent and comm.size > 1:
            comm = SilentCommunicator(comm.rank, comm.size, comm.channels)
        lone = contender.solver == "sgd" and comm.size == 1
        iterations = LONE_ITERATIONS if lone else contender.s
        wire = Wire(comm, recipe_named(contender.recipe).gram_wire)
        return cls(contender, problem, begin(problem, settings), wire, batch_size, iterations, noise.order)

    def run(self) -> None:
        """The next batches."""
        k = self.iterations * self.batch_size
        if self.at + k > len(self.order):
            self.at = 0
        rows = np.resize(self.order[self.at : self.at + k], k)
        self.at += k
        settings = self.contender.settings(ETA, self.batch_size)
        rates = np.full(self.iterations, ETA)
        part = Segment(rows, self.batch_size * np.arange(self.iterations + 1), rates, np.empty(0))
        advance = ca_sgd.advance if self.contender.solver == "ca_sgd" else sgd.advance
        advance(self.problem, settings, self.state, part, self.wire)


@dataclass(frozen=True, slots=True)
class _Sample:
    """One size of one recipe, the counts of its outer iteration, and its time."""

    recipe: str
    counts: Counts
    s: int
    timing: Timing


def measure_solvers(
    clock: Stopwatch, found: Measurements, progress: Progress = lambda label: None
) -> dict[str, SolverRates]:
    """Rates by "solver recipe", the same on all ranks; spreads and residuals are noted in `found`."""
    noise = {n: Noise.of(N_ROWS, n) for n in (N_NARROW, N_WIDE)}
    rates: dict[str, SolverRates] = {}
    for solver, recipes in RECIPES.items():
        samples = []
        for recipe in announced(recipes, progress, f"solver: {solver}"):
            sizes = SGD_SIZES if solver == "sgd" else CA_SIZES
            samples += [_sample(clock, GlmOption(solver, recipe, s), noise[n], n, b) for n, b, s in sizes]
        gathers = {recipe: _gather_seconds(clock, noise[N_WIDE], recipe) for recipe in recipes}
        gemm = _gemm_seconds(clock, noise[N_WIDE]) if solver == "ca_sgd" else 0.0
        rates |= _fitted(solver, samples, gathers, gemm, found)
    return rates


def measure_sync(clock: Stopwatch, cluster: Cluster, found: Measurements) -> float:
    """Seconds of a message beyond its own and the work's: real iterations, with messages, over predictions.

    At most what its latency is: more is a moment in which others used the machine.
    """
    if clock.comm.size == 1:
        return 0.0
    noise, timings, extra = Noise.of(N_ROWS, N_NARROW), [], []
    job = GlmJob(N_ROWS, N_NARROW * clock.comm.size, batch_size=8)
    for solver, recipe, s in TALKING:
        run = SolverRun.of(Contender(solver, recipe, s), noise, job.batch_size, clock.comm)
        timings.append(clock.time(run.run, rounds=3, seconds=0.03))
        predicted = cost(job, GlmOption(solver, recipe, s), cluster)
        extra.append(timings[-1].median - predicted.work_seconds - predicted.wire_seconds)
    found.note("waiting", timings)
    latency = total(all_reduce(0, cluster.all_reduce, cluster.n_ranks, cluster.algorithm))
    return min(max(0.0, median(extra)), latency)


def _sample(clock: Stopwatch, option: GlmOption, noise: Noise, n: int, b: int) -> _Sample:
    run = SolverRun.of(Contender(option.solver, option.recipe, option.s, silent=True), noise, b, clock.comm)
    timing = clock.time(run.run, rounds=3, seconds=0.02).over(run.iterations / option.s)
    return _Sample(option.recipe, counts(GlmJob(N_ROWS, n, batch_size=b), option, 1), option.s, timing)


def _gather_seconds(clock: Stopwatch, noise: Noise, recipe: str) -> float:
    """Of a value of a row that is sampled: read where it lies, and widened."""
    columns = noise.blocks[torch.float32 if recipe == "fp32" else torch.bfloat16]
    rows = noise.order[:GATHER_ROWS]
    timing = clock.time(lambda: columns.take(rows, torch.float32), rounds=3)
    return timing.median / (GATHER_ROWS * columns.n)


def _gemm_seconds(clock: Stopwatch, noise: Noise) -> float:
    """Of a flop of the Gram product, which runs in float32 whatever the recipe."""
    cuts = np.arange(0, GEMM_ROWS + 1, GEMM_BATCH)
    Y = noise.blocks[torch.float32].take(noise.order[:GEMM_ROWS], torch.float32)
    triangle, precision = torch.empty(triangle_size(cuts)), recipe_named("fp32")
    timing = clock.time(lambda: Y.gram(cuts, precision, triangle), rounds=3)
    return timing.median / (2 * triangle_size(cuts) * N_WIDE)


def _fitted(
    solver: str, samples: Sequence[_Sample], gathers: Mapping[str, float], gemm: float, found: Measurements
) -> dict[str, SolverRates]:
    """One fit for all recipes of a solver, of what is left once the Gram product is taken off.

    An outer iteration and a gathered value cost what they cost in each recipe; rows, steps and entries of the Gram
    matrix cost the same in all, so that few timings serve.
    """
    recipes = list(gathers)

    def features(sample: _Sample) -> list[float]:
        own = [float(sample.recipe == recipe) for recipe in recipes]
        shared = [sample.counts.rows, sample.s, sample.counts.pairs]
        return [*own, *(flag * sample.counts.values for flag in own), *(shared if solver == "ca_sgd" else shared[:1])]

    left = [max(s.timing.median - gemm * s.counts.gemm_flops, LEAST_LEFT * s.timing.median) for s in samples]
    fitted = fit_rates([features(sample) for sample in samples], left)
    x, k = fitted.coefficients, len(recipes)
    row, step, pair = x[2 * k :] if solver == "ca_sgd" else (x[2 * k], 0.0, 0.0)
    flops = 4 if solver == "sgd" else 8
    rates = {}
    for i, recipe in enumerate(recipes):
        gather = min(gathers[recipe], x[k + i])  # the fit tells a gathered value with its flops; the gather was timed
        rates[f"{solver} {recipe}"] = SolverRates(x[i], step, row, gather, (x[k + i] - gather) / flops, gemm, pair)
        own = [j for j, sample in enumerate(samples) if sample.recipe == recipe]
        residuals = tuple(fitted.residuals[j] for j in own)
        found.note(f"{solver} {recipe}", [samples[j].timing for j in own], residuals)
    return rates
