"""Times that all ranks agree on: each call is made by all at once, and the slowest rank's time counts."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.exchange.agreement import gather_json

ROUNDS = 5
ROUND_SECONDS, SHORT_ROUND = 0.02, 0.005
MOST_CALLS = 200
LONG_SECONDS = 0.03
"""A call that takes longer is timed twice only."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call, in each of some rounds."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """What counts."""
        return float(np.median(self.rounds))

    @property
    def noise(self) -> float:
        """(80th − 20th percentile) / median.

        >>> Timing((1.0, 2.0, 3.0)).noise
        0.6
        """
        p20, median, p80 = np.quantile(self.rounds, (0.2, 0.5, 0.8))
        return float(np.round((p80 - p20) / median, 12)) if median else 0.0

    def over(self, calls: float) -> "Timing":
        """Of one of so many things that a call does."""
        return Timing(tuple(x / calls for x in self.rounds))

    def __add__(self, other: "Timing") -> "Timing":
        """Both, as one."""
        return Timing(self.rounds + other.rounds)


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Times calls on all ranks of a communicator together.

    device          whose work must be done before the clock is read
    budget_seconds  after which every call is timed twice only, and for less long
    round_seconds   of a round, which repeats short calls
    """

    comm: Communicator
    device: torch.device
    budget_seconds: float = 9.0
    round_seconds: float = ROUND_SECONDS
    began: float = field(default_factory=time.perf_counter)

    def now(self) -> float:
        """Seconds, once the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def time(self, run: Callable[[], object], rounds: int = ROUNDS, seconds: float | None = None) -> Timing:
        """Of `run`, which all ranks call as often; collective, and the same on all of them."""
        run()
        first, spent = self.slowest([self._round(run, 1), time.perf_counter() - self.began])
        late = spent > self.budget_seconds
        seconds = SHORT_ROUND if late else self.round_seconds if seconds is None else seconds
        calls = int(np.clip(seconds / max(first, 1e-9), 1, MOST_CALLS))
        own = []
        for _ in range(2 if late or first > LONG_SECONDS else rounds):
            self.comm.all_reduce(torch.zeros(1, device=self.device))()
            own.append(self._round(run, calls))
        return Timing(tuple(self.slowest(own)))

    def late(self) -> bool:
        """Whether the budget is spent, on any rank; collective."""
        return self.slowest([time.perf_counter() - self.began])[0] > self.budget_seconds

    def slowest(self, values: Sequence[float]) -> list[float]:
        """The largest of all ranks', one by one."""
        return np.max(self.gather(values), axis=0).tolist()  # type: ignore[no-any-return]

    def gather(self, values: Sequence[float]) -> np.ndarray:
        """Everybody's numbers, (P, n)."""
        return np.array(gather_json(self.comm, list(values), self.device), dtype=np.float64)

    def _round(self, run: Callable[[], object], calls: int) -> float:
        start = self.now()
        for _ in range(calls):
            run()
        return (self.now() - start) / calls
