"""Complete graph: everybody talks to everybody."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from laconic.exchange.topology.base import Topology


@dataclass(frozen=True, slots=True)
class Complete(Topology):
    """All weights 1/n: one round of mixing is an average, gap 1.

    >>> round(Complete().mixing(5).spectral_gap, 9)
    1.0
    """

    def edges(self, size: int) -> Sequence[tuple[int, int]]:
        return list(combinations(range(size), 2))
