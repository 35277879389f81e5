"""The state of a fit, the batches it takes next, and what it reports on the way and at its end."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum

import numpy as np
import torch

from laconic.errors import LaconicError
from laconic.exchange import Accounting
from laconic.glm.options import FitOptions
from laconic.glm.problem import Problem
from laconic.kernels.glm import Intercept, Weights


@dataclass(slots=True)
class State:
    """All that must be kept to continue a fit bit for bit.

    Weights of this rank's columns, and counters that are the same on every rank:

    weights          x, momentum, average (C, n_p), and the intercept
    iteration        iterations done
    epoch, batch     the next batch to take
    epoch_loss       Σ w φ of this epoch so far, and
    epoch_weight     Σ w of the same rows
    factor           of the step size, as an adaptive learning rate has shrunk it
    best_loss        of any epoch
    stalls           epochs since the loss last fell by more than the tolerance
    memory           error memory of the codec between teams, where it has one; differs from team to team
    seconds          spent so far
    bytes_sent       by this rank so far (a checkpoint keeps rank 0's), and
    messages         it took part in
    """

    weights: Weights
    iteration: int = 0
    epoch: int = 0
    batch: int = 0
    epoch_loss: float = 0.0
    epoch_weight: float = 0.0
    factor: float = 1.0
    best_loss: float = float("inf")
    stalls: int = 0
    seconds: float = 0.0
    bytes_sent: int = 0
    messages: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    memory: torch.Tensor = field(default_factory=lambda: torch.zeros(0))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that is an array, by name."""
        w = self.weights
        named = {"x": w.x, "momentum": w.momentum, "average": w.average}
        own = {f"intercept.{name}": getattr(w.intercept, name) for name in ("value", "momentum", "average")}
        return named | own | ({"memory": self.memory} if len(self.memory) else {})

    def numbers(self) -> dict[str, object]:
        """Everything else, as JSON values."""
        kept = [f.name for f in fields(self) if f.name not in ("weights", "memory")]
        return {name: getattr(self, name) for name in kept} | {"fitted": self.weights.intercept.fitted}

    @classmethod
    def restore(cls, tensors: dict[str, torch.Tensor], numbers: dict[str, object]) -> "State":
        """The inverse of `tensors` and `numbers`."""
        own = [tensors[f"intercept.{name}"].clone() for name in ("value", "momentum", "average")]
        x, momentum, average = (tensors[name].clone() for name in ("x", "momentum", "average"))
        rest = dict(numbers) | {"memory": tensors.get("memory", torch.zeros(0)).clone()}
        intercept = Intercept(own[0], own[1], own[2], bool(rest.pop("fitted")))
        return cls(Weights(x, momentum, average, intercept), **rest)  # type: ignore[arg-type]

    @property
    def coef(self) -> torch.Tensor:
        """(C, n_p): the average where iterates are averaged, otherwise the last iterate."""
        return self.weights.average if len(self.weights.average) else self.weights.x

    @property
    def intercept(self) -> torch.Tensor:
        """(C,), chosen as `coef` is."""
        own = self.weights.intercept
        return own.average if len(self.weights.average) else own.value


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive batches of an epoch, from the state's next one on.

    rows   (k,) rows of the matrix, one batch after another
    cuts   (n + 1,) where each batch begins in `rows`, and where the last ends
    rates  (n,) step sizes
    mix    (n,) share of the newest iterate in the average: 1 until averaging begins; (0,) without averaging
    """

    rows: np.ndarray
    cuts: np.ndarray
    rates: np.ndarray
    mix: np.ndarray

    @property
    def n_batches(self) -> int:
        """Batches, which is iterations."""
        return len(self.rates)

    def scales(self, gradient: str) -> np.ndarray:
        """What each batch's sum of gradients is multiplied by."""
        return 1.0 / np.diff(self.cuts) if gradient == "mean" else np.ones(self.n_batches)

    def part(self, first: int, last: int) -> "Segment":
        """Batches [first, last)."""
        begin, end = self.cuts[first], self.cuts[last]
        mix = self.mix[first:last] if len(self.mix) else self.mix
        return Segment(self.rows[begin:end], self.cuts[first : last + 1] - begin, self.rates[first:last], mix)


def segment(problem: Problem, options: FitOptions, state: State, order: np.ndarray, n_batches: int) -> Segment:
    """The next `n_batches` batches, or what is left of the epoch.

    order  of the problem's rows in this epoch
    """
    size = options.batch_size
    rows = order[state.batch * size : (state.batch + n_batches) * size]
    if problem.rows is not None:
        rows = problem.rows[rows]
    cuts = np.append(np.arange(0, len(rows), size), len(rows))
    t = state.iteration + np.arange(len(cuts) - 1)
    rates = state.factor * options.rates(t, problem.n_rows)
    after = options.average_after
    mix = np.empty(0) if after is None else 1.0 / np.maximum(1.0, t + 1.0 - after)
    return Segment(rows, cuts, rates, mix)


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
