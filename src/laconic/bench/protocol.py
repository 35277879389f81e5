"""How a time is taken, and when it counts.

Warm-up dropped, median with 20th and 80th percentiles, baseline and contender in turn. A wrong answer stops the run:
its speed is of no interest.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from laconic.codec import Codec
from laconic.kernels import Stream
from laconic.quantizers import Quantizer

SAMPLE = 2**14
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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of a contender and of a baseline, and baseline ÷ contender: above 1 the contender is faster."""

    seconds: Spread
    baseline: Spread
    ratio: Spread

    @classmethod
    def of(cls, rounds: Sequence[tuple[float, float]]) -> "Comparison":
        """From the seconds of baseline and contender in each round."""
        theirs, ours = zip(*rounds, strict=True)
        return cls(Spread.of(ours), Spread.of(theirs), speedup(theirs, ours))


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


def check_codec(label: str, quantizer: Quantizer, v: torch.Tensor, stream: Stream) -> None:
    """What a codec makes of the first values must be what the plain-torch reference makes of them."""
    v, made = v[:SAMPLE], []
    for backend in ("auto", "reference"):
        codec = Codec(quantizer, backend=backend)
        made.append(codec.decode(codec.encode(v, stream, codec.new_memory(v))))
    ours, reference = made
    if not _squares(ours - reference) <= ROUNDOFF * _squares(reference - v):
        error, right = relative_error(ours, v), relative_error(reference, v)
        raise WrongResult(f"{label}: the error is {error:.4g} of ‖v‖², the reference's is {right:.4g}")


def check_symbols(label: str, decoded: torch.Tensor, symbols: torch.Tensor) -> None:
    """A lossless coder gives back what it was given."""
    if not torch.equal(decoded, symbols):
        raise WrongResult(f"{label}: the decoded symbols are not those that were encoded")


def _squares(v: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(v, dtype=torch.float64)) ** 2
