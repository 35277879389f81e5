"""The cost model of a cluster: links, and rates of solvers and codecs. Numbers only; no torch."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

from laconic.errors import InvalidOption, LaconicError, Option
from laconic.options import check_int
from laconic.units import shown

R = TypeVar("R")
ALGORITHMS = ("ring", "tree", "best")
"""Algorithms of an all-reduce: Gloo's is a ring; NCCL takes the better of both."""


class Impossible(LaconicError, ValueError):
    """A job that no option can run; the message says why and what to change."""


class Rates:
    """Base of `Link`, `SolverRates` and `CodecRates`: numbers that must be finite and at least 0."""

    __slots__ = ()
    of: ClassVar[str]
    """What has these rates, for error messages."""

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            _check(f"{each.name} of {self.of}", getattr(self, each.name))


@dataclass(frozen=True, slots=True)
class Link(Rates):
    """A link between two ranks: a message of B bytes takes α + β B.

    alpha_seconds     α, the latency of one message
    seconds_per_byte  β, the inverse of the bandwidth
    wait_seconds      ω; a collective of P ranks spends ω ⌈log₂ P⌉ on waking threads and waiting for the last of them
    """

    alpha_seconds: float
    seconds_per_byte: float
    wait_seconds: float = 0.0
    of: ClassVar = "a link"

    @property
    def bits_per_second(self) -> float:
        """The bandwidth.

        >>> Link(0.0, 0.5).bits_per_second
        16.0
        """
        return 8 / self.seconds_per_byte if self.seconds_per_byte else math.inf


@dataclass(frozen=True, slots=True)
class SolverRates(Rates):
    """γ of a solver in one precision: the speed of our own code on one rank while all others run too.

    iteration_seconds  per outer iteration, whatever its size: interpreter, launches, allocation
    step_seconds       per inner step, s of them in an outer iteration
    row_seconds        per sampled row: index, target, link function
    gather_seconds     per stored value of a sampled row: read, widen
    gemv_seconds       per flop of Y x and Yᵀ r
    gemm_seconds       per flop of the Gram product Y Yᵀ
    pair_seconds       per entry of the Gram triangle: pack, copy, recurrence
    """

    iteration_seconds: float
    step_seconds: float
    row_seconds: float
    gather_seconds: float
    gemv_seconds: float
    gemm_seconds: float
    pair_seconds: float
    of: ClassVar = "a solver"


@dataclass(frozen=True, slots=True)
class CodecRates(Rates):
    """γ of a codec on one rank while all others run too.

    bits             per value on the wire, norms and headers included
    call_seconds     per call of encode or decode, whatever its size
    quantize_seconds per value, to quantize and pack it at fixed width; for fp32 and bf16, to divide and cast it
    code_seconds     per value, additionally for an entropy coder
    decode_seconds   per value, to unpack and add it; for bf16, to cast it back
    uncode_seconds   per value, additionally for an entropy decoder
    error            ‖Q(v) − v‖² / ‖v‖² on the gradient on which bits were measured, too; 0 if not measured
    """

    bits: float
    call_seconds: float
    quantize_seconds: float
    code_seconds: float
    decode_seconds: float
    uncode_seconds: float
    error: float = 0.0
    of: ClassVar = "a codec"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Ranks, their links, and how fast each works.

    n_ranks       P
    all_reduce    link rates within the process group's all-reduce in float32
    narrow        the same in bfloat16, whose sums cost more per byte on CPUs
    all_to_all    link rates of messages between pairs, which carry codes
    solvers       by "solver recipe", such as "ca_sgd C"; "sgd C, one process" for SGD with all columns in one process
    codecs        by name, such as "nuqsgd-4"
    algorithm     of the all-reduce: "ring", "tree" or "best", the cheaper of both
    memory_bytes  that a rank may use; None where unknown
    machine_bytes that one process may use, alone on its machine; None for no more than a rank
    uncertainty   relative error to expect of predictions, from the spread of timings and the error of the formulas; 0
                  where nothing was measured
    sync_seconds  a blocking all-reduce spends this, times ⌈log₂ P⌉, beyond its messages, waiting for the rank that
                  finishes its work last
    """

    n_ranks: int
    all_reduce: Link
    narrow: Link
    all_to_all: Link
    solvers: Mapping[str, SolverRates] = field(default_factory=dict)
    codecs: Mapping[str, CodecRates] = field(default_factory=dict)
    algorithm: str = "ring"
    memory_bytes: float | None = None
    sync_seconds: float = 0.0
    uncertainty: float = 0.0
    machine_bytes: float | None = None

    def __post_init__(self) -> None:
        check_int("n_ranks", self.n_ranks, 1, owner="cluster")
        if self.algorithm not in ALGORITHMS:
            known = f"; choose one of {', '.join(ALGORITHMS)}"
            raise InvalidOption("unknown ", Option("algorithm", self.algorithm), known)
        for name in ("sync_seconds", "uncertainty", "memory_bytes", "machine_bytes"):
            value = getattr(self, name)
            if value is not None or not name.endswith("bytes"):
                _check(f"{name} of a cluster", value)

    def what_if(
        self,
        n_ranks: int | None = None,
        bits_per_second: float | None = None,
        alpha_seconds: float | None = None,
        algorithm: str | None = None,
    ) -> "Cluster":
        """The same machines with another number of ranks, or links of exactly this rate and latency.

        A given latency stands for all waiting: `sync_seconds` and `wait_seconds` are then 0.

        >>> here = Cluster(4, Link(1e-3, 1e-9), Link(1e-3, 1e-9), Link(1e-3, 1e-9))
        >>> here.what_if(64, 25e9, 20e-6).all_reduce
        Link(alpha_seconds=2e-05, seconds_per_byte=3.2e-10, wait_seconds=0.0)
        """
        if bits_per_second is not None and not bits_per_second > 0:
            raise ValueError(f"a link's rate must be above 0 bit/s, got {bits_per_second}")
        if n_ranks is not None and n_ranks > 1 and self.n_ranks == 1:
            why = f"rates taken on 1 rank say nothing of {n_ranks}: SGD runs other code there; calibrate with "
            raise InvalidOption(why, Option("ranks", 2))

        def moved(link: Link) -> Link:
            beta = link.seconds_per_byte if bits_per_second is None else 8 / bits_per_second
            return Link(alpha_seconds, beta) if alpha_seconds is not None else replace(link, seconds_per_byte=beta)

        return replace(
            self,
            n_ranks=self.n_ranks if n_ranks is None else n_ranks,
            algorithm=algorithm or self.algorithm,
            sync_seconds=self.sync_seconds if alpha_seconds is None else 0.0,
            all_reduce=moved(self.all_reduce),
            narrow=moved(self.narrow),
            all_to_all=moved(self.all_to_all),
        )

    def alone(self) -> "Cluster":
        """One rank, which runs SGD as one process does, faster than ranks that would wait for each other's messages.

        >>> DEFAULT.what_if(1).alone().solvers["sgd C"] == DEFAULT.solvers["sgd C, one process"]
        True
        """
        known = self.solvers.items()
        own = {name.removesuffix(ONE_PROCESS): rates for name, rates in known if name.endswith(ONE_PROCESS)}
        return replace(self, n_ranks=1, solvers={**self.solvers, **own})

    def describe(self) -> str:
        """Ranks and links in one line.

        >>> DEFAULT.describe()
        '4 ranks; all-reduce: latency 100 µs per message, 10 Gbit/s'
        """
        if self.n_ranks == 1:
            return "1 rank"
        link = self.all_reduce
        bandwidth = shown(link.bits_per_second, "bit/s", 2) if link.seconds_per_byte else "no limit to the bandwidth"
        waiting = f", {shown(link.wait_seconds, 's')} per doubling of the ranks" if link.wait_seconds else ""
        latency = f"latency {shown(link.alpha_seconds, 's')} per message{waiting}"
        return f"{self.n_ranks} ranks; all-reduce: {latency}, {bandwidth}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Cluster":
        """The inverse of `to_json`; raises `ValueError` if something is missing."""
        names = [one.name for one in fields(cls)]
        try:
            rates = {name: Link(**values[name]) for name in LINKS} | {
                "solvers": {name: SolverRates(**some) for name, some in values["solvers"].items()},
                "codecs": {name: CodecRates(**some) for name, some in values["codecs"].items()},
            }
            return cls(**{name: values[name] for name in names if name in values} | rates)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a cluster as laconic plan writes it ({error}); it has {', '.join(names)}") from error


def rates_of(name: str, known: Mapping[str, R]) -> R:
    """The rates of a solver or a codec; raises `Impossible` if they were not measured."""
    if name not in known:
        raise Impossible(f"there are no rates of {name}, only of: {', '.join(known) or 'none'}; calibrate again")
    return known[name]


def _check(name: str, value: Any) -> None:
    """Raise `ValueError` unless value is a finite number of at least 0: it may come from a file edited by hand."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number of at least 0, got {value!r}")


