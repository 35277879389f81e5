"""kill -9 at a random moment and a restart from the last checkpoint must give the bits of a run never killed.

A rank kills itself at some moment of a step, also around a checkpoint, or is killed after a random time. The others are
terminated, as torchrun does, and all are restarted, up to three times.
"""

import random
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from campaign.case import Broken, Case, Trial
from campaign.ranks import MOMENTS, SCHEMES, Death, ranks, results
from tests.glm.fits import write_problem

STEPS, EVERY, SEGMENTS = 8, 2, 26


def run(size: int, job: dict[str, Any], attempt: int, seconds: float | None = None) -> list[bytes] | None:
    """The final result of each rank; None if one was killed, after `seconds` or by itself."""
    with ranks(size, job, attempt) as (started, pipes):
        if seconds is not None:
            time.sleep(seconds)
            started[attempt % size].kill()
        found = results(pipes)
    if any(isinstance(one, tuple) for one in found) and None not in found:
        raise Broken(f"{job['kind']}, {job['scheme']}, {size} ranks: {found}")
    return None if None in found or any(isinstance(one, tuple) for one in found) else found


def prepare(kind: str) -> Trial:
    """Trials share only the results of runs without a kill."""
    base = Path(tempfile.mkdtemp())
    write_problem(base / "rows.safetensors")
    whole: dict[tuple[str, int], tuple[list[bytes], float]] = {}

    def job_of(scheme: str) -> dict[str, Any]:
        folder = Path(tempfile.mkdtemp(dir=base))
        return {"kind": kind, "scheme": scheme, "folder": str(folder), "steps": STEPS, "every": EVERY}

    def trial(rng: random.Random) -> str:
        scheme, size = rng.choice(list(SCHEMES[kind])), rng.choice((2, 2, 4))
        if (scheme, size) not in whole:
            begin = time.monotonic()
            found = run(size, job_of(scheme), 0)
            if found is None:
                raise Broken(f"{scheme}, {size} ranks: a rank died, and nobody had killed it")
            whole[scheme, size] = found, time.monotonic() - begin
        expected, took = whole[scheme, size]
        job, deaths = job_of(scheme), 0
        for attempt in range(rng.choice((1, 1, 2, 3))):
            death = Death(rng.randrange(size), rng.randrange(SEGMENTS if kind == "GLM" else STEPS), rng.choice(MOMENTS))
            by_clock = rng.random() < 0.4
            after = rng.random() * took if by_clock else None
            deaths += run(size, job | {"death": None if by_clock else death}, attempt, after) is None
        found = run(size, job, 9)
        shutil.rmtree(job["folder"])
        if found != expected:
            raise Broken(f"{kind}, {scheme}, {size} ranks: other bits after {deaths} deaths, the last {death}, {after}")
        return "killed" if deaths else "done before it was killed"

    return trial


CASES = [Case(f"kills, {kind}", 5, 125, partial(prepare, kind), 25, seconds=900.0) for kind in SCHEMES]
