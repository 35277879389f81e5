"""Data-parallel training of a network: the time of one step with each codec and exchange. Pure formulas.

A step is the rest of the work, backward, and the exchange of n gradients. Encoding and decoding run on the device that
backward runs on and so add up; messages pass while backward computes earlier layers, all but those of the last group:

    step = work + codec + max(wire − (1 − 1/g) backward, 0)      with g groups of gradients
"""

from dataclasses import dataclass
from typing import ClassVar

from laconic.errors import Option
from laconic.planner.cluster import Cluster
from laconic.planner.collectives import all_gather, reduced, scatter_reduce
from laconic.planner.glm import Impossible
from laconic.planner.terms import Cost, CostTerm, Prediction

GROUP_VALUES = 2**20
"""Gradients that are exchanged together: `Policy.group_values`."""
FEWEST_VALUES = 1024
"""Gradients of a tensor below which it stays in float32, as a network of fewer must: `Policy.min_values`."""
BYTES = 4


@dataclass(frozen=True, slots=True)
class NetworkJob:
    """A network to train.

    n_parameters      n, values exchanged per step
    backward_seconds  of one backward pass on a rank
    other_seconds     forward pass, optimizer and reading, per step
    """

    n_parameters: int
    backward_seconds: float = 0.0
    other_seconds: float = 0.0

    kind: ClassVar = "network"
    unit: ClassVar = "a step"
    saving: ClassVar = "compression pays"

    def __post_init__(self) -> None:
        if self.n_parameters < 1:
            raise Impossible(f"a network has at least 1 parameter, got {self.n_parameters}")
        for name in ("backward_seconds", "other_seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise Impossible(Option(name), f" must be a number of at least 0, got {getattr(self, name)}")

    @property
    def groups(self) -> int:
        """g."""
        return max(1, self.n_parameters // GROUP_VALUES)

    def margin(self, cluster: Cluster) -> float:
        """How much faster compression, which adds variance, must be predicted to be than what everybody has.

        >>> from laconic.planner import DEFAULT
        >>> NetworkJob(1000).margin(DEFAULT)
        1.1
        """
        return min(MOST_PAYS, max(PAYS, 1 + cluster.uncertainty))

    def predictions(self, cluster: Cluster, s: int | None = None) -> list[Prediction]:
        """All options that can be run, the plainest first, then baselines that cannot; `Impossible` if none can."""
        found = options(self, cluster)
        return [
            Prediction(o, cost(self, o, cluster), memory_bytes(self, o, cluster), o in found)
            for o in dict.fromkeys((*found, *BASELINES))
        ]


@dataclass(frozen=True, slots=True)
class NetworkOption:
    """How gradients are averaged: a codec, and an exchange that fits it."""

    codec: str
    exchange: str

    @property
    def label(self) -> str:
        """Its name in tables."""
        return f"{self.codec} {self.exchange}"

    @property
    def compressed(self) -> bool:
        """Whether fewer bits than bfloat16's go over the wire."""
        return self.codec not in ("fp32", "bf16")

    @property
    def precision(self) -> str:
        """What it rounds to."""
        return self.codec

    series = label

    @property
    def advice(self) -> str:
        """What to do, in words."""
        return f"{'' if self.compressed else 'do not compress: '}use {self.codec} by {self.exchange}"


NETWORK_OPTIONS = (
    NetworkOption("fp32", "all_reduce"),
    NetworkOption("bf16", "all_reduce"),
    NetworkOption("rotated-4", "all_gather"),
    NetworkOption("rotated-4", "scatter_reduce"),
    NetworkOption("nuqsgd-8", "all_gather"),
    NetworkOption("nuqsgd-8", "scatter_reduce"),
    NetworkOption("dithered-0.1", "all_gather"),
    NetworkOption("dithered-0.1", "scatter_reduce"),
    NetworkOption("nuqsgd-4", "all_gather"),
    NetworkOption("nuqsgd-4", "scatter_reduce"),
    NetworkOption("nuqsgd-4-rans", "scatter_reduce"),
)
"""From the one that loses least."""
BASELINES = NETWORK_OPTIONS[:2]
PAYS, MOST_PAYS = 1.10, 1.5
"""How much faster compression must be: 10 %, and more where the calibration cannot tell as little apart."""


def cost(job: NetworkJob, option: NetworkOption, cluster: Cluster) -> Cost:
    """The time of a step, term by term."""
    try:
        codec = cluster.codecs[option.codec]
    except KeyError:
        known = ", ".join(cluster.codecs) or "none"
        raise Impossible(f"there are no rates of {option.codec}, only of: {known}; calibrate again") from None
    n = job.n_parameters
    if option.exchange == "all_reduce":
        messages = reduced(n, codec, cluster, narrow=option.codec == "bf16")
    else:
        messages = (all_gather if option.exchange == "all_gather" else scatter_reduce)(n, codec, cluster)
    terms = (
        CostTerm("backward", 1, "time", job.backward_seconds),
        CostTerm("forward and update", 1, "time", job.other_seconds),
        *messages,
    )
    wire = Cost(terms).wire_seconds
    return Cost(terms, 1, min(wire, (1 - 1 / job.groups) * job.backward_seconds))


def memory_bytes(job: NetworkJob, option: NetworkOption, cluster: Cluster) -> float:
    """Parameters, gradients, and the codes that are there at once."""
    codes = cluster.n_ranks if option.exchange == "all_gather" else 2
    return 2 * BYTES * job.n_parameters + codes * job.n_parameters * cluster.codecs[option.codec].bits / 8


def options(job: NetworkJob, cluster: Cluster) -> list[NetworkOption]:
    """What there is to choose from, where its codec was measured, memory suffices and there is enough to compress."""
    enough = job.n_parameters >= FEWEST_VALUES
    known = [
        option for option in NETWORK_OPTIONS if option.codec in cluster.codecs and (enough or not option.compressed)
    ]
    limit = float("inf") if cluster.memory_bytes is None else cluster.memory_bytes
    fitting = [option for option in known if memory_bytes(job, option, cluster) <= limit]
    if known and not fitting:
        raise Impossible(
            f"{job.n_parameters} parameters with their gradients do not fit into the {limit / 1e9:.3g} GB of a rank"
        )
    return fitting
