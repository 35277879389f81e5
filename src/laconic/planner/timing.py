"""Time calls on all ranks together, and fit rates to the times.

Each call is made by all ranks at once, and the slowest rank's time counts.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.exchange.agreement import gather_json

ROUNDS = 5
ROUND_SECONDS, SHORT_ROUND = 0.02, 0.005
MOST_CALLS = 200
LONG_SECONDS = 0.03
"""A call that takes longer is timed only twice."""


Rounds = Sequence[float]
"""Seconds of one call in each round; the median counts."""


def spread(rounds: Rounds) -> float:
    """(80th − 20th percentile) / median.

    >>> spread((1.0, 2.0, 3.0))
    0.6
    """
    p20, middle, p80 = np.quantile(rounds, (0.2, 0.5, 0.8))
    return float(np.round((p80 - p20) / middle, 12)) if middle else 0.0


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Times calls on all ranks of a communicator together.

    device          synchronized before the clock is read
    budget_seconds  after this time, calls are timed only twice and in shorter rounds
    round_seconds   length of a round, which repeats short calls
    """

    comm: Communicator
    device: torch.device
    budget_seconds: float = 9.0
    round_seconds: float = ROUND_SECONDS
    began: float = field(default_factory=time.perf_counter)

    def now(self) -> float:
        """The clock in seconds, after synchronizing the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def time(self, run: Callable[[], object], rounds: int = ROUNDS, seconds: float | None = None) -> Rounds:
        """Seconds per call of `run`, round by round; collective, with the same calls and results on all ranks."""
        run()
        first, spent = self.slowest([self._round(run, 1), time.perf_counter() - self.began])
        late = spent > self.budget_seconds
        seconds = SHORT_ROUND if late else self.round_seconds if seconds is None else seconds
        calls = int(np.clip(seconds / max(first, 1e-9), 1, MOST_CALLS))
        own = []
        for _ in range(2 if late or first > LONG_SECONDS else rounds):
            self.comm.all_reduce(torch.zeros(1, dtype=torch.float32, device=self.device))()
            own.append(self._round(run, calls))
        return self.slowest(own)

    def late(self) -> bool:
        """Whether the budget is spent, on any rank; collective."""
        return self.slowest([time.perf_counter() - self.began])[0] > self.budget_seconds

    def slowest(self, values: Sequence[float]) -> list[float]:
        """The elementwise maximum of `values` over ranks."""
        return [max(some) for some in zip(*gather_json(self.comm, list(values), self.device), strict=True)]

    def _round(self, run: Callable[[], object], calls: int) -> float:
        start = self.now()
        for _ in range(calls):
            run()
        return (self.now() - start) / calls


PASSES = 5
TINY = 1e-12
"""Relative reduction of the sum of squares that a larger set of columns must bring."""
TOLERATED = 0.1
"""Threshold of Huber's loss: larger relative errors count linearly, not squared."""


def fit_rates(features: Sequence[Sequence[float]], seconds: Sequence[float]) -> tuple[list[float], list[float]]:
    """Non-negative rates x (k,) fitted to timings, and the relative error of each, predicted ÷ measured − 1.

        min over x ≥ 0 of Σ ρ(a_i·x / t_i − 1),   ρ of Huber;   features (n, k), seconds (n,)

    >>> fit_rates([[1, 10], [1, 1000], [1, 5000]], [1.02e-3, 3e-3, 11e-3])[0]
    [0.001, 2e-06]
    """
    A = np.asarray(features, dtype=np.float64)
    t = np.asarray(seconds, dtype=np.float64)
    scaled = A / t[:, None]
    largest = np.maximum(scaled.max(axis=0), 1e-300)  # scaled, since columns of very different size confuse the solver
    weights = np.ones(len(t))
    x = np.zeros(A.shape[1])
    for _ in range(PASSES):
        root = np.sqrt(weights)
        x = nonnegative_least_squares(scaled / largest * root[:, None], root) / largest
        errors = np.abs(scaled @ x - 1)
        weights = np.minimum(1.0, TOLERATED / np.maximum(errors, 1e-12))
    return [float(f"{value:.6g}") for value in x], [float(value) for value in scaled @ x - 1]


def nonnegative_least_squares(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """min over x ≥ 0 of ‖A x − b‖; A (n, k) with few columns.

    Tries ordinary least squares on every subset of the columns, the smallest first.

    >>> nonnegative_least_squares(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([2.0, -1.0]))
    array([2., 0.])
    """
    k = A.shape[1]
    best, least = np.zeros(k), float(b @ b)
    for used in (list(some) for n in range(1, k + 1) for some in combinations(range(k), n)):
        x = np.zeros(k)
        x[used] = np.linalg.lstsq(A[:, used], b, rcond=None)[0]
        error = float(np.sum((A @ x - b) ** 2))
        if x.min() >= 0 and error < (1 - TINY) * least:
            best, least = x, error
    return best
