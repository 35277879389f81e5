"""Sweeps: several models of one problem, with other penalties or step sizes, on one stream of rows.

Neither the rows of a block nor their Gram matrix depend on the model, so M models share them: margins, residuals and
updates are products with M C columns instead of C, a block's message carries the same Gram matrix once, and only the
recurrence is done M times. A pass over all rows, as the measure of convergence and Newton's steps need them, is shared
in the same way.

Every model is fitted by `solve`, as if it were alone: its steps, when they shrink, and when it stops are its own. Where
a fit asks for rows it waits until all others have asked, and those that ask for the same rows are answered together.
Newton's method begins at the solution for the next larger penalty instead, and linear regression keeps its one Hessian.
"""

import threading
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch

from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm.columns import DenseColumns
from laconic.glm.fit import Chosen, Fit, choose
from laconic.glm.options import FitOptions
from laconic.glm.precision import AUTO
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire
from laconic.glm.resolve import resolve, steepness
from laconic.glm.scores import Scores, by_output
from laconic.glm.solvers import Callback, Solution, ca_sgd, sgd
from laconic.glm.solvers.device.choice import device_solver, is_supported
from laconic.glm.solvers.newton import Objective, Pass
from laconic.glm.solvers.solve import Advance, RowPasses, begin, solve
from laconic.glm.solvers.state import Segment, State, stacked

LEAST_VALUES = 2**18
"""Values of a batch times columns of the models from which on products of matrices beat compiled loops, one by one."""

T = TypeVar("T")


def path(
    asked: FitOptions,
    problem: Problem,
    comm: Communicator | None = None,
    *,
    alphas: Sequence[float] = (),
    eta0s: Sequence[float] = (),
    callbacks: Sequence[Callback] = (),
) -> list[Fit]:
    """A fit for each alpha, and for each eta0 if there are such; all ranks call this.

    Each is the fit with that penalty and step size alone: the same bits where models are stepped through one by one,
    otherwise up to the order of sums. Newton's method, which begins elsewhere, ends as near to the optimum.

    asked      all other options
    callbacks  called with the progress of the first model, or the first that is not Newton's

    >>> from laconic.glm import DenseColumns, Gaussian
    >>> A = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> problem = Problem(DenseColumns(A), Gaussian(), A @ torch.tensor([1.0, 2.0, 3.0]))
    >>> fits = path(FitOptions(), problem, alphas=[0.0, 1.0])
    >>> [round(float(fit.solution.state.coef.norm()), 2) for fit in fits]
    [3.74, 1.89]
    """
    comm = (Communicator.over() if comm is None else comm).split(asked.teams)
    steps: Sequence[float | str] = eta0s or [asked.eta0]
    wanted = [replace(asked, alpha=a, eta0=e) for a in alphas or [asked.alpha] for e in steps]
    first = choose(wanted[0], problem, comm)
    chosen = [first, *_alike(first, wanted[1:], comm)]
    solutions = solve_several(first.problem, [own.options for own in chosen], comm, asked.eta0 == AUTO, callbacks)
    return [
        Fit(own.problem, own.options, own.recipe, own.measured, solution)
        for own, solution in zip(chosen, solutions, strict=True)
    ]


def held_out(
    asked: FitOptions, problem: Problem, comm: Communicator, alphas: Sequence[float], tests: Sequence[np.ndarray]
) -> list[list[tuple[Fit, Scores]]]:
    """For each set of rows held out, a fit to the others for each alpha, and its scores on these; all ranks call this.

    tests  numbers of rows of the problem, each time among those that it trains on
    """
    if comm.peers.size > 1:
        raise InvalidOption(
            Option("teams", comm.peers.size), " cannot be cross-validated; leave ", Option("teams"), " out"
        )
    every = np.arange(problem.columns.m) if problem.rows is None else problem.rows
    return [_held_out(asked, problem, comm, alphas, np.setdiff1d(every, test), test) for test in tests]


