"""The state of a fit, the batches it takes next, and what it reports on the way and at its end."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import partial

import numpy as np
import torch

from laconic.errors import LaconicError, Option
from laconic.exchange import Accounting
from laconic.glm.columns import SparseColumns
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
    factor           of the step size, as an adaptive learning rate or a return has shrunk it
    best_loss        of any epoch, and
    best             weights (C, n_p) and intercept (C,) where it began, or where that loss is of rows held back, ended
    entry            the same of this epoch's beginning
    at_best          whether the best ones are the result, and not the last iterate
    polishing        whether Newton's steps have taken over from SGD's
    returns          how often the loss rose, and the fit went back to these with a smaller step
    stalls           epochs since the loss last fell by more than the tolerance
    ended            the name of the `Outcome` by which no epoch is left to do; "" while there may be one
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
    best: tuple[torch.Tensor, ...] = ()
    entry: tuple[torch.Tensor, ...] = ()
    at_best: bool = False
    polishing: bool = False
    returns: int = 0
    stalls: int = 0
    ended: str = ""
    seconds: float = 0.0
    bytes_sent: int = 0
    messages: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    memory: torch.Tensor = field(default_factory=partial(torch.zeros, 0))

    def keep(self, judged: float, *, held_back: bool) -> None:
        """At an epoch's end, keep its loss and weights if it is the best so far; and where the next one begins."""
        now = (self.weights.x, self.weights.intercept.value)
        if judged < self.best_loss:
            self.best_loss = judged
            _copy(now if held_back else self.entry, self.best)
        _copy(now, self.entry)

    def go_back(self) -> None:
        """Return to the best iterate, at rest."""
        w, (x, b) = self.weights, self.best
        for old, best in ((w.x, x), (w.intercept.value, b), (w.intercept.average, b), (w.average, x)):
            if len(old):
                old.copy_(best)
        w.momentum.zero_()
        w.intercept.momentum.zero_()
        _copy(self.best, self.entry)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that is an array, by name."""
        w = self.weights
        named = {"x": w.x, "momentum": w.momentum, "average": w.average}
        for name, (x, b) in (("best", self.best), ("entry", self.entry)):
            named |= {name: x, f"intercept.{name}": b}
        own = {f"intercept.{name}": getattr(w.intercept, name) for name in ("value", "momentum", "average")}
        return named | own | ({"memory": self.memory} if len(self.memory) else {})

    def numbers(self) -> dict[str, object]:
        """Everything else, as JSON values."""
        kept = [f.name for f in fields(self) if f.name not in ("weights", "memory", "best", "entry")]
        return {name: getattr(self, name) for name in kept} | {"fitted": self.weights.intercept.fitted}

    @classmethod
    def restore(cls, tensors: dict[str, torch.Tensor], numbers: dict[str, object]) -> "State":
        """The inverse of `tensors` and `numbers`."""
        own = [tensors[f"intercept.{name}"].clone() for name in ("value", "momentum", "average")]
        x, momentum, average = (tensors[name].clone() for name in ("x", "momentum", "average"))
        rest = dict(numbers) | {"memory": tensors.get("memory", torch.zeros(0)).clone()}
        intercept = Intercept(own[0], own[1], own[2], bool(rest.pop("fitted")))
        kept = {name: (tensors[name].clone(), tensors[f"intercept.{name}"].clone()) for name in ("best", "entry")}
        return cls(Weights(x, momentum, average, intercept), **kept, **rest)  # type: ignore[arg-type]

    @property
    def coef(self) -> torch.Tensor:
        """(C, n_p): the average where iterates are averaged, otherwise the last iterate or the best one."""
        if self.at_best:
            return self.best[0]
        return self.weights.average if len(self.weights.average) else self.weights.x

    @property
    def intercept(self) -> torch.Tensor:
        """(C,), chosen as `coef` is."""
        own = self.weights.intercept
        if self.at_best:
            return self.best[1]
        return own.average if len(self.weights.average) else own.value


def begin(problem: Problem, options: FitOptions) -> State:
    """The state before the first iteration: no weights, and the intercept of a model without features."""
    n_outputs, n, device = problem.family.n_outputs, problem.columns.n, problem.columns.device
    x = torch.zeros(n, n_outputs, dtype=options.precision.carrier, device=device).T
    if not isinstance(problem.columns, SparseColumns):  # whose kernels want the outputs of a column side by side
        x = x.contiguous()
    momentum = torch.zeros_like(x if options.momentum > 0 else x[:0])
    average = torch.zeros_like(x if options.average else x[:0])
    b = x.new_zeros(n_outputs)
    if options.fit_intercept:
        rows = slice(None) if problem.rows is None else torch.from_numpy(problem.rows)
        if float(problem.weights_as(torch.float64)[rows].sum()) == 0:
            raise ValueError("all sample weights are zero")
        b.copy_(problem.null)
    weights = Weights(x, momentum, average, Intercept(b, torch.zeros_like(b), b.clone(), options.fit_intercept))
    return State(weights, best=(x.clone(), b.clone()), entry=(x.clone(), b.clone()))


def _copy(source: Iterable[torch.Tensor], target: Iterable[torch.Tensor]) -> None:
    for old, new in zip(target, source, strict=True):
        old.copy_(new)


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


def each_output(
    models: Sequence[FitOptions], segments: Sequence[Segment], weights: Weights
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """η (n_batches, M C, 1) of the segments' batches, λ and the factor of ‖x‖₁ (M C, 1): None where all are 0."""
    n, rates = len(weights.x) // len(models), np.stack([part.rates for part in segments], 1)
    own = (rates, np.array([own.l2 for own in models]), np.array([own.l1 for own in models]))
    eta, l2, l1 = (torch.from_numpy(a.repeat(n, -1)).to(weights.x)[..., None] for a in own)
    return eta, l2, l1 if bool(l1.any()) else None


