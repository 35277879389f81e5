"""Rates of our solvers: a handful of small outer iterations, timed on all ranks at once, and a fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch

from laconic.bench.glm_contenders import Contender
from laconic.bench.plan_lane import Lane, Noise
from laconic.planner import Cluster, GlmJob, GlmOption, SolverRates
from laconic.planner.calibrate import Findings, Tell
from laconic.planner.fit import fit
from laconic.planner.glm import cost, counts
from laconic.planner.timing import Clock, Timing

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
WAYS = (("sgd", "fp32"), ("sgd", "C"), ("ca_sgd", "fp32"), ("ca_sgd", "C"), ("ca_sgd", "D"))
TALKING = (("sgd", "fp32", 1), ("sgd", "C", 1), ("ca_sgd", "fp32", 8), ("ca_sgd", "C", 16), ("ca_sgd", "fp32", 32))
"""(solver, recipe, s) of real iterations."""
GATHER_ROWS = 256


@dataclass(frozen=True, slots=True)
class _Sample:
    """One size, the counts of its outer iteration, and its time."""

    features: list[float]
    timing: Timing


def measure_solvers(clock: Clock, found: Findings, tell: Tell = lambda label: None) -> dict[str, SolverRates]:
    """Rates by "solver recipe", the same on all ranks; spreads and residuals are noted in `found`."""
    noise = {n: Noise.of(N_ROWS, n) for n in (N_NARROW, N_WIDE)}
    rates = {}
    for solver, recipe in WAYS:
        name = f"{solver} {recipe}"
        tell(f"solver: {name}")
        sizes = SGD_SIZES if solver == "sgd" else CA_SIZES
        samples = [_sample(clock, GlmOption(solver, recipe, s), noise[n], n, b) for n, b, s in sizes]
        fitted = fit([sample.features for sample in samples], [sample.timing.median for sample in samples])
        found.note(name, [sample.timing for sample in samples], fitted.residuals)
        rates[name] = _rates(fitted.coefficients, _gather_seconds(clock, noise[N_WIDE], recipe), solver)
    return rates


def measure_sync(clock: Clock, cluster: Cluster, found: Findings) -> float:
    """Seconds of a message beyond its own and the work's: real iterations, with messages, over predictions."""
    if clock.comm.size == 1:
        return 0.0
    noise, timings, extra = Noise.of(N_ROWS, N_NARROW), [], []
    job = GlmJob(N_ROWS, N_NARROW * clock.comm.size, batch_size=8)
    for solver, recipe, s in TALKING:
        lane = Lane.of(Contender(solver, recipe, s), noise, job.batch_size, clock.comm)
        timings.append(clock.time(lane.run, rounds=3, seconds=0.03))
        predicted = cost(job, GlmOption(solver, recipe, s), cluster)
        extra.append(timings[-1].median - predicted.work_seconds - predicted.wire_seconds)
    found.note("waiting", timings)
    return max(0.0, median(extra))


def _sample(clock: Clock, option: GlmOption, noise: Noise, n: int, b: int) -> _Sample:
    lane = Lane.of(Contender(option.solver, option.recipe, option.s, silent=True), noise, b, clock.comm)
    timing = clock.time(lane.run, rounds=3, seconds=0.02)
    timing = timing.over(lane.iterations / option.s)
    c = counts(GlmJob(N_ROWS, n, batch_size=b), option, 1)
    features = [1.0, c.rows, c.values]
    if option.solver == "ca_sgd":
        features += [option.s, c.gemm_flops, c.pairs]
    return _Sample(features, timing)


def _gather_seconds(clock: Clock, noise: Noise, recipe: str) -> float:
    """Of a value of a row that is sampled: read where it lies, and widened."""
    columns = noise.blocks[torch.float32 if recipe == "fp32" else torch.bfloat16]
    rows = noise.order[:GATHER_ROWS]
    timing = clock.time(lambda: columns.take(rows, torch.float32), rounds=3)
    return timing.median / (GATHER_ROWS * columns.n)


def _rates(x: Sequence[float], gather: float, solver: str) -> SolverRates:
    """The fit tells the cost of a gathered value with the flops it takes part in; the gather alone was timed."""
    iteration, row, value = x[:3]
    step, gemm, pair = x[3:] if solver == "ca_sgd" else (0.0, 0.0, 0.0)
    gather = min(gather, value)
    flops = 4 if solver == "sgd" else 8
    return SolverRates(iteration, step, row, gather, (value - gather) / flops, gemm, pair)
