"""Sweeps: several models of one problem, with other penalties or step sizes, on one stream of rows.

Neither the rows of a block nor their Gram matrix depend on the model, so M models share them: margins, residuals and
updates are products with M C columns instead of C, a block's message carries the same Gram matrix once, and only the
recurrence is done M times. A pass over all rows, as the measure of convergence and Newton's steps need them, is shared
in the same way.

Every model is fitted as if it were alone: its steps, when they shrink, and when it stops are its own. A fit yields what
it asks of rows, and goes on when all others have asked: those that ask for the same rows are answered together.
Newton's method begins where the solutions for other penalties lead instead, and linear regression keeps its one
Hessian: on a CPU one penalty after another, on a GPU in two rounds that share their passes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm.columns import DenseColumns
from laconic.glm.fit import Chosen, Fit, choose
from laconic.glm.options import DIRECT, FitOptions
from laconic.glm.precision import AUTO
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire
from laconic.glm.resolve import resolve, steepness
from laconic.glm.scores import ScoredRows, Scores, by_output
from laconic.glm.solvers import Callback, Solution, begin, sgd
from laconic.glm.solvers.device import suits
from laconic.glm.solvers.objective import Objective, Pass, Requests
from laconic.glm.solvers.solve import Run, Shared, few_threads, order_of, torch_steps
from laconic.glm.solvers.state import Segment, State, stacked

KNOWN, FARTHEST = 3, 2.0
"""Solutions that lead to the next penalty's, at most, and how far, in steps from the one before."""
EVERY = 4
"""Of the penalties of which one fit begins from the start, where several share their passes."""
MARGINS, MARGINS_SHARE = 4, 1 / 8
"""Arrays as large as all margins that a Newton fit has at once, and their share of a GPU's memory."""
LEAST_VALUES = 2**18
"""Values of a batch times columns of the models from which on products of matrices beat compiled loops, one by one."""


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
    several = [own.options for own in chosen]
    ours, warm = asked.eta0 == AUTO, asked.solver == AUTO
    with few_threads(problem):
        solutions = solve_several(first.problem, several, comm, ours, callbacks, warm=warm)
    return [
        Fit(own.problem, own.options, own.recipe, own.measured, solution)
        for own, solution in zip(chosen, solutions, strict=True)
    ]


def held_out(
    asked: FitOptions,
    problem: Problem,
    comm: Communicator,
    alphas: Sequence[float],
    splits: Sequence[tuple[np.ndarray, np.ndarray]],
) -> list[list[tuple[Fit, Scores]]]:
    """For each split, a fit to its first rows for each alpha, and its scores on its second; all ranks call this.

    splits  numbers of rows of the problem, of which those that it does not train on count only where they are second
    """
    if comm.peers.size > 1:
        raise InvalidOption(
            Option("teams", comm.peers.size), " cannot be cross-validated; leave ", Option("teams"), " out"
        )
    return [_scored(asked, problem, comm, alphas, *split) for split in splits]


def _scored(
    asked: FitOptions,
    problem: Problem,
    comm: Communicator,
    alphas: Sequence[float],
    train: np.ndarray,
    test: np.ndarray,
) -> list[tuple[Fit, Scores]]:
    train = train if problem.rows is None else np.intersect1d(problem.rows, train)
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
        scored = ScoredRows(problem.family, len(own))
        own = own if offset is None else own + by_output(offset.to(own.dtype))
        scored.add(own, problem.y[rows], None if weights is None else weights[rows], offset)
        found.append((fit, scored.scores()))
    return found


def best_alpha(
    asked: FitOptions, problem: Problem, comm: Communicator, alphas: Sequence[float], n_folds: int
) -> tuple[FitOptions, list[dict[str, float]]]:
    """The options with the penalty of the best score, on average over folds held out; and loss and score of all."""
    if n_folds > problem.columns.m:
        raise InvalidOption(Option("cv", n_folds), f" is more than the {problem.columns.m} rows there are")
    tests, every = folds(problem.y.cpu().numpy(), n_folds, asked.seed), np.arange(problem.columns.m)
    found = held_out(asked, problem, comm, alphas, [(np.setdiff1d(every, test), test) for test in tests])
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
    """The choices for other penalties, made from what was asked for, as the first was; the recipe is that of the first,
    whose rows are stored already."""
    problem, known = first.problem, None
    if first.options.solver != "newton" and any(own.eta0 == AUTO for own in others):
        known = steepness(problem, first.options, comm)
    resolved = [resolve(own, problem, comm, steepest=known) for own in others]
    return [
        Chosen(problem, replace(own, recipe=first.recipe.precision), first.recipe, first.measured) for own in resolved
    ]


