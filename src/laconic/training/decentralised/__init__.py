"""Decentralised training: each node exchanges models with its neighbours in a graph only."""

from laconic.training.decentralised.base import Decentralised
from laconic.training.decentralised.members import DCDPSGD, DPSGD, ECDPSGD, Clock
from laconic.training.decentralised.simulated import SimulatedGraph

__all__ = ["DCDPSGD", "DPSGD", "ECDPSGD", "Clock", "Decentralised", "SimulatedGraph"]
