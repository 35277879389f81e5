"""Topologies: who talks to whom in decentralised training, and with what weights."""

from laconic.exchange.topology.base import Topology
from laconic.exchange.topology.complete import Complete
from laconic.exchange.topology.custom import Custom
from laconic.exchange.topology.exponential import Exponential
from laconic.exchange.topology.mixing import Mixing, metropolis
from laconic.exchange.topology.names import TOPOLOGIES, by_name, topology_for
from laconic.exchange.topology.ring import Ring
from laconic.exchange.topology.star import Star
from laconic.exchange.topology.torus import Torus

__all__ = [
    "TOPOLOGIES",
    "Complete",
    "Custom",
    "Exponential",
    "Mixing",
    "Ring",
    "Star",
    "Topology",
    "Torus",
    "by_name",
    "metropolis",
    "topology_for",
]
