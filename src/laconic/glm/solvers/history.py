"""What a fit tells while it runs, and at its end."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from laconic.errors import LaconicError
from laconic.exchange import Accounting
from laconic.glm.solvers.state import State


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
    """The end of a fit: where it stands, why it ended, what was said over the network.

    history     one row an epoch, those before a stop included: epoch, iteration, loss (mean by weight), objective (what
                is minimised, each row at the iterate that met it), validation_loss (where rows were held back), eta,
                and so far: seconds, bytes_sent, messages
    accounting  of all sums over ranks since `solve` was called, and
    messages    how many there were; the state has totals over all parts of the fit
    ran         what did the work, such as "sgd, compiled"
    """

    state: State
    outcome: Outcome
    history: list[dict[str, float]]
    accounting: Accounting
    messages: int
    ran: str
