"""Ring: each node talks to the one before and the one after."""

from collections.abc import Sequence
from dataclasses import dataclass

from laconic.exchange.topology.base import Topology


@dataclass(frozen=True, slots=True)
class Ring(Topology):
    """Node i talks to i − 1 and i + 1 (mod n); weights 1/3. The gap falls as 1 / n²: (4π² / 3) / n² for large n.

    >>> Ring().mixing(4).neighbours(0), round(Ring().mixing(16).spectral_gap, 3)
    ([1, 3], 0.051)
    """

    def edges(self, size: int) -> Sequence[tuple[int, int]]:
        return [(i, (i + 1) % size) for i in range(size)]
