"""A case of the campaign, the process that tries it, and the count of what came of it.

The law of every trial: the right value or the documented exception, in bounded memory and time. A trial is a function
of a random generator; it returns the outcome in a word or two, and raises whatever breaks the law. Trials run in a
worker process, a batch at a time: a trial that kills or holds up its worker is lost, and the next worker goes on behind
it. Trial i of a case draws from Random(f"{seed} {case} {i}"), so that no trial is made twice and each can be repeated.
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
"""The number of the trial that is being made, in a file that worker and parent map."""
KEPT = 20
"""So many lost trials are described in the document."""


class Broken(Exception):
    """The law of a case does not hold: a wrong value, the wrong exception."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of trial.

    name      of the case; the row of the table comes first: "payloads, CPU"
    reduced   trials of `make campaign`; `full` those of `make campaign-full`
    prepare   called once in a worker; returns the trial
    batch     trials of one worker
    seconds   the longest that a trial may take, on a machine that is not overloaded; see `_watch`
    device    "cpu", or "cuda" of a worker that computes there
    memory    bytes that a worker may take beyond what it has after `prepare`; None for no limit
    needs     raises `Broken` with the reason where this machine cannot run it
    env       variables of the worker
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
    """What came of a case.

    tried, survived, lost  trials
    begun     the number of the next trial; workers at once, and one that was ended, leave numbers untried behind it
    outcomes  how often each outcome came, without what a worker that died had not yet told
    reduced, full          trials that were asked for
    seconds   of workers, their start included
    commits   that trials were made at
    losses    number, seed and error of the first lost trials
    merged    seeds of the trials that came from other documents
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
        """Of the full campaign."""
        return self.tried / self.full

    def add(self, batch: "Batch") -> None:
        """Count what became of a batch."""
        self._sum(batch, len(batch.losses), [{"seed": self.seed} | loss for loss in batch.losses])

    def merge(self, other: "Row") -> None:
        """Count the trials of another document's row, which were made with other seeds."""
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
    """Trials first to last - 1 of a case, for one worker, and what became of them.

    tried     how many were made
    outcomes, losses  as the worker told them
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
        """Make the trials in a worker of their own, which ends after the trial that it is at once `over` says so."""
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
        """Take what a worker told; where it did not come to its end, the trial it was at is lost."""
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
    """Wait for a worker's end; True where a trial took longer than it may. To begin, it has half an hour.

    Where k processes share a core, a second counts for 1/k: a machine that has too much to do loses no trial.
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
