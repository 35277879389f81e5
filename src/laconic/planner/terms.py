"""Predicted times as sums of products that a reader can redo by hand: `CostTerm`, `Cost` and the terms of collectives.

All-reduce, all-to-all, and the compressed exchanges built from the latter; pure formulas. P ranks, links with a latency
α and an inverse bandwidth β, B bytes per rank:

    ring all-reduce    2 (P − 1) α + 2 (P − 1) / P · B β
    tree all-reduce    2 ⌈log₂ P⌉ (α + B β)
    all-to-all         (P − 1) α + (P − 1) m β      for messages of m bytes between each two ranks

plus ⌈log₂ P⌉ ω in each of them, where waiting was measured apart from messages.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from laconic.planner.cluster import Cluster, CodecRates, Link
from laconic.quantizers import NUQSGD
from laconic.units import shown

WIRE, WORK = "wire", "work"
"""Kinds of terms: waiting for the network, or this rank's own work."""
BUCKET_SIZE = NUQSGD().bucket_size
"""Values that share a norm, the default of codecs; each rank sums at least one bucket."""


@dataclass(frozen=True, slots=True)
class CostTerm:
    """One term of a predicted time: count · seconds_each.

    unit          of the count, such as "flops" or "bytes"
    kind          WORK or WIRE
    """

    name: str
    count: float
    unit: str
    seconds_each: float
    kind: str = WORK

    @property
    def seconds(self) -> float:
        return self.count * self.seconds_each

    def __str__(self) -> str:
        """The product with its numbers.

        >>> str(CostTerm("AllReduce, volume", 1_000_000, "bytes", 8e-9, WIRE))
        'AllReduce, volume            1,000,000 bytes      × 8.00 ns    = 8.00 ms'
        """
        count = f"{self.count:,.6g} {self.unit}" if self.count < 1e6 else f"{self.count:,.0f} {self.unit}"
        return f"{self.name:28} {count:20} × {shown(self.seconds_each, 's'):10} = {shown(self.seconds, 's')}"


@dataclass(frozen=True, slots=True)
class Cost:
    """The predicted time of `iterations` iterations: terms of this rank's own work and of the network.

    hidden  seconds of wire time that overlap with work, and so cost nothing
    """

    terms: tuple[CostTerm, ...]
    iterations: int = 1
    hidden: float = 0.0

    @property
    def work_seconds(self) -> float:
        return total(term for term in self.terms if term.kind == WORK)

    @property
    def wire_seconds(self) -> float:
        return total(term for term in self.terms if term.kind == WIRE)

    @property
    def seconds(self) -> float:
        """Seconds of one iteration: (work + wire − hidden) / iterations.

        >>> Cost((CostTerm("a", 2, "x", 3.0), CostTerm("b", 1, "y", 4.0, WIRE)), iterations=5).seconds
        2.0
        """
        return (self.work_seconds + self.wire_seconds - self.hidden) / self.iterations

    def lines(self) -> list[str]:
        """The arithmetic, one term per line, and the sum."""
        said = [str(term) for term in self.terms if term.seconds]
        if self.hidden:
            said.append(f"{'hidden behind work':28} {'':20}   {'':10} = −{shown(self.hidden, 's')}")
        several = f" {shown(self.seconds * self.iterations, 's')} ÷ {self.iterations} iterations"
        rule = "sum" + several * (self.iterations > 1)
        return [*said, f"{rule:63}= {shown(self.seconds, 's')}"]


def total(terms: Iterable[CostTerm]) -> float:
    """Sum of the terms' seconds."""
    return sum(term.seconds for term in terms)


def all_reduce(n_bytes: float, link: Link, n_ranks: int, algorithm: str = "ring") -> tuple[CostTerm, ...]:
    """Terms of one all-reduce (latency, volume, waiting); none for one rank.

    >>> [term.count for term in all_reduce(800, Link(1e-5, 1e-9), 4)]
    [6, 1200.0]
    >>> [term.count for term in all_reduce(800, Link(1e-5, 1e-9), 4, "tree")]
    [4, 3200]
    """
    if n_ranks == 1:
        return ()
    depth = doublings(n_ranks)
    ring = _pair("AllReduce", 2 * (n_ranks - 1), 2 * (n_ranks - 1) / n_ranks * n_bytes, link, depth)
    tree = _pair("AllReduce (tree)", 2 * depth, 2 * depth * n_bytes, link, depth)
    if algorithm == "best":
        return min(ring, tree, key=total)
    return ring if algorithm == "ring" else tree


