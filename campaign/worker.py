"""`python -m campaign.worker CASE SEED FIRST LAST PLACE`: the process that runs the trials of a batch."""

import json
import mmap
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaign import cases
from campaign.case import PLACE, Broken, Case


def work(case: Case, seed: int, first: int, last: int, place: Path) -> None:
    """Run trials first to last - 1, printing counts as lines of JSON about every second; SIGTERM stops it."""
    stopped: list[object] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    trial = case.prepare()
    if case.memory is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + case.memory,) * 2)
    outcomes: Counter[str] = Counter()
    losses: list[dict[str, Any]] = []
    with place.open("r+b") as file, mmap.mmap(file.fileno(), PLACE.size) as shared:
        told = time.monotonic()
        for number in range(first, last):
            if stopped:
                break
            PLACE.pack_into(shared, 0, number)
            try:
                outcomes[trial(random.Random(f"{seed} {case.name} {number}"))] += 1
            except Exception as error:  # noqa: BLE001 (any exception breaks the law)
                losses.append({"number": number, "error": traceback.format_exc()})
                if case.device != "cpu" and not isinstance(error, Broken):
                    stopped.append(error)  # after a fault the process cannot use the GPU any more
            if time.monotonic() - told > 1:
                told = time.monotonic()
                _tell(outcomes, losses, False)
    _tell(outcomes, losses, True)


def _tell(outcomes: Mapping[str, int], losses: list[dict[str, Any]], done: bool) -> None:
    sys.stdout.write(json.dumps({"outcomes": outcomes, "losses": losses, "done": done}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    name, seed, first, last, place = sys.argv[1:]
    work(cases()[name], int(seed), int(first), int(last), Path(place))
