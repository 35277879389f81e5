"""Calibrate links, codecs and solvers on ranks of this machine or of torchrun, and save the result."""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from laconic.atomic_write import atomic_write
from laconic.data import read_gradient
from laconic.errors import InvalidOption, LaconicError, Option
from laconic.exchange import Communicator
from laconic.exchange.launch import Host, RankFailed, inside_torchrun, join_ranks, start_ranks
from laconic.measure.environment import Environment
from laconic.measure.solvers import measure_solvers, measure_sync
from laconic.planner import Cluster
from laconic.planner.calibrate import Measurements, find_device, measure
from laconic.planner.timing import Stopwatch

VERSION = 1
LOG_NORMAL = "log-normal values"
NOISY = 50.0
"""Spread of timings, in percent, above which the user is warned."""
RANK_FUNCTION = "laconic.measure.calibrate:calibrate_on_rank"
TIMEOUT_SECONDS = 180.0
N_PARTS = 22
"""Steps of a progress bar."""
MOST_RANKS = 64
UNCERTAIN = 0.4
"""A calibration with a larger relative uncertainty is repeated once. All ranks compute the same number."""
MEMORY_SHARE = 0.8
"""Share of the machine's memory that its ranks may use together."""


class CalibrationFailed(LaconicError):
    """The machine or its network could not be measured."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A measured cluster, and how it was measured.

    cluster    links and rates
    machine    processor, cores and versions
    device     "cpu" or "cuda"
    backend    of the process group
    noise      by quantity, (80th − 20th percentile) / median of its timings; of several, the median
    residuals  by quantity, the worst relative error of the fitted formula
    seconds    that the calibration took
    gradient   the values on which bits and errors of codecs were measured
    """

    cluster: Cluster
    machine: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    backend: str = "gloo"
    noise: Mapping[str, float] = field(default_factory=dict)
    residuals: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    gradient: str = LOG_NORMAL

    def to_json(self) -> dict[str, Any]:
        return {"laconic_calibration": VERSION, **asdict(self), "cluster": self.cluster.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Calibration":
        """The inverse of `to_json`; also reads the calibration inside a plan."""
        if isinstance(values, Mapping) and isinstance(values.get("calibration"), Mapping):
            values = values["calibration"]
        if not isinstance(values, Mapping) or values.get("laconic_calibration") != VERSION:
            raise ValueError(f"not a calibration of version {VERSION}; write one with laconic plan --save FILE.json")
        known = {name: values[name] for name in cls.__slots__ if name in values and name != "cluster"}
        return cls(Cluster.from_json(values.get("cluster", {})), **known)

    def save(self, path: Path) -> None:
        with atomic_write(path) as file:
            file.write(json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n")

    def lines(self) -> list[str]:
        """Sentences on the quality of the calibration."""
        spread, off = sorted(self.noise.values()), sorted(map(abs, self.residuals.values()))
        middle = [100 * x[len(x) // 2] if x else 0.0 for x in (spread, off)]
        first = f"calibrated in {self.seconds:.1f} s; timings spread by {middle[0]:.0f} %, median over what was timed"
        if spread and middle[0] > NOISY:
            worst = max(self.noise, key=lambda name: self.noise[name])
            first += f" ({worst} most): the machine is busy, mistrust this"
        lines = [first, f"the formulas are off by {middle[1]:.0f} % from those timings, median of the worst of each"]
        lines.append(f"bits and errors of codecs are those on {self.gradient}")
        if 100 * self.cluster.uncertainty > NOISY:
            lines.append("messages took very different times: others use the machine or the link; measure again")
        return lines


def calibrate_here(
    ranks: int,
    device: str = "cpu",
    progress: Callable[[str], None] = lambda label: None,
    function: str = RANK_FUNCTION,
    gradient: str | None = None,
) -> Calibration | None:
    """Start ranks and calibrate, or use those of torchrun; None on the ranks of torchrun other than the first.

    gradient  file of a gradient to measure codecs on; by default log-normal values

    Raises `CalibrationFailed`, which says in one line which rank did not answer.
    """
    find_device(device)
    arguments: dict[str, Any] = {"machine": asdict(Environment.here()), "device": device, "gradient": gradient}
    if inside_torchrun():
        arguments["ranks_here"] = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
        joined = join_ranks(function, arguments, timeout_seconds=TIMEOUT_SECONDS)
        return None if joined is None else Calibration.from_json(joined[0])
    if not 1 <= ranks <= MOST_RANKS:
        what = f" must be from 1 to {MOST_RANKS} to be started here, got {ranks}; plan for more from a file"
        raise InvalidOption(Option("ranks"), what)
    hosts = [Host()] * ranks
    try:
        results = start_ranks(function, arguments, hosts, timeout_seconds=TIMEOUT_SECONDS, progress=progress)
    except RankFailed as error:
        first, *rest = str(error).splitlines()
        raise CalibrationFailed(f"calibration failed: {first}{' ' + rest[-1].strip() if rest else ''}") from error
    return Calibration.from_json(results[0])


def calibrate_on_rank(progress: Callable[[str], None], **asked: Any) -> dict[str, Any]:
    """The result of `calibrate` on this process group as JSON, the same on every rank."""
    comm = Communicator.open()
    try:
        return calibrate(comm, progress=progress, **asked).to_json()
    finally:
        comm.close()


def calibrate(
    comm: Communicator,
    machine: Mapping[str, Any],
    device: str = "cpu",
    ranks_here: int | None = None,
    progress: Callable[[str], None] = lambda label: None,
    gradient: str | None = None,
) -> Calibration:
    """Measure links, codecs and solvers; collective. An uncertain calibration is repeated once and the better one kept.

    ranks_here  ranks that share this machine's memory; by default all
    """
    where, values = find_device(device), None if gradient is None else read_gradient(gradient)
    memory, tries = _memory(ranks_here or comm.size), []
    for told in (progress, lambda label: None):
        clock = Stopwatch(comm, where)
        cluster, found = _measured(clock, memory, told, values)
        seconds = clock.slowest([time.perf_counter() - clock.began])[0]
        about = (device, "gloo", found.noise, found.residuals, seconds, gradient or LOG_NORMAL)
        tries.append(Calibration(cluster, machine, *about))
        if cluster.uncertainty <= UNCERTAIN:
            break
    better = min(tries, key=lambda one: one.cluster.uncertainty)
    return replace(better, seconds=sum(one.seconds for one in tries))


def _measured(
    clock: Stopwatch, memory: float | None, progress: Callable[[str], None], gradient: torch.Tensor | None
) -> tuple[Cluster, Measurements]:
    found = measure(clock, progress=progress, gradient=gradient)
    solvers = measure_solvers(clock, found, progress)
    cluster = replace(found.cluster(clock.comm.size, memory), solvers=solvers, machine_bytes=_memory(1))
    return replace(cluster, sync_seconds=measure_sync(clock, cluster, found)), found


def _memory(ranks: int) -> float | None:
    """Bytes of memory per rank with this many ranks on the machine; None where unknown."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
    return MEMORY_SHARE * total / ranks
