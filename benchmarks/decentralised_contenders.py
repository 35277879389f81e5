"""The contenders of the suite `decentralised`: AllReduce, and members of the decentralised family on a graph."""

from dataclasses import dataclass, field
from typing import Any

from laconic.codec import Codec
from laconic.codec import codec as make_codec
from laconic.exchange import AllReduce
from laconic.exchange.topology import topology_for
from laconic.training import DCDPSGD, DPSGD, ECDPSGD, Clock, Decentralised
from laconic.training.decentralised.stability import held_at, noise_limit

MEMBERS: dict[str, type[Decentralised]] = {"dpsgd": DPSGD, "dcd": DCDPSGD, "ecd": ECDPSGD}
VARIANTS: dict[str, dict[str, Any]] = {
    "ecd-paper": {"reference": "zero", "clock": Clock()},
    "ecd-running": {"clock": Clock()},
    "ecd-restart": {"clock": Clock(restart=20)},
}
"""Variants of ECD-PSGD: quantised from zero with a running clock; from the estimate with a running clock, or with one
that restarts after 20."""
KINDS = (*MEMBERS, *VARIANTS)
CODECS: dict[str, tuple[str, dict[str, Any]]] = {
    "nuqsgd-4": ("nuqsgd", {"bits": 4, "bucket_size": 512}),
    "nuqsgd-8": ("nuqsgd", {"bits": 8, "bucket_size": 512}),
    "qsgd-4": ("qsgd", {"bits": 4, "bucket_size": 64}),
    "qsgd-8": ("qsgd", {"bits": 8, "bucket_size": 512}),
}
"""Codecs with buckets small enough for the noise that rings and tori tolerate: 0.5 and 0.25 of ‖v‖² at t = 2, 1.7 and
0.9 at best. NUQSGD at 4 bits has at most 0.16 in buckets of 512; QSGD at 4 bits 3.2 in those, 1.1 in buckets of 64."""
LARGE = 2**20


@dataclass(frozen=True, slots=True)
class Contender:
    """AllReduce, or a decentralised optimizer with its codec and its graph, as JSON values.

    member    "all_reduce" (DDP, or laconic's scatter_reduce where there is a scheme), "dpsgd", "dcd", "ecd", or one
              of `VARIANTS`
    scheme    of the codec; with `options` as in `laconic.codec`
    topology  name of the graph; all_reduce has none
    """

    member: str
    scheme: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    topology: str = ""

    @property
    def kind(self) -> type[Decentralised]:
        """The class of a decentralised member."""
        return ECDPSGD if self.member in VARIANTS else MEMBERS[self.member]

    @property
    def codec(self) -> Codec:
        """The codec of the scheme."""
        return make_codec(self.scheme, **self.options)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the member besides model, optimizer and topology."""
        return ({"codec": self.codec} if self.scheme else {}) | VARIANTS.get(self.member, {})

    def converges(self, n_nodes: int) -> bool:
        """Whether the member converges with this codec on this graph, by the proved bound on the noise.

        >>> Contender("dcd", "qsgd", {"bits": 4, "bucket_size": 64}, "ring").converges(4)
        False
        """
        mixing = topology_for(self.topology).mixing(n_nodes)
        omega = self.codec.quantizer.variance_bound(LARGE)
        if self.member == "dcd":
            return omega < noise_limit(mixing)
        return self.member in VARIANTS or held_at(mixing, omega) is not None


def fp32_bytes(n: int, size: int) -> int:
    """Bytes that each of `size` ranks sends for n values in DDP's own all-reduce, taken as a ring."""
    return AllReduce().bytes_received(make_codec("fp32"), n, size)
