"""Data-parallel training of a network: the time of one step with each codec and exchange. Pure formulas.

A step is the backward pass, the exchange of n gradients and the rest (forward, update). Encoding and decoding share the
device with backward and add to its time; messages overlap with it, all but those of the last group:

    step = work + codec + max(wire − (1 − 1/g) backward, 0)      with g groups of gradients

A sharded network (FSDP2) reduces each gradient to its owner, and gathers weights once or twice per step.
"""

from dataclasses import MISSING, dataclass
from math import inf
from typing import ClassVar

from laconic.errors import Option
from laconic.options import check_int, option
from laconic.planner.cluster import Cluster, Impossible, rates_of
from laconic.planner.terms import Cost, CostTerm, all_gather, gather_weights, reduce_scatter, reduced, scatter_reduce

GROUP_VALUES = 2**20
"""Gradient values exchanged together: `Policy.group_values`."""
FEWEST_VALUES = 1024
"""Tensors with fewer values, and so networks with fewer, stay in float32: `Policy.min_values`."""
BYTES = 4


@dataclass(frozen=True, slots=True)
class NetworkJob:
    """A network to train: n values are exchanged per step of a backward pass and the rest on each rank."""

    n_parameters: int = option(MISSING, "Parameters of a network.", flag="--parameters")
    backward_seconds: float = option(
        0.0, "Its backward pass, such as 80ms; by default 0.", flag="--backward", metavar="TIME"
    )
    other_seconds: float = option(
        0.0, "The rest of a step: forward, update; by default 0.", flag="--other", metavar="TIME"
    )
    gathers: int = option(
        0,
        "How often a step gathers the weights, if it is sharded (FSDP2): 2, or 1 with reshard_after_forward=False; by "
        "default 0.",
    )

    kind: ClassVar = "network"
    unit: ClassVar = "a step"
    saving: ClassVar = "compression pays"

    def __post_init__(self) -> None:
        if self.n_parameters < 1:
            raise Impossible(f"a network has at least 1 parameter, got {self.n_parameters}")
        for name in ("backward_seconds", "other_seconds"):
            if not 0 <= getattr(self, name) < inf:
                raise Impossible(Option(name), f" must be a number of at least 0, got {getattr(self, name)}")
        object.__setattr__(self, "gathers", check_int("gathers", self.gathers, 0, 2))

    @property
    def choices(self) -> "tuple[NetworkOption, ...]":
        """All options for this job, whether the cluster can run them or not."""
        return SHARDED_OPTIONS if self.gathers else NETWORK_OPTIONS

    @property
    def baselines(self) -> "tuple[NetworkOption, NetworkOption]":
        """The uncompressed all-reduce (FSDP2: reduce-scatter) in float32 and in bfloat16."""
        return self.choices[0], self.choices[1]

    @property
    def groups(self) -> int:
        """g, the number of groups of gradients."""
        return max(1, self.n_parameters // GROUP_VALUES)

    def margin(self, cluster: Cluster) -> float:
        """How much faster compression, which adds variance, must be predicted to be than no compression.

        >>> from laconic.planner import DEFAULT
        >>> NetworkJob(1000).margin(DEFAULT)
        1.1
        """
        return min(MAX_MARGIN, max(MARGIN, 1 + cluster.uncertainty))


@dataclass(frozen=True, slots=True)
class NetworkOption:
    """A codec for gradients, an exchange that suits it, and the format in which FSDP2 gathers weights."""

    codec: str
    exchange: str
    weights: str = "fp32"

    alone: ClassVar = False
    """Never one process: without ranks, a network has other batches and other gradients."""

    @property
    def label(self) -> str:
        return f"{self.codec} {self.exchange}" + ("" if self.weights == "fp32" else f", weights {self.weights}")

    @property
    def compressed(self) -> bool:
        """Whether gradients or weights are sent in fewer bits than bfloat16."""
        return self.codec not in ("fp32", "bf16") or self.weights == DIFFERENCES

    @property
    def precision(self) -> str:
        return f"{self.codec} {self.weights}"

    series = label

    @property
    def advice(self) -> str:
        return f"{'' if self.compressed else 'do not compress: '}use {self.label.replace(' ', ' by ', 1)}"


DIFFERENCES, RATES_OF_DIFFERENCES = "differences", "nuqsgd-8"
"""Weights sent as 8-bit differences to those gathered last, and the codec whose rates stand for theirs."""
NETWORK_OPTIONS = (
    NetworkOption("fp32", "all_reduce"),
    NetworkOption("bf16", "all_reduce"),
    *(
        NetworkOption(codec, exchange)
        for codec in ("rotated-4", "nuqsgd-8", "dithered-0.1", "nuqsgd-4")
        for exchange in ("all_gather", "scatter_reduce")
    ),
    NetworkOption("nuqsgd-4-rans", "scatter_reduce"),
)
"""Options of a replicated network (DDP), in order of increasing error."""
SHARDED_OPTIONS = tuple(
    NetworkOption(codec, "reduce_scatter", weights)
    for weights in ("fp32", "bf16", DIFFERENCES)
    for codec in dict.fromkeys(option.codec for option in NETWORK_OPTIONS)
)
"""Options of a sharded network (FSDP2)."""
MARGIN, MAX_MARGIN = 1.10, 1.5
"""How much faster compression must be: 10 %, and up to 50 % where the calibration is less certain than that."""


def cost(job: NetworkJob, option: NetworkOption, cluster: Cluster) -> Cost:
    """The time of a step, term by term."""
    codec, n = rates_of(option.codec, cluster.codecs), job.n_parameters
    if option.exchange == "all_reduce":
        messages = reduced(n, codec, cluster, narrow=option.codec == "bf16")
    elif option.exchange == "reduce_scatter":
        messages = _sharded(job, option, cluster)
    else:
        messages = (all_gather if option.exchange == "all_gather" else scatter_reduce)(n, codec, cluster)
    terms = (
        CostTerm("backward", 1, "time", job.backward_seconds),
        CostTerm("forward and update", 1, "time", job.other_seconds),
        *messages,
    )
    wire = Cost(terms).wire_seconds
    return Cost(terms, 1, min(wire, (1 - 1 / job.groups) * job.backward_seconds))


def _sharded(job: NetworkJob, option: NetworkOption, cluster: Cluster) -> tuple[CostTerm, ...]:
    """Reduce-scatter of gradients and gathers of weights; with differences, only one gather, none in backward."""
    n, coded = job.n_parameters, cluster.all_to_all
    links = {"fp32": cluster.all_reduce, "bf16": cluster.narrow}
    weights, times = (RATES_OF_DIFFERENCES, 1) if option.weights == DIFFERENCES else (option.weights, job.gathers)
    link = cluster.all_reduce if weights == "fp32" else coded
    return (
        *reduce_scatter(n, rates_of(option.codec, cluster.codecs), cluster, links.get(option.codec, coded)),
        *gather_weights(n, rates_of(weights, cluster.codecs), cluster, link, times),
    )


def memory_bytes(job: NetworkJob, option: NetworkOption, cluster: Cluster) -> float:
    """Bytes of the parameters, the gradients and the codes held at once.

    For a sharded network, this rank's shards of them; with differences, also all weights gathered last.
    """
    if job.gathers:
        kept = option.weights == DIFFERENCES
        return (2 * BYTES / cluster.n_ranks + kept * BYTES) * job.n_parameters
    codes = cluster.n_ranks if option.exchange == "all_gather" else 2
    return 2 * BYTES * job.n_parameters + codes * job.n_parameters * cluster.codecs[option.codec].bits / 8


def options(job: NetworkJob, cluster: Cluster, s: int | None = None) -> list[NetworkOption]:
    """The options whose codecs were measured and that fit into memory; below FEWEST_VALUES only uncompressed ones."""
    enough = job.n_parameters >= FEWEST_VALUES
    needed = {DIFFERENCES: RATES_OF_DIFFERENCES}
    known = [
        one
        for one in job.choices
        if {one.codec, needed.get(one.weights, one.weights)} <= cluster.codecs.keys() and (enough or not one.compressed)
    ]
    limit = inf if cluster.memory_bytes is None else cluster.memory_bytes
    fitting = [one for one in known if memory_bytes(job, one, cluster) <= limit]
    if known and not fitting:
        raise Impossible(
            f"{job.n_parameters} parameters with their gradients do not fit into the {limit / 1e9:.3g} GB of a rank"
        )
    return fitting
