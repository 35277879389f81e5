"""nothing: no exchange at all, to show what perfect compression could win."""

from dataclasses import dataclass
from typing import ClassVar

from laconic.codec import Codec
from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Exchange, Exchanged, Phases, Task
from laconic.exchange.communicator import Communicator


@dataclass(frozen=True, slots=True)
class Nothing(Exchange):
    """Every rank keeps its own values. For benchmarks only: replicas drift apart."""

    name: ClassVar[str] = "nothing"

    def phases(self, task: Task, comm: Communicator) -> Phases:
        yield
        value = task.target().copy_(task.v.detach().reshape(-1))
        return Exchanged(value, Accounting(n_exchanges=1, n_values=value.numel()))

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        return 0

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """No bound: nothing is averaged."""
        return float("inf")