def _held_out(
    asked: FitOptions,
    problem: Problem,
    comm: Communicator,
    alphas: Sequence[float],
    train: np.ndarray,
    test: np.ndarray,
) -> list[tuple[Fit, Scores]]:
    weights, rows = problem.weights, torch.from_numpy(test)
    mean = 1.0 if weights is None else float(weights[torch.from_numpy(train)].mean())
    fits = path(asked, replace(problem, rows=train, validation=None, mean_weight=mean or 1.0), comm, alphas=alphas)
    states = [fit.solution.state for fit in fits]
    stored = fits[0].problem.columns  # as the recipe has it
    z = Wire(comm).all_reduce(stored.margins(torch.cat([state.coef for state in states]), test))
    z = z + torch.cat([state.intercept for state in states])
    offset = None if problem.offset is None else problem.offset[rows]
    found = []
    for fit, own in zip(fits, torch.chunk(z, len(fits), 1), strict=True):
        scores = Scores(problem.family)
        own = own if offset is None else own + by_output(offset.to(own.dtype))
        scores.add(own, problem.y[rows], None if weights is None else weights[rows], offset)
        found.append((fit, scores))
    return found


def best_alpha(
    asked: FitOptions, problem: Problem, comm: Communicator, alphas: Sequence[float], n_folds: int
) -> tuple[FitOptions, list[dict[str, float]]]:
    """The options with the penalty of the best score, on average over folds held out; and loss and score of all."""
    if n_folds > problem.columns.m:
        raise InvalidOption(Option("cv", n_folds), f" is more than the {problem.columns.m} rows there are")
    tests = folds(problem.y.cpu().numpy(), n_folds, asked.seed)
    found = held_out(asked, problem, comm, alphas, tests)
    name = problem.family.metrics[0]
    rows = [
        {
            "alpha": alpha,
            "loss": float(np.mean([s.loss for _, s in own])),
            name: float(np.mean([s.score for _, s in own])),
        }
        for alpha, own in zip(alphas, zip(*found, strict=True), strict=True)
    ]
    best = max(rows, key=lambda row: (row[name], -row["loss"]))
    return replace(asked, alpha=best["alpha"]), rows


def folds(y: np.ndarray, n: int, seed: int) -> list[np.ndarray]:
    """The rows of n folds, in random order; each fold has its share of every class, or of small and large targets.

    >>> [fold.tolist() for fold in folds(np.array([0, 1, 0, 1]), 2, 0)]
    [[1, 2], [0, 3]]
    """
    order = np.lexsort((np.random.default_rng(seed).permutation(len(y)), y))
    return [np.sort(order[j::n]) for j in range(n)]


def _alike(first: Chosen, others: Sequence[FitOptions], comm: Communicator) -> list[Chosen]:
    """The choices for other penalties: the recipe is that of the first, whose rows are stored already."""
    problem, known = first.problem, None
    if first.options.solver != "newton" and any(own.eta0 == AUTO for own in others):
        known = steepness(problem, first.options, comm)
    wanted = [replace(own, recipe=first.recipe.precision) for own in others]
    resolved = [resolve(own, problem, comm, steepest=known) for own in wanted]
    return [Chosen(problem, own, first.recipe, first.measured) for own in resolved]


def solve_several(
    problem: Problem,
    options: Sequence[FitOptions],
    comm: Communicator,
    ours: bool = False,
    callbacks: Sequence[Callback] = (),
) -> list[Solution]:
    """A solution for each of some options, resolved, that differ in penalty and step size alone.

    Messages of a shared pass are counted once, with the first model that takes part in it.
    """
    found: dict[int, Solution] = {}
    falling = sorted(range(len(options)), key=lambda j: -options[j].l2)
    exact = [j for j in falling if options[j].solver == "newton"]
    shared, state = _Objectives(), None
    for j in exact:
        start = begin(problem, options[j])
        if state is not None:
            start.weights.x.copy_(state.weights.x)
            start.weights.intercept.value.copy_(state.weights.intercept.value)
        told = callbacks if j == 0 else ()
        found[j] = solve(problem, options[j], comm=comm, state=start, ours=ours, callbacks=told, rows=shared)
        state = found[j].state
    rest = [j for j in range(len(options)) if j not in found]
    if rest:
        sweep = _Sweep(problem, [options[j] for j in rest], comm, ours, callbacks)
        found |= zip(rest, sweep.run(), strict=True)
    return [found[j] for j in range(len(options))]


@dataclass(slots=True)
class _Objectives(RowPasses):
    """Objectives of several models, which share all but the penalty."""

    first: Objective | None = None

    def objective(self, problem: Problem, options: FitOptions, wire: Wire) -> Objective:
        if self.first is None:
            self.first = Objective(problem, options, wire)
            return self.first
        self.first.null  # noqa: B018 (computed once for all)
        own = copy(self.first)
        own.l1, own.l2, own.wire = options.l1, own.penalty(options), wire
        return own


