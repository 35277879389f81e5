"""Exchanges: averages over a process group, with a codec on the wire."""

from laconic.exchange.accounting import Accounting
from laconic.exchange.all_gather import AllGather
from laconic.exchange.all_reduce import AllReduce
from laconic.exchange.base import Exchange, Exchanged, Task
from laconic.exchange.buffers import Buffers, KeptBuffers
from laconic.exchange.by_size import BySize
from laconic.exchange.communicator import Communicator
from laconic.exchange.lockstep import Lockstep, pipeline_for
from laconic.exchange.names import EXCHANGES, by_name
from laconic.exchange.neighbours import Neighbours
from laconic.exchange.nothing import Nothing
from laconic.exchange.pieces import PIECE_VALUES, average_in_pieces
from laconic.exchange.pipeline import Handle, Pipeline
from laconic.exchange.scatter_reduce import ScatterReduce
from laconic.exchange.topology import Complete, Custom, Exponential, Mixing, Ring, Star, Topology, Torus

__all__ = [
    "EXCHANGES",
    "PIECE_VALUES",
    "Accounting",
    "AllGather",
    "AllReduce",
    "Buffers",
    "BySize",
    "Communicator",
    "Complete",
    "Custom",
    "Exchange",
    "Exchanged",
    "Exponential",
    "Handle",
    "KeptBuffers",
    "Lockstep",
    "Mixing",
    "Neighbours",
    "Nothing",
    "Pipeline",
    "Ring",
    "ScatterReduce",
    "Star",
    "Task",
    "Topology",
    "Torus",
    "average_in_pieces",
    "by_name",
    "pipeline_for",
]
