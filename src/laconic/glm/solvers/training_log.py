"""What a fit reports: its progress while it runs, its totals epoch by epoch, and its end."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from laconic.errors import LaconicError
from laconic.exchange import Accounting
from laconic.glm.solvers.state import State
from laconic.glm.solvers.wire import Wire


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a fit stands; given to callbacks after every segment of an epoch.

    epoch        being worked on, from 0
    iteration    iterations done
    fraction     of this epoch that is done; 1 at its end
    loss         mean loss of the epoch so far, each row at the iterate that met it, without the penalty
    state        the solver's own state; copy what you keep
    """

    epoch: int
    iteration: int
    fraction: float
    loss: float
    state: State


Callback = Callable[[Progress], bool | None]
"""Called after every segment; return True to stop the fit."""


class Outcome(Enum):
    """Why a fit ended; the text is for the user."""

    CONVERGED = "the loss no longer falls by more than tol"
    MAX_ITER = "max_iter epochs were done"
    STOPPED = "a callback stopped it"


class Diverged(LaconicError, ArithmeticError):
    """The loss is no longer a number."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of a fit: its last state, why it ended, and what was sent over the network.

    history     one row per epoch, those before a stop included: epoch, iteration, loss (mean by weight), objective
                (what is minimised, each row at the iterate that met it), validation_loss (where rows were held back),
                eta, and the totals so far: seconds, bytes_sent, messages
    accounting  of all sums over ranks since `solve` was called, and
    messages    how many there were; the state has the totals over all parts of the fit
    ran         what did the work, such as "sgd, compiled"
    """

    state: State
    outcome: Outcome
    history: list[dict[str, float]]
    accounting: Accounting
    messages: int
    ran: str


class TrainingLog:
    """Keeps a fit's totals and its history in its state, those parts included that ran before a stop.

    state  whose seconds, bytes_sent, messages and history are written
    wire   whose messages are counted
    """

    def __init__(self, state: State, wire: Wire) -> None:
        self.state, self.wire = state, wire
        self._began = time.perf_counter() - state.seconds
        self._bytes_sent, self._messages = state.bytes_sent, state.messages

    def update(self) -> None:
        """Write the totals as they are now."""
        self.state.seconds = time.perf_counter() - self._began
        self.state.bytes_sent = self._bytes_sent + self.wire.accounting.bytes_sent
        self.state.messages = self._messages + self.wire.messages

    def record(self, row: dict[str, float]) -> None:
        """Append an epoch to the history, with the totals."""
        self.update()
        state = self.state
        totals = {"seconds": state.seconds, "bytes_sent": state.bytes_sent, "messages": state.messages}
        state.history.append(row | totals)