def stacked(models: Sequence[Weights]) -> Weights:
    """Weights of several models below each other; theirs become views of these."""

    def joined(owners: Sequence[Weights | Intercept], names: tuple[str, ...]) -> list[torch.Tensor]:
        wholes = [torch.cat([getattr(own, name) for own in owners]) for name in names]
        for name, whole in zip(names, wholes, strict=True):
            for own, view in zip(owners, torch.split(whole, [len(getattr(own, name)) for own in owners]), strict=True):
                setattr(own, name, view)
        return wholes

    x, momentum, average = joined(models, ("x", "momentum", "average"))
    intercepts = [own.intercept for own in models]
    value, inertia, mean = joined(intercepts, ("value", "momentum", "average"))
    return Weights(x, momentum, average, Intercept(value, inertia, mean, intercepts[0].fitted))


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

    CONVERGED = "converged"
    HELD_BACK = "the loss of the rows held back no longer falls"
    STALLED = "not converged: steps no longer lower the loss"
    MAX_ITER = "max_iter epochs were done"
    STOPPED = "a callback stopped it"

    @property
    def advice(self) -> LaconicError:
        """What to do about a fit that did not converge; each front end spells the options."""
        if self is Outcome.STALLED:
            others = Option("solver"), ", ", Option("eta0"), " or ", Option("recipe")
            return LaconicError("more epochs do not help: raise ", Option("tol"), ", or change ", *others)
        return LaconicError("raise ", Option("max_iter"), " or ", Option("tol"))


class Diverged(LaconicError, ArithmeticError):
    """The loss is no longer a number."""


def diverged(options: FitOptions, state: State, loss: float) -> Diverged:
    """What to raise where a loss became infinite, with what to try."""
    eta0, momentum = float(options.eta0), options.momentum
    return Diverged(
        f"the loss became {loss} near iteration {state.iteration} of epoch {state.epoch + 1}: lower ",
        Option("eta0"),
        f" (it is {eta0:g}; try {eta0 / 10:g})",
        *((" or ", Option("momentum"), f" (it is {momentum:g})") if momentum else ()),
        ", or standardise the columns of X",
    )


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of a fit: its last state, why it ended, and what was sent over the network.

    history     one row per epoch, those before a stop included: epoch, iteration, loss (mean by weight), objective
                (what is minimised, each row at the iterate that met it), validation_loss (where rows were held back),
                eta, and the totals so far: seconds, bytes_sent, messages
    accounting  of all sums over ranks since `solve` was called, and
    messages    how many there were; the state has the totals over all parts of the fit
    ran         what did the work, such as "sgd, compiled"
    gap         the estimate of what is left to gain, relative to what was gained: the criterion of convergence; None
                where it was not asked for (no tol, or rows held back)
    """

    state: State
    outcome: Outcome
    history: list[dict[str, float]]
    accounting: Accounting
    messages: int
    ran: str
    gap: float | None = None

    @property
    def converged(self) -> bool:
        """Whether the fit ended as it was meant to."""
        return self.outcome in (Outcome.CONVERGED, Outcome.HELD_BACK)
