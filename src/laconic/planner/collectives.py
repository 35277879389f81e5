"""What messages cost: all-reduce, all-to-all, and the compressed exchanges made of the latter. Pure formulas.

P ranks, links with a latency α and an inverse bandwidth β, B bytes per rank:

    ring all-reduce    2 (P − 1) α + 2 (P − 1) / P · B β
    tree all-reduce    2 ⌈log₂ P⌉ (α + B β)
    all-to-all         (P − 1) α + (P − 1) m β      for messages of m bytes between each two ranks
"""

import math

from laconic.planner.cluster import Cluster, CodecRates, Link
from laconic.planner.terms import WIRE, CostTerm, total

BUCKET_SIZE = 8192
"""Values that share a norm, which is what codecs have by default; no rank gets less than a bucket to sum."""


def all_reduce(n_bytes: float, link: Link, n_ranks: int, algorithm: str = "ring") -> tuple[CostTerm, ...]:
    """Messages and bytes of one all-reduce; none for one rank.

    >>> [term.count for term in all_reduce(800, Link(1e-5, 1e-9), 4)]
    [6, 1200.0]
    >>> [term.count for term in all_reduce(800, Link(1e-5, 1e-9), 4, "tree")]
    [4, 3200]
    """
    if n_ranks == 1:
        return ()
    depth = math.ceil(math.log2(n_ranks))
    ring = _pair("AllReduce", 2 * (n_ranks - 1), 2 * (n_ranks - 1) / n_ranks * n_bytes, link)
    tree = _pair("AllReduce (tree)", 2 * depth, 2 * depth * n_bytes, link)
    if algorithm == "best":
        return min(ring, tree, key=total)
    return ring if algorithm == "ring" else tree


def all_to_all(name: str, message_bytes: float, link: Link, n_ranks: int) -> tuple[CostTerm, ...]:
    """Each rank sends `message_bytes` to each other."""
    return _pair(name, n_ranks - 1, (n_ranks - 1) * message_bytes, link) if n_ranks > 1 else ()


def all_gather(n: int, codec: CodecRates, cluster: Cluster) -> tuple[CostTerm, ...]:
    """Everyone sends its code of n values to everyone, and decodes all P."""
    P = cluster.n_ranks
    return (
        *_encode(n, 1, codec),
        *all_to_all("codes", n * codec.bits / 8, cluster.all_to_all, P),
        *_decode(P * n, 1, codec),
    )


def scatter_reduce(n: int, codec: CodecRates, cluster: Cluster) -> tuple[CostTerm, ...]:
    """Chunks to their owners, averages to everyone: n + n/P values are encoded, 2 n are decoded."""
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
    """Chunks to their owners, who keep the averages: n values are encoded, and n decoded."""
    P = cluster.n_ranks
    return (*_encode(n, P, codec), *all_to_all("chunks", n / P * codec.bits / 8, link, P), *_decode(n, P, codec))


def gather_weights(n: int, codec: CodecRates, cluster: Cluster, link: Link, times: int) -> tuple[CostTerm, ...]:
    """Every rank's n/P weights to all others, so many times in a step."""
    P = cluster.n_ranks
    messages = _pair("weights", times * (P - 1), times * (P - 1) / P * n * codec.bits / 8, link) if P > 1 else ()
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


def _pair(name: str, messages: int, n_bytes: float, link: Link) -> tuple[CostTerm, CostTerm]:
    return (
        CostTerm(f"{name}, latency", messages, "messages", link.alpha_seconds, WIRE),
        CostTerm(f"{name}, volume", n_bytes, "bytes", link.seconds_per_byte, WIRE),
    )
