"""`python -m campaign`: try every case, and add what came of it to a document. See docs/security.md."""

import argparse
import json
import signal
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from campaign import cases
from campaign.case import Broken, Case, Row, run_batch
from laconic.atomic_write import atomic_write
from laconic.bench.suite import document
from laconic.measure.environment import Environment

OUT = Path("runs/campaign.json")


def arguments() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser("python -m campaign", description=__doc__)
    parser.add_argument("--full", action="store_true", help="make as many trials as `make campaign-full`")
    parser.add_argument("--only", default="", metavar="NAME", help="only cases whose name begins so")
    parser.add_argument("--seed", type=int, default=0, help="of new rows; default 0")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help=f"the document; default {OUT}")
    parser.add_argument("--commit", help="of the sources, where they have no history")
    return parser.parse_args()


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a document by case; none if there is no such file."""
    return {row["case"]: row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}


def row_of(case: Case, path: Path, seed: int) -> Row:
    """What the document has of a case, or a row without trials."""
    known = [one.name for one in fields(Row)]
    found = read(path).get(case.name, {"seed": seed})
    kept = {name: found[name] for name in known if name in found}
    return Row(**kept | {"case": case.name, "reduced": case.reduced, "full": case.full})


def add(path: Path, row: Row, here: Environment) -> None:
    """Write a row into the document, in place of the case's former one; the other rows may be another run's."""
    row.commits = list(dict.fromkeys([*row.commits, str(here.commit)]))
    rows = read(path) | {row.case: document("", [row], here)["rows"][0]}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(json.dumps({"suite": "campaign", "rows": [rows[case] for case in sorted(rows)]}, indent=1) + "\n")


def runnable(only: str) -> dict[str, Case]:
    """The cases that this machine can run; what it cannot is said."""
    found = {}
    for name, case in cases(only).items():
        try:
            case.needs()
            found[name] = case
        except Broken as error:
            sys.stderr.write(f"{name}: left out, since it {error}\n")
    return found


def main() -> int:
    """Make batches of the case that is furthest behind, until all are done or time is out; 1 if a trial was lost."""
    asked, begin = arguments(), time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the worker is ended, too
    wanted = runnable(asked.only)
    targets = {name: case.full if asked.full else case.reduced for name, case in wanted.items()}
    rows = {name: row_of(case, asked.out, asked.seed) for name, case in wanted.items()}
    while time.monotonic() - begin < 60 * asked.minutes:
        name = min(wanted, key=lambda name: rows[name].tried / targets[name])
        case, row, left = wanted[name], rows[name], targets[name] - rows[name].tried
        if left <= 0:
            break
        here = Environment.here(asked.commit, case.device)
        run_batch(case, row, min(case.batch, left), begin + 60 * asked.minutes)
        add(asked.out, row, here)
        sys.stdout.write(f"{row.case}: {row.tried} of {targets[name]} tried, {row.lost} lost\n")
        sys.stdout.flush()
    return 1 if any(row.lost for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
