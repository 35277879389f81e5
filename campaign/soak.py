"""Long runs: replicas stay equal, and memory, descriptors and threads do not grow.

A trial is 2,000 steps of one scheme on two ranks. The peak of a process from step 1,500 on is compared with the peak
from step 1,000 to 1,500; before that, codes of variable size still make the allocator's heap grow.
"""

import random
import tempfile
from functools import partial

import torch

from campaign.case import Broken, Case, Trial
from campaign.ranks import SCHEMES, ranks, results

STEPS, WARM, MOST_KIB = 2000, 1000, 1024.0


def prepare(kind: str) -> Trial:
    """Trials share nothing."""

    def trial(rng: random.Random) -> str:
        scheme = rng.choice(list(SCHEMES[kind]))
        job = {
            "kind": kind,
            "scheme": scheme,
            "folder": tempfile.mkdtemp(),
            "work": "soak",
            "steps": STEPS,
            "warm": WARM,
        }
        with ranks(2, job) as (_, pipes):
            found = results(pipes)
        for rank, one in enumerate(found):
            if not isinstance(one, bytes):
                raise Broken(f"{kind}, {scheme}, rank {rank}: {one}")
            kib, descriptors, threads, differed = torch.frombuffer(bytearray(one), dtype=torch.float32).tolist()
            if kib > MOST_KIB or descriptors > 0 or threads > 0 or differed:
                raise Broken(
                    f"{kind}, {scheme}, rank {rank}: {kib} KiB, {descriptors} descriptors and {threads} threads more; "
                    f"parameters differed {differed} times"
                )
        return scheme

    return trial


CASES = [
    Case("soak, DDP", 3, 300, partial(prepare, "DDP"), 20, 900.0),
    Case("soak, FSDP", 1, 100, partial(prepare, "FSDP"), 20, 900.0),
    Case("soak, decentralised", 1, 100, partial(prepare, "decentralised"), 20, 900.0),
]
