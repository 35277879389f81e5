"""The timing protocol: warm-up dropped, median with 20th and 80th percentiles, baseline and contender in turn.

A wrong result stops the run: its speed is of no interest.
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
    """A contender's result violates its own specification."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, 20th and 80th percentile of some samples."""

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
    """Seconds of a contender and a baseline, and their ratio baseline ÷ contender: above 1 the contender is faster."""

    seconds: Spread
    baseline: Spread
    ratio: Spread

    @classmethod
    def of(cls, rounds: Sequence[tuple[float, float]]) -> "Comparison":
        """The comparison of some rounds, each (baseline seconds, contender seconds)."""
        theirs, ours = zip(*rounds, strict=True)
        return cls(Spread.of(ours), Spread.of(theirs), speedup(theirs, ours))


def measure(run: Run, *, repeats: int, warmup: int = 1) -> Spread:
    """Seconds of one call."""
    for _ in range(warmup):
        run()
    return Spread.of([_seconds(run) for _ in range(repeats)])


def compare(run: Run, baseline: Run, *, repeats: int, warmup: int = 1) -> Comparison:
    """Seconds of one call, and its ratio to a baseline that runs just before it in every round.

    On a shared machine speed drifts from minute to minute, and so does a ratio of two medians taken far apart; the
    median of each round's own ratio does not.
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
    """Run the body on one core: our kernels use torch's number of threads."""
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
    """Raise `WrongResult` unless a codec agrees with the plain-torch reference on the first values."""
    v, made = v[:SAMPLE], []
    for backend in ("auto", "reference"):
        codec = Codec(quantizer, backend=backend)
        made.append(codec.decode(codec.encode(v, stream, codec.new_memory(v))))
    ours, reference = made
    if not _squares(ours - reference) <= ROUNDOFF * _squares(reference - v):
        error, right = relative_error(ours, v), relative_error(reference, v)
        raise WrongResult(f"{label}: the error is {error:.4g} of ‖v‖², the reference's is {right:.4g}")


def check_symbols(label: str, decoded: torch.Tensor, symbols: torch.Tensor) -> None:
    """Raise `WrongResult` unless a lossless coder returned its input."""
    if not torch.equal(decoded, symbols):
        raise WrongResult(f"{label}: the decoded symbols are not those that were encoded")


def _squares(v: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(v, dtype=torch.float64)) ** 2
