"""Exponential graph: neighbours at distances 1, 2, 4, …"""

from collections.abc import Sequence
from dataclasses import dataclass

from laconic.exchange.topology.base import Topology


@dataclass(frozen=True, slots=True)
class Exponential(Topology):
    """Node i talks to i ± 2^k (mod n) for every 2^k ≤ n / 2: about 2 log₂ n neighbours, and a gap that falls as
    1 / log n only.

    >>> Exponential().mixing(16).neighbours(0), round(Exponential().mixing(16).spectral_gap, 3)
    ([1, 2, 4, 8, 12, 14, 15], 0.5)
    """

    def edges(self, size: int) -> Sequence[tuple[int, int]]:
        distances = [2**k for k in range(size.bit_length()) if 2 * 2**k <= size]
        return [(i, (i + distance) % size) for i in range(size) for distance in distances]
