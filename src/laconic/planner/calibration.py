"""A cluster as it was measured, with what it was measured on and how well; kept in a file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from laconic.atomic_write import atomic_write
from laconic.errors import LaconicError
from laconic.planner.cluster import Cluster

VERSION = 1
NOISY = 50.0
"""Percent of spread above which people are warned."""


class CalibrationFailed(LaconicError):
    """The machine or its network could not be measured."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured.

    cluster    links and rates
    machine    what it was measured on: processor, cores, versions
    device     "cpu" or "cuda"
    backend    of the process group
    noise      by quantity, (80th − 20th percentile) / median of its timings; of several, the median
    residuals  by quantity, how far the fitted formula is from its timings, relatively: the worst of them
    seconds    that it took
    """

    cluster: Cluster
    machine: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    backend: str = "gloo"
    noise: Mapping[str, float] = field(default_factory=dict)
    residuals: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
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
        """Write it to a file, in full or not at all."""
        with atomic_write(path) as file:
            file.write(json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n")

    def lines(self) -> list[str]:
        """How well it was measured, in sentences."""
        spread, off = sorted(self.noise.values()), sorted(map(abs, self.residuals.values()))
        middle = [100 * x[len(x) // 2] if x else 0.0 for x in (spread, off)]
        first = f"calibrated in {self.seconds:.1f} s; timings spread by {middle[0]:.0f} %, median over what was timed"
        if spread and middle[0] > NOISY:
            worst = max(self.noise, key=lambda name: self.noise[name])
            first += f" ({worst} most): the machine is busy, mistrust this"
        lines = [first, f"the formulas are off by {middle[1]:.0f} % from those timings, median of the worst of each"]
        if 100 * self.cluster.uncertainty > NOISY:
            lines.append("messages took very different times: others use the machine or the link; measure again")
        return lines
