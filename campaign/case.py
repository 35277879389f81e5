"""A case of the campaign, the process that tries it, and the count of what came of it.

The law of every trial: the right value or the documented exception, in bounded memory and time. A trial is a function
of a random generator; it returns the outcome in a word or two, and raises whatever breaks the law. Trials run in a
worker process, a batch at a time: a trial that kills or holds up its worker is lost, and the next worker goes on behind
it. Trial i of a case draws from Random(f"{seed} {case} {i}"), so that no trial is made twice and each can be repeated.
"""

import json
import math
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
    seconds   the longest that a trial may take
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
    outcomes  how often each outcome came, without what a worker that died had not yet told
    reduced, full          trials that were asked for
    seconds   of workers, their start included
    commits   that trials were made at
    losses    number, seed and error of the first lost trials
    """

    case: str
    reduced: int
    full: int
    seed: int = 0
    tried: int = 0
    lost: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    commits: list[str] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)

    @property
    def survived(self) -> int:
        return self.tried - self.lost

    @property
    def share(self) -> float:
        """Of the full campaign."""
        return self.tried / self.full

    def lose(self, number: int, error: str) -> None:
        """Count a lost trial."""
        self.lost += 1
        if len(self.losses) < KEPT:
            self.losses.append({"number": number, "seed": self.seed, "error": error[-2000:]})


def run_batch(case: Case, row: Row, n: int, until: float = math.inf) -> None:
    """Make the next n trials of a case in a worker of its own, fewer where that takes too long, and count them.

    until  by `time.monotonic`, when to end the worker after the trial that it is at
    """
    first, last, begin = row.tried, row.tried + n, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "place"
        place.write_bytes(PLACE.pack(first - 1))
        command = [sys.executable, "-m", "campaign.worker", case.name, *map(str, (row.seed, first, last, place))]
        env = {**os.environ, **case.env, "TMPDIR": folder, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with (Path(folder) / "out").open("w+") as out, (Path(folder) / "err").open("w+") as err:
            worker = subprocess.Popen(command, env=env, stdout=out, stderr=err, start_new_session=True)
            try:
                hung = _watch(worker, place, case.seconds, until)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(worker.pid, 9)
                worker.wait()
            out.seek(0), err.seek(0)
            told = [json.loads(line) for line in out if line.startswith("{") and line.endswith("}\n")]
            end = "no trial was over in time" if hung else f"the worker ended with {worker.returncode}"
            if _at(place) >= first or time.monotonic() < until:
                _count(row, told, _at(place), f"{end}: {err.read()[-1500:]}")
    row.seconds += time.monotonic() - begin


def _count(row: Row, told: list[dict[str, Any]], at: int, end: str) -> None:
    """Add what a worker told; where it did not come to its end, the trial it was at is lost."""
    final: dict[str, Any] = told[-1] if told else {"outcomes": {}, "losses": [], "done": False}
    for outcome, times in final["outcomes"].items():
        row.outcomes[outcome] = row.outcomes.get(outcome, 0) + times
    for loss in final["losses"]:
        row.lose(loss["number"], loss["error"])
    first, row.tried = row.tried, at + 1
    if not final["done"]:
        if at < first:
            raise RuntimeError(f"{row.case}: no trial was begun; {end}")
        row.lose(at, end)


def _at(place: Path) -> int:
    number: int = PLACE.unpack(place.read_bytes())[0]
    return number


def _watch(worker: "subprocess.Popen[bytes]", place: Path, seconds: float, until: float) -> bool:
    """Wait for a worker's end; True where a trial took longer than it may. To begin, it has half an hour."""
    at, since, limit = _at(place), time.monotonic(), 1800.0
    while True:
        with suppress(subprocess.TimeoutExpired):
            worker.wait(0.5)
            return False
        now = _at(place)
        if time.monotonic() > until:
            worker.terminate()
        if now != at:
            at, since, limit = now, time.monotonic(), seconds
        elif time.monotonic() - since > limit:
            return True