class _Turns:
    """Functions that take turns, each on a thread of its own, of which only one runs at a time.

    Each is called with `ask`, and runs until it asks for something or ends. When all others have done so too, `serve`
    answers everyone, and all go on. The order is the same each time, and on every rank.

    serve  questions by the functions' numbers to answers
    """

    def __init__(self, serve: Callable[[dict[int, Any]], dict[int, Any]]) -> None:
        self.serve, self.over = serve, False
        self.asked: dict[int, Any] = {}
        self.answers: dict[int, Any] = {}
        self.results: dict[int, Any] = {}
        self.error: BaseException | None = None
        self.back = threading.Semaphore(0)
        self.turns: list[threading.Semaphore] = []

    def run(self, functions: Sequence[Callable[[Callable[[Any], Any]], T]]) -> list[T]:
        """What the functions return; the first error ends all of them."""
        self.turns = [threading.Semaphore(0) for _ in functions]
        for j, function in enumerate(functions):
            threading.Thread(target=self._work, args=(j, function), daemon=True).start()
        try:
            going = range(len(functions))
            while going:
                for j in going:
                    self.turns[j].release()
                    self.back.acquire()
                    if self.error is not None:
                        raise self.error
                asked, self.asked = self.asked, {}
                self.answers, going = self.serve(asked) if asked else {}, sorted(asked)  # type: ignore[assignment]
        finally:
            self.over = True
            for turn in self.turns:
                turn.release()
        return [self.results[j] for j in range(len(functions))]

    def _work(self, j: int, function: Callable[[Callable[[Any], Any]], Any]) -> None:
        self.turns[j].acquire()
        try:
            if not self.over:
                self.results[j] = function(lambda question: self._ask(j, question))
        except _Over:
            return
        except BaseException as error:  # noqa: BLE001 (raised again where `run` was called)
            self.error = error
        self.back.release()

    def _ask(self, j: int, question: Any) -> Any:
        self.asked[j] = question
        self.back.release()
        self.turns[j].acquire()
        if self.over:
            raise _Over
        return self.answers.pop(j)


class _Over(Exception):
    """Another function failed."""


@dataclass(slots=True)
class _Sweep:
    """Fits by SGD or CA-SGD that share their rows.

    orders  of the rows in the last few epochs
    steps   how the models of a group step through segments, by their numbers
    """

    problem: Problem
    options: Sequence[FitOptions]
    comm: Communicator
    ours: bool
    callbacks: Sequence[Callback]
    objectives: _Objectives = field(default_factory=_Objectives)
    orders: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    steps: tuple[tuple[int, ...], Callable[[Sequence[Segment]], np.ndarray]] | None = None

    def run(self) -> list[Solution]:
        """All solutions."""
        try:
            return _Turns(self._serve).run([self._fit(j) for j in range(len(self.options))])
        finally:
            self.steps = None  # what a GPU keeps for them

    def _fit(self, j: int) -> Callable[[Callable[[Any], Any]], Solution]:
        def fit(ask: Callable[[Any], Any]) -> Solution:
            told = () if j else self.callbacks
            return solve(
                self.problem, self.options[j], comm=self.comm, ours=self.ours, callbacks=told, rows=_Shared(self, ask)
            )

        return fit

    def order(self, options: FitOptions, n_rows: int, epoch: int) -> np.ndarray:
        """Made once for all models."""
        if (n_rows, epoch) not in self.orders:
            for old in list(self.orders)[:-1]:
                del self.orders[old]
            self.orders[n_rows, epoch] = options.order(n_rows, epoch)
        return self.orders[n_rows, epoch]

    def _serve(self, asked: dict[int, Any]) -> dict[int, Any]:
        """Answer all questions: those for the same rows together."""
        answers: dict[int, Any] = {}
        while left := [j for j in asked if j not in answers]:
            group = [j for j in left if asked[j].goes_with(asked[left[0]])]
            found = asked[group[0]].answer([asked[j] for j in group], self, tuple(group))
            answers |= zip(group, found, strict=True)
        return answers