def solve_several(
    problem: Problem,
    options: Sequence[FitOptions],
    comm: Communicator,
    ours: bool = False,
    callbacks: Sequence[Callback] = (),
    *,
    warm: bool = False,
) -> list[Solution]:
    """A solution for each of some options, resolved, that differ in penalty and step size alone.

    warm  whether fits that Newton's steps end may all begin with them, where rows are not cheaper read once for all
    Messages of a shared pass are counted once, with the first model that takes part in it.
    """
    found: dict[int, Solution] = {}
    falling = sorted(range(len(options)), key=lambda j: -options[j].alpha)
    warm = warm and comm.whole.size == 1 and problem.columns.device.type == "cpu" and bool(options[0].tol)
    exact = [j for j in falling if options[j].solver == "newton" or (warm and options[j].polish)]
    before: list[Run] = []
    for some in _rounds(exact, problem, comm):
        runs, fits = list[Run](), list[Requests[Solution]]()
        for j in some:
            known = _nearest(before, options[j].alpha)
            state, shared = _start(problem, options[j], known, known or runs)
            runs.append(Run(problem, options[j], comm, state, callbacks if j == 0 else (), ours, shared))
            fits.append(_led(runs[-1], known))
        found |= zip(some, _Sweep(runs).run(fits), strict=True)
        for run in runs:
            run.forget()
        before += runs
    rest = [j for j in range(len(options)) if j not in found]
    if rest:
        shared = _shared(problem, [options[j] for j in rest], comm)
        runs = [Run(problem, options[j], comm, None, callbacks if j == rest[0] else (), ours, shared) for j in rest]
        found |= zip(rest, _Sweep(runs).run([run.solve() for run in runs]), strict=True)
    return [found[j] for j in range(len(options))]


def _rounds(falling: list[int], problem: Problem, comm: Communicator) -> list[list[int]]:
    """Which Newton fits run at once, one list after another, of their numbers from the largest penalty down.

    Where several share their passes, every fourth and the last run from the start, then those in between, which begin
    near their solutions and need fewer passes. A Hessian that serves all penalties is formed by the first alone.
    """
    most, n_weights = _most_at_once(problem, comm), (problem.columns.n + 1) * problem.family.n_outputs
    if problem.family.quadratic and n_weights <= DIRECT:
        rounds = [falling[:1], falling[1:]]
    else:
        apart = EVERY if len(falling) > EVERY else 1
        ahead = [*falling[:-1:apart], *falling[-1:]]
        rounds = [ahead, [j for j in falling if j not in ahead]]
    return [own[i : i + most] for own in ([falling] if most == 1 else rounds) for i in range(0, len(own), most)]


