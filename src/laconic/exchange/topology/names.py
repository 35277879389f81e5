"""Topologies by name, for command lines."""

from laconic.exchange.topology.base import Topology
from laconic.exchange.topology.complete import Complete
from laconic.exchange.topology.exponential import Exponential
from laconic.exchange.topology.ring import Ring
from laconic.exchange.topology.star import Star
from laconic.exchange.topology.torus import Torus

TOPOLOGIES: dict[str, type[Topology]] = {
    "ring": Ring,
    "torus": Torus,
    "exponential": Exponential,
    "star": Star,
    "complete": Complete,
}


def by_name(name: str) -> Topology:
    """A topology by name.

    >>> by_name("ring")
    Ring()
    """
    if name not in TOPOLOGIES:
        raise ValueError(f"unknown topology {name!r}; choose one of {', '.join(TOPOLOGIES)}")
    return TOPOLOGIES[name]()