ONE_PROCESS = ", one process"
"""At the end of the names of solvers that run in one process."""
LINKS = ("all_reduce", "narrow", "all_to_all")

_LINK = Link(alpha_seconds=100e-6, seconds_per_byte=0.8e-9)
_SGD = SolverRates(300e-6, 0.0, 0.4e-6, 0.3e-9, 0.25e-9, 0.0, 0.0)
_ALONE = SolverRates(3e-6, 0.0, 0.07e-6, 0.3e-9, 0.17e-9, 0.0, 0.0)
_CA_SGD = SolverRates(450e-6, 1e-6, 0.4e-6, 0.3e-9, 0.25e-9, 0.015e-9, 0.5e-9)

DEFAULT = Cluster(
    n_ranks=4,
    all_reduce=_LINK,
    narrow=_LINK,
    all_to_all=_LINK,
    solvers={f"sgd {name}": _SGD for name in ("fp32", "C")}
    | {f"sgd {name}{ONE_PROCESS}": _ALONE for name in ("fp32", "C")}
    | {f"ca_sgd {name}": _CA_SGD for name in ("fp32", "C", "D")},
    codecs={
        "fp32": CodecRates(32.0, 20e-6, 0.4e-9, 0.0, 0.0, 0.0),
        "bf16": CodecRates(16.0, 20e-6, 0.6e-9, 0.0, 0.4e-9, 0.0, 3e-6),
        "rotated-4": CodecRates(4.03, 60e-6, 4.4e-9, 0.0, 3.3e-9, 0.0, 0.0096),
        "nuqsgd-8": CodecRates(8.004, 60e-6, 1.4e-9, 0.0, 0.8e-9, 0.0, 0.08),
        "dithered-0.1": CodecRates(1.8, 200e-6, 8e-9, 0.0, 8e-9, 0.0, 0.1),
        "nuqsgd-4": CodecRates(4.004, 60e-6, 1.2e-9, 0.0, 0.7e-9, 0.0, 0.35),
        "nuqsgd-4-rans": CodecRates(2.6, 200e-6, 1.2e-9, 6e-9, 0.7e-9, 6e-9, 0.35),
    },
)
"""Typical rates where nothing was measured, of the order of a server's cores and Gloo over 10-Gbit Ethernet.

Every automatic choice that must be the same on all ranks and in every run uses these; `laconic plan` measures better
ones. Four ranks of one core each; `DEFAULT.what_if(...)` for others.
"""
