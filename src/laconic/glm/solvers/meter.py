"""What a fit has cost so far, those parts of it included that ran before a stop."""

import time
from dataclasses import dataclass
from typing import Self

from laconic.glm.solvers.state import State
from laconic.glm.solvers.wire import Wire


@dataclass(frozen=True, slots=True)
class Meter:
    """Where the counters of a state stood when this part of the fit began.

    began       on this process's clock, less the seconds of the parts before
    bytes_sent  by this rank, in those parts
    messages    in those parts
    """

    began: float
    bytes_sent: int
    messages: int

    @classmethod
    def of(cls, state: State) -> Self:
        """For a part that begins now."""
        return cls(time.perf_counter() - state.seconds, state.bytes_sent, state.messages)

    def read(self, state: State, wire: Wire) -> None:
        """Write the totals into the state."""
        state.seconds = time.perf_counter() - self.began
        state.bytes_sent = self.bytes_sent + wire.accounting.bytes_sent
        state.messages = self.messages + wire.messages
