"""Exchanges: averages over a process group, with a codec on the wire.

averaging         `base` (the interface), `collectives` (the members, and the choice among them)
encoded messages  `codes`
transport         `communicator` (the ranks), `channel`, `messages`; `neighbours` on a `topology`
overlap           `scheduler`: `Pipeline` (threads) and `Lockstep` (none)
starting ranks    `launch`, `rank`
consistency       `agreement`
"""

from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Exchange, Exchanged, Task, run_in_turn
from laconic.exchange.collectives import (
    EXCHANGES,
    AllGather,
    AllReduce,
    BySize,
    GatherChunks,
    Nothing,
    ReduceScatter,
    ScatterReduce,
    by_name,
)
from laconic.exchange.communicator import Communicator
from laconic.exchange.messages import Buffers, KeptBuffers
from laconic.exchange.neighbours import Neighbours
from laconic.exchange.scheduler import (
    Handle,
    Lockstep,
    Pipeline,
    Scheduler,
    average_in_pieces,
    pipeline_for,
)
from laconic.exchange.topology import Complete, Custom, Exponential, Mixing, Ring, Star, Topology, Torus

__all__ = [
    "EXCHANGES",
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
    "GatherChunks",
    "Handle",
    "KeptBuffers",
    "Lockstep",
    "Mixing",
    "Neighbours",
    "Nothing",
    "Pipeline",
    "ReduceScatter",
    "Ring",
    "ScatterReduce",
    "Scheduler",
    "Star",
    "Task",
    "Topology",
    "Torus",
    "average_in_pieces",
    "by_name",
    "pipeline_for",
    "run_in_turn",
]
