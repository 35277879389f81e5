"""`python -m campaign`: try every case, and add what came of it to a document. See docs/security.md."""

import argparse
import json
import math
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

from campaign import cases
from campaign.case import Batch, Broken, Case, Row
from laconic.atomic_write import atomic_write
from laconic.bench.suite import document
from laconic.measure.environment import Environment

OUT = Path("runs/campaign.json")


def arguments() -> argparse.Namespace:
    """The command-line arguments."""
    parser = argparse.ArgumentParser("python -m campaign", description=__doc__)
    parser.add_argument("--full", action="store_true", help="make as many trials as `make campaign-full`")
    parser.add_argument(
        "--only", default=[], action="append", metavar="NAME", help="cases whose name begins so; again for more"
    )
    parser.add_argument("--seed", type=int, default=0, help="of new rows; default 0")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="workers at once; default 1; some start ranks")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help=f"the document; default {OUT}")
    parser.add_argument("--merge", type=Path, metavar="FILE", help="make no trials, but add those of another document")
    parser.add_argument("--commit", help="of the sources, where they have no history")
    return parser.parse_args()


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a document by case; none if there is no such file."""
    return {row["case"]: row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}


def row_of(case: Case, path: Path, seed: int) -> Row:
    """The row of a case in the document, or a row without trials."""
    known = read(path).get(case.name, {"seed": seed})
    return as_row(known | {"case": case.name, "reduced": case.reduced, "full": case.full})


def as_row(found: dict[str, Any]) -> Row:
    """A `Row` from a row of a document."""
    kept = {one.name: found[one.name] for one in fields(Row) if one.name in found}
    return Row(**{"begun": kept.get("tried", 0)} | kept)


def merge(path: Path, other: Path) -> None:
    """Add the trials of another document, which must have other seeds or other cases."""
    here, rows = read(path), []
    for name, found in read(other).items():
        row = as_row(here.get(name, found))
        if name in here:
            try:
                row.merge(as_row(found))
            except Broken as error:
                sys.exit(f"{other}: {error}")
        rows.append((row, Environment(**found["environment"])))
    for row, where in rows:
        add(path, row, where)


def add(path: Path, row: Row, here: Environment) -> None:
    """Write a row into the document, replacing that of its case; other rows may be from other runs."""
    row.commits = list(dict.fromkeys([*row.commits, str(here.commit)]))
    rows = read(path) | {row.case: document("", [row], here)["rows"][0]}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(json.dumps({"suite": "campaign", "rows": [rows[case] for case in sorted(rows)]}, indent=1) + "\n")


def runnable(only: Sequence[str]) -> dict[str, Case]:
    """The cases that this machine can run; others are reported on stderr."""
    found = {}
    for name, case in cases(only).items():
        try:
            case.needs()
            found[name] = case
        except Broken as error:
            sys.stderr.write(f"{name}: left out, since it {error}\n")
    return found


class Work:
    """The queue of batches, for threads that each watch one worker."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.out, self.commit = asked.out, asked.commit
        self.until: float = time.monotonic() + 60 * asked.minutes
        self.cases = runnable(asked.only)
        self.rows = {name: row_of(case, asked.out, asked.seed) for name, case in self.cases.items()}
        self.targets = {name: case.full if asked.full else case.reduced for name, case in self.cases.items()}
        self.left = {name: self.targets[name] - row.tried for name, row in self.rows.items()}
        self._lock = threading.Lock()

    def over(self) -> bool:
        """Whether time is up."""
        return time.monotonic() > self.until

    def stop(self, *_: object) -> None:
        """Let every worker end after its current trial."""
        self.until = -math.inf

    def take(self) -> Batch | None:
        """The next batch of the case that is furthest behind; None if none is left or time is up."""
        with self._lock:
            name = max(self.cases, key=lambda name: self.left[name] / self.targets[name])
            if self.left[name] <= 0 or self.over():
                return None
            case, row = self.cases[name], self.rows[name]
            n = min(case.batch, self.left[name])
            self.left[name] -= n
            row.begun += n
            return Batch(case, row.seed, row.begun - n, row.begun)

    def make(self) -> None:
        """Run batch after batch, and write each into the document."""
        while (batch := self.take()) is not None:
            batch.run(self.over)
            with self._lock:
                row = self.rows[batch.case.name]
                row.add(batch)
                self.left[row.case] += batch.last - batch.first - batch.tried
                add(self.out, row, Environment.here(self.commit, batch.case.device))
                sys.stdout.write(f"{row.case}: {row.tried} of {self.targets[row.case]} tried, {row.lost} lost\n")
                sys.stdout.flush()


def main() -> int:
    """Run batches until all are done or time is up; exit code 1 if a trial was lost."""
    asked = arguments()
    if asked.merge:
        merge(asked.out, asked.merge)
        return 0
    work = Work(asked)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, work.stop)
    with ThreadPoolExecutor(asked.jobs) as pool:
        for done in [pool.submit(work.make) for _ in range(asked.jobs)]:
            done.result()
    return 143 if work.until < 0 else 1 if any(row.lost for row in work.rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
