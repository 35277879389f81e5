"""Measure the rates of our solvers: time small outer iterations on all ranks at once, and fit the cost formula."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from statistics import median
from typing import Any, Self

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.exchange.messages import Wait
from laconic.glm import Bernoulli, DenseColumns, FitOptions, Precision, Problem, State, begin
from laconic.glm import recipe as recipe_named
from laconic.glm.ranks import Wire
from laconic.glm.resolve import auto_average_every
from laconic.glm.solvers.objective import Advance, serve_alone
from laconic.glm.solvers.solve import advance_for
from laconic.glm.solvers.state import Segment
from laconic.glm.solvers.teams import Averaged
from laconic.kernels.glm import triangle_size
from laconic.planner import Cluster, GlmJob, GlmOption, SolverRates
from laconic.planner.calibrate import Measurements, Progress, announced
from laconic.planner.glm import Counts, cost, counts
from laconic.planner.terms import all_reduce, doublings, total
from laconic.planner.timing import Rounds, Stopwatch, fit_rates

ALPHA = 1e-4
ETA = 1e-3
LONE_ITERATIONS = 64
"""Iterations per call of SGD in one process, whose compiled loop runs several in one call."""
N_NARROW, N_WIDE = 8, 512
"""Columns per rank: so few that they cost nothing, and so many that they dominate the cost."""
N_ROWS, N_ORDER = 2**14, 2**16
"""Rows per rank, and how many are drawn before the order repeats."""
SGD_SIZES = ((N_NARROW, 8, 1), (N_NARROW, 64, 1), (N_WIDE, 8, 1), (N_WIDE, 64, 1))
CA_SIZES = (*((n, 8, s) for n in (N_NARROW, N_WIDE) for s in (1, 16, 64)), (N_NARROW, 32, 16), (N_WIDE, 32, 8))
"""(n_p, b, s) of the timed iterations."""
RECIPES = {"sgd": ("fp32", "C"), "ca_sgd": ("fp32", "C", "D")}
"""Recipes of each solver."""
GATHER_ROWS, GEMM_ROWS, GEMM_BATCH = 256, 512, 8
LEAST_LEFT = 0.2
"""Least share of an iteration's time that is left after subtracting the Gram product, timed by itself."""


@dataclass(frozen=True, slots=True)
class Contender(GlmOption):
    """A solver in one precision, to be timed.

    silent  the same work without messages, on each rank's own columns: a lower bound for the time of this solver
    teams   number of teams of ranks, which average their weights in float32 as often as average_every="auto" does
    """

    silent: bool = False
    teams: int = 1

    @property
    def label(self) -> str:
        """Its name in tables.

        >>> Contender("ca_sgd", "C", 32, silent=True).label, Contender("ca_sgd", "C", 32, teams=2).label
        ('ca_sgd C s=32, no messages', 'ca_sgd C s=32, 2 teams')
        """
        name = GlmOption.label.__get__(self) + (f", {self.teams} teams" if self.teams > 1 else "")
        return f"{name}, no messages" if self.silent else name

    def options(self, eta0: float, batch_size: int, seed: int = 0) -> FitOptions:
        steps: dict[str, Any] = {"learning_rate": "constant", "eta0": eta0, "batch_size": batch_size, "seed": seed}
        own: dict[str, Any] = {"solver": self.solver, "s": self.s, "recipe": self.recipe, "teams": self.teams}
        return FitOptions(**own, alpha=ALPHA, tol=None, **steps)


SYNC_CONTENDERS = (
    *(Contender("sgd", recipe) for recipe in ("fp32", "C")),
    *(Contender("ca_sgd", recipe, s) for recipe, s in (("fp32", 8), ("C", 16), ("fp32", 32))),
)
"""Contenders whose iterations are timed with messages, for `measure_sync`."""


class SilentCommunicator(Communicator):
    """A communicator whose all-reduce does nothing: each rank keeps its own values."""

    def all_reduce(self, v: torch.Tensor, *, phase: int = 0) -> Wait:
        return lambda: None


@dataclass(slots=True)
class Copies:
    """A problem with X cached in each storage format of the recipes.

    >>> copies = noise_problem(50, 8)
    >>> copies.stored_as(recipe_named("C")).columns is copies.stored_as(recipe_named("D")).columns
    True
    """

    problem: Problem
    made: dict[str, Problem] = field(default_factory=dict)

    def stored_as(self, precision: Precision) -> Problem:
        if precision.data not in self.made:
            self.made[precision.data] = self.problem.stored_as(precision)
        return self.made[precision.data]