def all_to_all(name: str, message_bytes: float, link: Link, n_ranks: int) -> tuple[CostTerm, ...]:
    """Terms of an all-to-all in which each rank sends `message_bytes` to each other."""
    return _pair(name, n_ranks - 1, (n_ranks - 1) * message_bytes, link, doublings(n_ranks)) if n_ranks > 1 else ()


def doublings(n_ranks: int) -> int:
    """⌈log₂ P⌉.

    >>> [doublings(n) for n in (1, 2, 3, 16)]
    [0, 1, 2, 4]
    """
    return math.ceil(math.log2(n_ranks))


def all_gather(n: int, codec: CodecRates, cluster: Cluster) -> tuple[CostTerm, ...]:
    """Each rank sends its code of n values to all others, and decodes all P."""
    P = cluster.n_ranks
    return (
        *_encode(n, 1, codec),
        *all_to_all("codes", n * codec.bits / 8, cluster.all_to_all, P),
        *_decode(P * n, 1, codec),
    )


def scatter_reduce(n: int, codec: CodecRates, cluster: Cluster) -> tuple[CostTerm, ...]:
    """Chunks go to their owners, averages to all: n + n/P values are encoded, 2 n are decoded."""
    P = cluster.n_ranks
    chunk = max(n / P, min(n, BUCKET_SIZE))
    message = chunk * codec.bits / 8
    return (
        *_encode(n + chunk, P + 1, codec),
        *all_to_all("chunks", message, cluster.all_to_all, P),
        *all_to_all("averages", message, cluster.all_to_all, P),
        *_decode(P * chunk + n, P + 1, codec),
    )


def reduce_scatter(n: int, codec: CodecRates, cluster: Cluster, link: Link) -> tuple[CostTerm, ...]:
    """Chunks go to their owners, which keep the averages: n values are encoded, and n decoded."""
    P = cluster.n_ranks
    return (*_encode(n, P, codec), *all_to_all("chunks", n / P * codec.bits / 8, link, P), *_decode(n, P, codec))


def gather_weights(n: int, codec: CodecRates, cluster: Cluster, link: Link, times: int) -> tuple[CostTerm, ...]:
    """Each rank's n/P weights go to all others, `times` times per step."""
    P = cluster.n_ranks
    n_bytes, waits = times * (P - 1) / P * n * codec.bits / 8, times * doublings(P)
    messages = _pair("weights", times * (P - 1), n_bytes, link, waits) if P > 1 else ()
    return (*_encode(times * n / P, times, codec), *messages, *_decode(times * n, times * P, codec))


def reduced(n: int, codec: CodecRates, cluster: Cluster, *, narrow: bool) -> tuple[CostTerm, ...]:
    """The process group's own all-reduce, in float32 or bfloat16."""
    link = cluster.narrow if narrow else cluster.all_reduce
    return (
        *_encode(n, 1, codec),
        *all_reduce(n * codec.bits / 8, link, cluster.n_ranks, cluster.algorithm),
        *_decode(n, 1, codec),
    )


def _encode(n: float, calls: int, codec: CodecRates) -> tuple[CostTerm, ...]:
    return (
        CostTerm("encode, calls", calls, "calls", codec.call_seconds),
        CostTerm("quantize", n, "values", codec.quantize_seconds),
        CostTerm("code", n, "values", codec.code_seconds),
    )


def _decode(n: float, calls: int, codec: CodecRates) -> tuple[CostTerm, ...]:
    return (
        CostTerm("decode, calls", calls, "calls", codec.call_seconds),
        CostTerm("uncode", n, "values", codec.uncode_seconds),
        CostTerm("decode and add", n, "values", codec.decode_seconds),
    )


def _pair(name: str, messages: int, n_bytes: float, link: Link, waits: int) -> tuple[CostTerm, ...]:
    waiting = CostTerm(f"{name}, waiting", waits, "doublings", link.wait_seconds, WIRE)
    return (
        CostTerm(f"{name}, latency", messages, "messages", link.alpha_seconds, WIRE),
        CostTerm(f"{name}, volume", n_bytes, "bytes", link.seconds_per_byte, WIRE),
        *([waiting] if link.wait_seconds else []),
    )
