"""How a time is taken, and when it counts.

Warm-up dropped, median with 20th and 80th percentiles, baseline and contender in turn. A wrong answer stops the run:
its speed is of no interest.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from laconic.kernels import Norm
from laconic.kernels.dither import CELL, RAW_ABOVE
from laconic.quantizers import Bucketed, Dithered, Quantizer

SAMPLE = 2**20
DEVIATIONS = 8.0
ROUNDOFF = 1e-3

Run = Callable[[], object]


class WrongResult(RuntimeError):
    """A benchmark's contender gave an answer that its own definition excludes."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median of some samples, between their 20th and 80th percentiles."""

    median: float
    p20: float
    p80: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Spread":
        """The spread of at least one sample.

        >>> Spread.of([3.0, 1.0, 2.0]).median
        2.0
        """
        p20, median, p80 = (float(q) for q in np.quantile(samples, (0.2, 0.5, 0.8)))
        return cls(median, p20, p80)

    @classmethod
    def exactly(cls, value: float) -> "Spread":
        """Of something that does not vary."""
        return cls(value, value, value)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A contender against a baseline.

    seconds   of the contender
    baseline  seconds of the baseline
    ratio     baseline / contender within a round, so above 1 the contender is faster
    """

    seconds: Spread
    baseline: Spread
    ratio: Spread

    @classmethod
    def of(cls, rounds: Sequence[tuple[float, float]]) -> "Comparison":
        """From the seconds of baseline and contender in each round."""
        theirs, ours = zip(*rounds, strict=True)
        return cls(Spread.of(ours), Spread.of(theirs), Spread.of([b / o for b, o in rounds]))


def measure(run: Run, *, repeats: int, warmup: int = 1) -> Spread:
    """Seconds of one call."""
    for _ in range(warmup):
        run()
    return Spread.of([_seconds(run) for _ in range(repeats)])


def compare(run: Run, baseline: Run, *, repeats: int, warmup: int = 1) -> Comparison:
    """Seconds of one call, and its ratio to a baseline that runs just before it in every round.

    On a machine with neighbours the clock drifts from minute to minute. A ratio of two medians taken far apart drifts
    too; the median of the rounds' own ratios does not.
    """
    for _ in range(warmup):
        baseline()
        run()
    return Comparison.of([(_seconds(baseline), _seconds(run)) for _ in range(repeats)])


def speedup(baseline: Sequence[float], ours: Sequence[float]) -> Spread:
    """Baseline over ours, round by round."""
    return Spread.of([b / max(o, 1e-9) for b, o in zip(baseline, ours, strict=True)])


@contextmanager
def one_thread() -> Iterator[None]:
    """One core for what is inside: our kernels follow torch's number of threads."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _seconds(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def relative_error(decoded: torch.Tensor, v: torch.Tensor) -> float:
    """‖decoded − v‖² / ‖v‖², and 0 where both are zero."""
    size = _squares(v)
    error = _squares(decoded - v)
    return error / size if size else error


def check_error(label: str, quantizer: Quantizer, v: torch.Tensor, decoded: torch.Tensor) -> None:
    """Compare the error of the last buckets, about 2**20 values of them, with what it must be.

    An unbiased scheme between levels l ≤ r ≤ u has E[error] = (u − r)(r − l) for a value r, exactly, and a known
    deviation; values are independent. Dither has Δ²/12. The other schemes are not random, so that their bounds hold
    each time.
    """
    start = _last_buckets(v.numel(), quantizer.bucket_size)
    v, decoded = v[start:], decoded[start:]
    error = relative_error(decoded, v)
    if isinstance(quantizer, Bucketed | Dithered) and quantizer.unbiased:
        mean, deviation = expected_error(quantizer, v)
        if not abs(error - mean) <= DEVIATIONS * deviation + ROUNDOFF * mean:
            raise WrongResult(f"{label}: the error is {error:.4g} of ‖v‖², expected {mean:.4g} ± {deviation:.2g}")
    elif not error <= quantizer.variance_bound(v.numel()) * (1 + ROUNDOFF):
        raise WrongResult(f"{label}: the error is {error:.4g} of ‖v‖², above {quantizer.variance_bound(v.numel()):.4g}")


def expected_error(quantizer: Bucketed | Dithered, v: torch.Tensor) -> tuple[float, float]:
    """E‖Q(v) − v‖² / ‖v‖² of these very values, and the standard deviation of one draw around it."""
    size = _squares(v)
    mean, variance = _level_error(quantizer, v) if isinstance(quantizer, Bucketed) else _dither_error(quantizer, v)
    return (mean / size, math.sqrt(variance) / size) if size else (0.0, 0.0)


def _level_error(quantizer: Bucketed, v: torch.Tensor) -> tuple[float, float]:
    levels = torch.tensor(quantizer.grid.levels, dtype=torch.float64)
    mean = variance = 0.0
    for bucket in torch.split(v.double(), quantizer.bucket_size):
        norm = bucket.abs().max() if quantizer.norm is Norm.LINF else torch.linalg.vector_norm(bucket)
        r = (bucket.abs() / norm).nan_to_num(0.0).clamp(max=1.0)
        above = torch.bucketize(r, levels).clamp(min=1)
        up, down = levels[above] - r, r - levels[above - 1]
        mean += float((up * down).sum() * norm**2)
        variance += float((up * down * (up - down) ** 2).sum() * norm**4)
    return mean, variance


def _dither_error(quantizer: Dithered, v: torch.Tensor) -> tuple[float, float]:
    """An error is uniform on ±Δ/2, unless the value is sent as it is, or its cell is all zeros."""
    mean = variance = 0.0
    cells = torch.nn.functional.pad(v, (0, -v.numel() % CELL)).view(-1, CELL)
    rounded = cells.any(1).repeat_interleave(CELL)[: v.numel()]
    parts = (torch.split(one, quantizer.bucket_size) for one in (v, rounded))
    for bucket, some, step in zip(*parts, quantizer.steps(v)[0].tolist(), strict=True):
        n_coded = int(((bucket.abs() <= RAW_ABOVE * step) & some).sum())
        mean += n_coded * step**2 / 12
        variance += n_coded * step**4 / 180
    return mean, variance


def check_symbols(label: str, decoded: torch.Tensor, symbols: torch.Tensor) -> None:
    """A lossless coder gives back what it was given."""
    if not torch.equal(decoded, symbols):
        raise WrongResult(f"{label}: the decoded symbols are not those that were encoded")


def _squares(v: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(v, dtype=torch.float64)) ** 2


def _last_buckets(n: int, bucket_size: int) -> int:
    """Where the last whole buckets begin that hold at most `SAMPLE` values, one of them at least."""
    n_buckets = -(-n // bucket_size)
    return max(0, n_buckets - max(1, SAMPLE // bucket_size)) * bucket_size
