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


def topology_for(what: Topology | str) -> Topology:
    """A topology from whatever stands for one: itself, or its name.

    >>> topology_for("ring"), topology_for(Star(hub=2))
    (Ring(), Star(hub=2))
    """
    if isinstance(what, str):
        return by_name(what)
    if not isinstance(what, Topology):
        raise TypeError(f"topology must be one such as Ring(), or a name such as 'ring', got {what!r}")
    return what