@dataclass(frozen=True, slots=True)
class _Shared(RowPasses):
    """What one of the fits asks of all rows."""

    sweep: _Sweep
    ask: Callable[[Any], Any]

    def order(self, options: FitOptions, n_rows: int, epoch: int) -> np.ndarray:
        return self.sweep.order(options, n_rows, epoch)

    def objective(self, problem: Problem, options: FitOptions, wire: Wire) -> Objective:
        own = _SharedObjective.__new__(_SharedObjective)
        vars(own).update(vars(self.sweep.objectives.objective(problem, options, wire)), ask=self.ask)
        return own

    def advance(self, problem: Problem, options: FitOptions, state: State, wire: Wire) -> tuple[Advance, str]:
        n_models = len(self.sweep.options)
        if n_models == 1 or not shares(problem, options, wire, n_models):
            return RowPasses.advance(self, problem, options, state, wire)
        one, blocks = _Stepper(problem, options, state, wire), "fused blocks" if fused(problem, options, wire) else ""
        name = blocks or (f"ca_sgd s={options.s}" if options.solver == "ca_sgd" else "sgd")
        return lambda segment: self.ask(_StepsWanted(one, segment)), f"{name}, {n_models} models at once"


def fused(problem: Problem, options: FitOptions, wire: Wire) -> bool:
    """Whether the kernels of a GPU know this fit's blocks."""
    if options.solver != "ca_sgd" or problem.columns.device.type != "cuda" or not is_supported(problem, options):
        return False
    from laconic.glm.solvers.device.blocks import Blocks  # Triton is loaded where it is first needed

    return Blocks.suits(problem, options, wire)


def shares(problem: Problem, options: FitOptions, wire: Wire, n_models: int) -> bool:
    """Whether models take steps together: blocks always; iterations, unless compiled ones are faster one by one."""
    if options.solver == "ca_sgd":
        return True
    columns, n_outputs = problem.columns, n_models * problem.family.n_outputs
    if columns.device.type == "cuda":
        return device_solver(problem, options, begin(problem, options), wire) is None
    if not sgd.is_compiled(problem, options, wire):
        return True
    return isinstance(columns, DenseColumns) and options.batch_size * columns.n * n_outputs >= LEAST_VALUES


class _SharedObjective(Objective):
    """F of one of the models; `ask` answers its passes together with those of others."""

    ask: Callable[[Any], Any]

    def over_rows(self, asked: Pass) -> torch.Tensor:
        found: torch.Tensor = self.ask(_RowsWanted(self, asked))
        return found


@dataclass(frozen=True, slots=True)
class _RowsWanted:
    """A pass over all rows."""

    objective: Objective
    asked: Pass

    def goes_with(self, other: Any) -> bool:
        return isinstance(other, _RowsWanted) and other.asked.squared == self.asked.squared

    def answer(self, group: "Sequence[_RowsWanted]", sweep: _Sweep, numbers: tuple[int, ...]) -> list[torch.Tensor]:
        return self.objective.passes([one.asked for one in group])


@dataclass(frozen=True, slots=True)
class _Stepper:
    """A model that takes steps: all that differs is its options' penalty and step size, and its state."""

    problem: Problem
    options: FitOptions
    state: State
    wire: Wire


@dataclass(frozen=True, slots=True)
class _StepsWanted:
    """Steps through a segment."""

    of: _Stepper
    segment: Segment

    def goes_with(self, other: Any) -> bool:
        if not isinstance(other, _StepsWanted):
            return False
        a, b = self.segment, other.segment
        return np.array_equal(a.rows, b.rows) and np.array_equal(a.mix, b.mix)

    def answer(self, group: "Sequence[_StepsWanted]", sweep: _Sweep, numbers: tuple[int, ...]) -> list[float]:
        if sweep.steps is None or sweep.steps[0] != numbers:
            sweep.steps = (numbers, steps_of([one.of for one in group]))
        return [float(loss) for loss in sweep.steps[1]([one.segment for one in group])]


def steps_of(models: Sequence[_Stepper]) -> Callable[[Sequence[Segment]], np.ndarray]:
    """What steps through segments with several models at once: from now on their weights lie below each other."""
    first = models[0]
    problem, options, wire, several = first.problem, first.options, first.wire, [one.options for one in models]
    weights = stacked([one.state.weights for one in models])
    if fused(problem, options, wire):
        from laconic.glm.solvers.device.blocks import Blocks

        return Blocks(problem, options, State(weights), wire, several).advance_several
    if options.solver == "ca_sgd":
        return lambda segments: ca_sgd.advance_several(problem, several, weights, wire, segments, first.state.iteration)
    return lambda segments: sgd.advance_several(problem, several, weights, wire, segments)