@dataclass(slots=True)
class SolverRun:
    """A solver with its problem and state, ready to run the next batches.

    advance  steps through a segment of an epoch; returns Σ w φ
    ran      name of the fused GPU kernels, if they run; else None
    rows     this rank's part of the rows in their original precision, on which losses are computed
    """

    problem: Problem
    options: FitOptions
    state: State
    wire: Wire
    advance: Advance
    ran: str | None
    rows: Problem

    @classmethod
    def of(
        cls, contender: Contender, copies: Copies, batch_size: int, comm: Communicator, eta0: float = ETA, seed: int = 0
    ) -> Self:
        """A run at its start, on all ranks of `comm`, or without messages if the contender is silent.

        comm  one team's ranks, if the contender has teams; `copies` are then of the team's rows
        """
        options = contender.options(eta0, batch_size, seed)
        comm = Communicator() if contender.alone else comm
        options = replace(options, average_every=auto_average_every(copies.problem, options, comm))
        problem = copies.stored_as(options.precision).cast(options.precision.carrier)
        if contender.silent and comm.size > 1:
            comm = SilentCommunicator(comm.rank, comm.size, comm.channels)
        state, wire = begin(problem, options), Wire(comm, options.precision.gram_wire)
        advance, name = advance_for(problem, options, state, wire)
        if contender.teams > 1:
            averaged, own = Averaged(options, state, wire), advance
            advance = lambda segment: serve_alone(averaged(segment), own)  # noqa: E731
        ran = name.partition(",")[0] if name.startswith("fused") else None
        return cls(problem, options, state, wire, advance, ran, copies.problem)

    def rounds(self) -> tuple[Callable[[], float], int]:
        """A function that runs the next batches, in a random order, and how many iterations one call runs."""
        lone = self.options.solver == "sgd" and self.wire.comm.size == 1
        n, b = LONE_ITERATIONS if lone else int(self.options.s), self.options.batch_size
        rows = np.random.default_rng(0).integers(0, self.problem.columns.m, max(N_ORDER, n * b))
        cuts, rates = b * np.arange(n + 1), np.full(n, ETA)
        parts = cycle(
            Segment(rows[at : at + n * b], cuts, rates, np.empty(0)) for at in range(0, len(rows) - n * b + 1, n * b)
        )
        return lambda: self.advance(next(parts)), n


def noise_problem(m: int, n_p: int, seed: int = 0) -> Copies:
    """Random rows (m, n_p); the same on every rank, which does not affect the time."""
    X = torch.randn(m, n_p, generator=torch.Generator().manual_seed(seed)) / max(1, n_p) ** 0.5
    return Copies(Problem(DenseColumns(X), Bernoulli(), (X[:, 0] > 0).float()))


@dataclass(frozen=True, slots=True)
class _Sample:
    """One size of one recipe, with the counts and the timing of its outer iteration."""

    recipe: str
    s: int
    counts: Counts
    timing: Rounds


def measure_solvers(
    clock: Stopwatch, found: Measurements, progress: Progress = lambda label: None
) -> dict[str, SolverRates]:
    """Rates by "solver recipe", the same on all ranks; spreads and residuals are noted in `found`.

    SGD in one process is timed on rank 0 while the other ranks wait.
    """
    noise = {n: noise_problem(N_ROWS, n) for n in (N_NARROW, N_WIDE)}
    rates: dict[str, SolverRates] = {}
    solvers = [Contender(solver, "fp32", silent=True) for solver in RECIPES]
    for one in (*solvers, Contender("sgd", "fp32", alone=True)) if clock.comm.size > 1 else solvers:
        samples, recipes = [], RECIPES[one.solver]
        for recipe in announced(recipes, progress, f"solver: {one.solver}"):
            sizes = SGD_SIZES if one.solver == "sgd" else CA_SIZES
            samples += [_sample(clock, replace(one, recipe=recipe, s=s), noise[n], b) for n, b, s in sizes]
        gathers = {recipe: _gather_seconds(clock, noise[N_WIDE], recipe) for recipe in recipes}
        gemm = _gemm_seconds(clock, noise[N_WIDE]) if one.solver == "ca_sgd" else 0.0
        rates |= _fitted(one, samples, gathers, gemm, found)
    return rates


