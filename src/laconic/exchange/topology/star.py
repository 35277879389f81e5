"""Star: all talk to one."""

from collections.abc import Sequence
from dataclasses import dataclass

from laconic.checks import check_int
from laconic.exchange.topology.base import Topology


@dataclass(frozen=True, slots=True)
class Star(Topology):
    """Every node talks to the hub only; weights 1/n, and 1 − 1/n for a leaf on itself. The gap is 1/n.

    A leaf's link carries one code each way: the place for a node on a slow link.

    hub  the node in the middle

    >>> Star().mixing(4).neighbours(3), round(Star().mixing(4).spectral_gap, 3)
    ([0], 0.25)
    """

    hub: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "hub", check_int("hub", self.hub, 0, owner="star"))

    def edges(self, size: int) -> Sequence[tuple[int, int]]:
        if self.hub >= size:
            raise ValueError(f"star: hub must be a node from 0 to {size - 1}, got {self.hub}")
        return [(self.hub, i) for i in range(size) if i != self.hub]