def _most_at_once(problem: Problem, comm: Communicator) -> int:
    """How many Newton fits share their passes: one on a CPU, where a pass costs as much as the models in it, and on
    ranks; on a GPU as many as have room for their margins."""
    device = problem.columns.device
    if device.type != "cuda" or comm.whole.size > 1:
        return 1
    values = MARGINS * max(1, problem.n_train * problem.family.n_outputs)
    room = MARGINS_SHARE * torch.cuda.get_device_properties(device).total_memory
    return max(1, int(room // (values * torch.float32.itemsize)))


def _nearest(runs: Sequence[Run], alpha: float) -> list[Run]:
    """The fits with the nearest penalties, by their logarithms, the nearest first."""

    def distance(j: int) -> tuple[float, int]:
        other = runs[j].options.alpha
        return (abs(math.log(alpha / other)) if min(alpha, other) > 0 else math.inf), -j

    return [runs[j] for j in sorted(range(len(runs)), key=distance)[:KNOWN]]


def _start(
    problem: Problem, options: FitOptions, known: Sequence[Run], alike: Sequence[Run]
) -> tuple[State, Shared | None]:
    """Where a fit begins: at the solution of the first of `known`, if there are such; and what it shares with `alike`,
    other fits of the path."""
    state = begin(problem, options)
    if known:
        weights, state.polishing = known[0].state.weights, options.solver != "newton"
        state.weights.x.copy_(weights.x)
        state.weights.intercept.value.copy_(weights.intercept.value)
    return state, Shared(alike[0].objective, alike[0].order) if alike else None


def _led(run: Run, known: Sequence[Run]) -> Requests[Solution]:
    """A fit that begins where the solutions for the nearest penalties lead."""
    if len(known) > 1:
        yield from _extrapolate(run, known)
    return (yield from run.solve())


def _extrapolate(run: Run, known: Sequence[Run]) -> Requests[None]:
    """Begin where the curve through the solutions for other penalties, over their logarithms, leads; unless F is larger
    there than at the nearest of them. Not with absolute values, whose curve has corners."""
    last, own = known[0], run.options.alpha
    known = sorted(known, key=lambda one: -one.options.alpha)
    penalties = [one.options.alpha for one in known]
    if last.point is None or run.options.l1 or min(own, *penalties) <= 0 or len({own, *penalties}) <= len(known):
        return
    F, places = run.objective, [math.log(one) for one in penalties]
    t = max(math.log(own), places[-1] - FARTHEST * (places[-2] - places[-1]))
    shares = [math.prod((t - b) / (a - b) for b in places if b != a) for a in places]
    solutions, there = [F.theta(one.state) for one in known], F.theta(last.state)
    theta = F.kept(sum((share * one for share, one in zip(shares, solutions, strict=True)), 0 * there))
    point = yield from F.at(theta, curved=F.direct, margins=not F.direct)
    if point.value <= last.point.value - F.dot((last.objective.l2 - F.l2) * there, there) / 2:
        F.put(theta, run.state)
        run.point = point


def _shared(problem: Problem, options: Sequence[FitOptions], comm: Communicator) -> Shared:
    """What models have in common; those that step through segments at once say so in their names."""
    first, wire, n_models, ran = options[0], Wire(comm), len(options), ""
    if n_models > 1 and shares(problem, first, wire, n_models):
        blocks = f"ca_sgd s={first.s}" if first.solver == "ca_sgd" else "sgd"
        ran = f"{'fused blocks' if suits(problem, first, wire) else blocks}, {n_models} models at once"
    order = lru_cache(maxsize=2)(order_of(problem, first))  # a model that went back is an epoch behind
    return Shared(Objective(problem, first, wire, narrow=first.solver == "newton"), order, ran)


@dataclass(slots=True)
class _Sweep:
    """Fits that share their rows.

    steps  how a group of models steps through segments at once, and their numbers
    """

    runs: list[Run]
    steps: tuple[list[int], Callable[[Sequence[Segment]], np.ndarray]] | None = None

    def run(self, fits: Sequence[Requests[Solution]]) -> list[Solution]:
        """All solutions: each fit goes on until it asks for something, then all requests are answered."""
        found = dict[int, Solution]()
        answers: dict[int, Any] = dict.fromkeys(range(len(fits)))
        while answers:
            asked: dict[int, Pass | Segment] = {}
            for j, answer in answers.items():
                try:
                    asked[j] = self._next(self.runs[j], fits[j], answer)
                except StopIteration as end:
                    found[j] = end.value
            answers = self._serve(asked)
        return [found[j] for j in range(len(fits))]

    def _next(self, run: Run, fit: Requests[Solution], answer: Any) -> Pass | Segment:
        """The next request of a fit that others may share: models that step by themselves do so before it."""
        asked = fit.send(answer)
        while isinstance(asked, Segment) and run.advance is not None:
            asked = fit.send(run.advance(asked))
        return asked

    def _serve(self, asked: dict[int, Pass | Segment]) -> dict[int, Any]:
        """Answer all requests, by the numbers of the fits: those for the same rows together."""
        answers: dict[int, Any] = {}
        while left := [j for j in asked if j not in answers]:
            group = [j for j in left if _same_rows(asked[left[0]], asked[j])]
            answers |= zip(group, self._answer(group, [asked[j] for j in group]), strict=True)
        return {j: answers[j] for j in asked}

    def _answer(self, group: list[int], asked: Sequence[Any]) -> Sequence[Any]:
        if isinstance(asked[0], Pass):
            return asked[0].objective.passes(asked)
        if self.steps is None or self.steps[0] != group:
            self.steps = group, steps_of([self.runs[j] for j in group])
        return [float(loss) for loss in self.steps[1](asked)]


def _same_rows(a: Pass | Segment, b: Pass | Segment) -> bool:
    if isinstance(a, Pass) and isinstance(b, Pass):
        return a.objective.problem is b.objective.problem and a.squared == b.squared
    if isinstance(a, Pass) or isinstance(b, Pass):
        return False
    return np.array_equal(a.rows, b.rows) and np.array_equal(a.mix, b.mix)


def shares(problem: Problem, options: FitOptions, wire: Wire, n_models: int) -> bool:
    """Whether models take steps together: blocks always; iterations, unless compiled ones are faster one by one."""
    if options.solver == "ca_sgd":
        return True
    columns, n_outputs = problem.columns, n_models * problem.family.n_outputs
    if columns.device.type == "cuda" or not sgd.is_compiled(problem, options, wire):
        return not suits(problem, options, wire)
    return isinstance(columns, DenseColumns) and options.batch_size * columns.n * n_outputs >= LEAST_VALUES


def steps_of(models: Sequence[Run]) -> Callable[[Sequence[Segment]], np.ndarray]:
    """What steps through segments with several models at once: from now on their weights lie below each other."""
    first, several = models[0], [one.options for one in models]
    problem, options, wire = first.problem, first.options, first.wire
    weights = stacked([one.state.weights for one in models])
    if suits(problem, options, wire):
        from laconic.glm.solvers.device.blocks import Blocks  # Triton is loaded where it is first needed

        return Blocks(problem, options, State(weights), wire, several).advance_several
    return torch_steps(problem, several, weights, wire, first.state)
