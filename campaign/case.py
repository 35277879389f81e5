"""A case of the campaign, the worker processes that run its trials, and the counts of outcomes.

The law of every trial: the right value or the documented exception, in bounded memory and time. A trial is a function
of a random generator; it returns the outcome in a word or two, and raises an exception if it breaks the law. Trials run
in a worker process, a batch at a time: a trial that kills or hangs its worker is lost, and the next worker continues
after it. Trial i of a case draws from Random(f"{seed} {case} {i}"), so that all trials differ and each is reproducible.
"""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Trial = Callable[[random.Random], str]
PLACE = struct.Struct("<q")
"""The number of the current trial, in a file that worker and parent map."""
KEPT = 20
"""Lost trials described in the document, at most."""


class Broken(Exception):
    """A trial broke the law of its case: a wrong value or the wrong exception."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of trial.

    name      begins with the row of the table in docs/security.md: "payloads, CPU"
    reduced   trials of `make campaign`; `full` those of `make campaign-full`
    prepare   called once in a worker; returns the trial
    batch     trials per worker
    seconds   time limit of a trial on a machine that is not overloaded; see `_watch`
    device    of the worker: "cpu" or "cuda"
    memory    bytes that a worker may allocate after `prepare`; None for no limit
    needs     raises `Broken` with the reason if this machine cannot run it
    env       environment variables of the worker
    """

    name: str
    reduced: int
    full: int
    prepare: Callable[[], Trial]
    batch: int
    seconds: float = 400.0
    device: str = "cpu"
    memory: int | None = None
    needs: Callable[[], None] = lambda: None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Row:
    """The results of a case.

    tried, survived, lost  trials
    begun     number of the next trial; parallel or stopped workers leave some lower numbers untried
    outcomes  count of each outcome, without those that a worker had not reported when it died
    reduced, full          requested trials
    seconds   of workers, including their start
    commits   at which trials were made
    losses    number, seed and error of the first lost trials
    merged    seeds of the trials from other documents
    """

    case: str
    reduced: int
    full: int
    seed: int = 0
    tried: int = 0
    begun: int = 0
    lost: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    commits: list[str] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)
    merged: list[int] = field(default_factory=list)

    @property
    def survived(self) -> int:
        return self.tried - self.lost

    @property
    def share(self) -> float:
        """Trials made, as a share of the full campaign."""
        return self.tried / self.full

    def add(self, batch: "Batch") -> None:
        """Add the counts of a batch."""
        self._sum(batch, len(batch.losses), [{"seed": self.seed} | loss for loss in batch.losses])

    def merge(self, other: "Row") -> None:
        """Add the counts of another document's row, which must have other seeds."""
        if twice := {self.seed, *self.merged} & {other.seed, *other.merged}:
            what = f"trials of {self.case!r} with seed {min(twice)} are here already"
            raise Broken(f"{what}; make some with another --seed")
        self.merged += [other.seed, *other.merged]
        self.commits = list(dict.fromkeys([*self.commits, *other.commits]))
        self._sum(other, other.lost, other.losses)

    def _sum(self, more: "Row | Batch", lost: int, losses: list[dict[str, Any]]) -> None:
        self.tried += more.tried
        self.lost += lost
        self.seconds += more.seconds
        for outcome, times in more.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + times
        for loss in losses[: max(0, KEPT - len(self.losses))]:
            self.losses.append(loss | {"error": loss["error"][-2000:]})


@dataclass(slots=True)
class Batch:
    """Trials first to last - 1 of a case, for one worker, and their results.

    tried     number of trials made
    outcomes, losses  as reported by the worker
    """

    case: Case
    seed: int
    first: int
    last: int
    tried: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    losses: list[dict[str, Any]] = field(default_factory=list)

    def run(self, over: Callable[[], bool] = lambda: False) -> None:
        """Run the trials in a new worker, which stops after its current trial once `over()` is true."""
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "place"
            place.write_bytes(PLACE.pack(self.first - 1))
            numbers = map(str, (self.seed, self.first, self.last, place))
            command = [sys.executable, "-m", "campaign.worker", self.case.name, *numbers]
            path = os.pathsep.join(filter(None, sys.path))
            env = {**os.environ, **self.case.env, "TMPDIR": folder, "PYTHONPATH": path}
            with (Path(folder) / "out").open("w+") as out, (Path(folder) / "err").open("w+") as err:
                worker = subprocess.Popen(command, env=env, stdout=out, stderr=err, start_new_session=True)
                try:
                    hung = _watch(worker, place, self.case.seconds, over)
                finally:
                    with suppress(ProcessLookupError):
                        os.killpg(worker.pid, 9)
                    worker.wait()
                out.seek(0), err.seek(0)
                told = [json.loads(line) for line in out if line.startswith("{") and line.endswith("}\n")]
                end = "no trial was over in time" if hung else f"the worker ended with {worker.returncode}"
                if _at(place) >= self.first or not over():
                    self._count(told, _at(place), f"{end}: {err.read()[-1500:]}")
        self.seconds = time.monotonic() - begin

    def _count(self, told: list[dict[str, Any]], at: int, end: str) -> None:
        """Take over a worker's last report; if the worker did not finish, its current trial is lost."""
        final: dict[str, Any] = told[-1] if told else {"outcomes": {}, "losses": [], "done": False}
        self.outcomes, self.losses, self.tried = final["outcomes"], final["losses"], at + 1 - self.first
        if not final["done"]:
            if not self.tried:
                raise RuntimeError(f"{self.case.name}: no trial was begun; {end}")
            self.losses.append({"number": at, "error": end})


def _at(place: Path) -> int:
    number: int = PLACE.unpack(place.read_bytes())[0]
    return number


def _watch(worker: "subprocess.Popen[bytes]", place: Path, seconds: float, over: Callable[[], bool]) -> bool:
    """Wait for a worker to end; True if a trial exceeded its time limit. The start may take half an hour.

    While k processes share a core, a second counts as 1/k, so that no trial is lost to an overloaded machine.
    """
    at, spent, limit, before = _at(place), 0.0, 1800.0, time.monotonic()
    while True:
        with suppress(subprocess.TimeoutExpired):
            worker.wait(0.5)
            return False
        now, clock = _at(place), time.monotonic()
        spent, before = spent + (clock - before) / max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), clock
        if over():
            worker.terminate()
        if now != at:
            at, spent, limit = now, 0.0, seconds
        elif spent > limit:
            return True
