"""What each rank does for `laconic plan` and in the suite `plan`: measure links, codecs and solvers."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from laconic.bench.plan.solver import measure_solvers, measure_sync
from laconic.exchange import Communicator
from laconic.planner.calibrate import find_device, measure
from laconic.planner.calibration import Calibration
from laconic.planner.timing import Stopwatch

UNCERTAIN = 0.4
"""A calibration that is off by more is made once more; all ranks know the same number."""
MEMORY_SHARE = 0.8
"""Of the machine's memory that its ranks may use together."""


def calibrate_on_rank(
    tell: Callable[[str], None], *, machine: Mapping[str, Any], device: str = "cpu", ranks_here: int | None = None
) -> dict[str, Any]:
    """The calibration of this process group as JSON, the same on every rank."""
    comm = Communicator.open()
    try:
        return calibrate(comm, machine, device, ranks_here, tell).to_json()
    finally:
        comm.close()


def calibrate(
    comm: Communicator,
    machine: Mapping[str, Any],
    device: str = "cpu",
    ranks_here: int | None = None,
    tell: Callable[[str], None] = lambda label: None,
) -> Calibration:
    """Links, codecs, solvers; collective. Where messages took very different times, once more: the better one counts.

    ranks_here  ranks that share this machine's memory; by default all
    """
    first = _calibrate(comm, machine, device, ranks_here, tell)
    if first.cluster.uncertainty <= UNCERTAIN:
        return first
    second = _calibrate(comm, machine, device, ranks_here, lambda label: None)
    better = min(first, second, key=lambda found: found.cluster.uncertainty)
    return replace(better, seconds=first.seconds + second.seconds)


def _calibrate(
    comm: Communicator, machine: Mapping[str, Any], device: str, ranks_here: int | None, tell: Callable[[str], None]
) -> Calibration:
    began = time.perf_counter()
    where = find_device(device)
    clock = Stopwatch(comm, where)
    found = measure(clock, tell=tell)
    solvers = measure_solvers(clock, found, tell)
    cluster = replace(found.cluster(comm.size, _memory(ranks_here or comm.size)), solvers=solvers)
    cluster = replace(cluster, sync_seconds=measure_sync(clock, cluster, found))
    seconds = clock.slowest([time.perf_counter() - began])[0]
    return Calibration(cluster, machine, device, "gloo", found.noise, found.residuals, seconds)


def _memory(ranks: int) -> float | None:
    """Bytes for each of the ranks on this machine."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
    return MEMORY_SHARE * total / ranks