def measure_sync(clock: Stopwatch, cluster: Cluster, found: Measurements) -> float:
    """Waiting time per all-reduce and doubling of the ranks: measured iterations minus their predicted work and wire.

    At most the latency of the all-reduce: a larger value means that something else used the machine.
    """
    if clock.comm.size == 1:
        return 0.0
    noise, timings, extra = noise_problem(N_ROWS, N_NARROW), [], []
    job = GlmJob(N_ROWS, N_NARROW * clock.comm.size, batch_size=8)
    for contender in SYNC_CONTENDERS:
        run, _ = SolverRun.of(contender, noise, job.batch_size, clock.comm).rounds()
        timings.append(clock.time(run, rounds=3, seconds=0.03))
        predicted = cost(job, contender, cluster)
        extra.append(median(timings[-1]) - predicted.work_seconds - predicted.wire_seconds)
    found.note("waiting", timings)
    latency = total(all_reduce(0, cluster.all_reduce, cluster.n_ranks, cluster.algorithm))
    return min(max(0.0, median(extra)), latency) / doublings(cluster.n_ranks)


def _sample(clock: Stopwatch, one: Contender, noise: Copies, b: int) -> _Sample:
    run, iterations = SolverRun.of(one, noise, b, clock.comm).rounds()
    run = (lambda: 0.0) if one.alone and clock.comm.rank else run
    timing = [seconds * one.s / iterations for seconds in clock.time(run, rounds=3, seconds=0.02)]
    return _Sample(one.recipe, one.s, counts(GlmJob(N_ROWS, noise.problem.columns.n, batch_size=b), one, 1), timing)


def _gather_seconds(clock: Stopwatch, noise: Copies, recipe: str) -> float:
    """Seconds per value of a sampled row, to read it and convert it to float32."""
    columns = noise.stored_as(recipe_named(recipe)).columns
    rows = np.random.default_rng(0).integers(0, columns.m, GATHER_ROWS)
    timing = clock.time(lambda: columns.take(rows, torch.float32), rounds=3)
    return median(timing) / (GATHER_ROWS * columns.n)


def _gemm_seconds(clock: Stopwatch, noise: Copies) -> float:
    """Seconds per flop of the Gram product, which runs in float32 in every recipe."""
    cuts = np.arange(0, GEMM_ROWS + 1, GEMM_BATCH)
    Y = noise.problem.columns.take(np.random.default_rng(0).integers(0, N_ROWS, GEMM_ROWS), torch.float32)
    triangle, precision = torch.empty(triangle_size(cuts)), recipe_named("fp32")
    timing = clock.time(lambda: Y.gram(cuts, precision, triangle), rounds=3)
    return median(timing) / (2 * triangle_size(cuts) * N_WIDE)


def _fitted(
    one: Contender, samples: Sequence[_Sample], gathers: Mapping[str, float], gemm: float, found: Measurements
) -> dict[str, SolverRates]:
    """One fit for all recipes of a solver, of its timings minus the Gram product.

    The cost of an outer iteration and of a gathered value differs by recipe; that of rows, steps and entries of the
    Gram matrix is shared by all, so that few timings suffice.
    """
    recipes, is_ca = list(gathers), one.solver == "ca_sgd"

    def features(sample: _Sample) -> list[float]:
        own, found = [float(sample.recipe == recipe) for recipe in recipes], sample.counts
        shared = [found.rows, sample.s, found.pairs] if is_ca else [found.rows]
        return [*own, *(flag * found.values for flag in own), *shared]

    taken = [(median(sample.timing), gemm * sample.counts.gemm_flops) for sample in samples]
    left = [max(seconds - product, LEAST_LEFT * seconds) for seconds, product in taken]
    x, errors = fit_rates([features(sample) for sample in samples], left)
    outer, values, (row, step, pair) = x[: len(recipes)], x[len(recipes) :], [*x[2 * len(recipes) :], 0.0, 0.0][:3]
    rates = {}
    for i, recipe in enumerate(recipes):
        gather = min(gathers[recipe], values[i])  # the fit gives gather + flops per value; the gather was timed
        name = replace(one, recipe=recipe).series
        flop = (values[i] - gather) / (8 if is_ca else 4)
        rates[name] = SolverRates(outer[i], step, row, gather, flop, gemm, pair)
        own = [j for j, sample in enumerate(samples) if sample.recipe == recipe]
        found.note(name, [samples[j].timing for j in own], [errors[j] for j in own])
    return rates
