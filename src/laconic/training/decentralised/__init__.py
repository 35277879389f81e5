"""Decentralised training: each node exchanges models with its neighbours in a graph only."""

from laconic.training.decentralised.base import Decentralised
from laconic.training.decentralised.dcdpsgd import DCDPSGD
from laconic.training.decentralised.dpsgd import DPSGD
from laconic.training.decentralised.ecdpsgd import ECDPSGD, Clock
from laconic.training.decentralised.simulated import SimulatedGraph

__all__ = ["DCDPSGD", "DPSGD", "ECDPSGD", "Clock", "Decentralised", "SimulatedGraph"]
