"""A fit: resolved and solved, from a checkpoint if there is one; of a file, also scored, saved and reported."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from laconic.atomic_write import check_writable
from laconic.data import BadTable, Source
from laconic.exchange import Accounting, Communicator
from laconic.exchange.agreement import user_errors
from laconic.extras import require
from laconic.glm.checkpoint import Checkpointer, Checkpointing, fingerprint, resume
from laconic.glm.model import Model, inputs_of, rows_for
from laconic.glm.options import FitOptions
from laconic.glm.precision import AUTO, ChosenRecipe, is_auto, text_format
from laconic.glm.problem import Problem, codes, load, problem_of
from laconic.glm.resolve import find_recipe, resolve
from laconic.glm.scores import Scores, training_scores
from laconic.glm.solvers import Callback, Outcome, Progress, Solution, State, begin, solve, solve_with_smaller_steps
from laconic.glm.solvers.wire import gather_columns
from laconic.kernels import require_gpu

OnProgress = Callable[[str], None]
PROGRESS_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Earlier:
    """A fit in this process that is to go on: the step size that it had come to, and its recipe; None to find one."""

    eta0: float
    recipe: ChosenRecipe | None


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """A fit that is about to begin.

    problem   stored as the recipe says
    options   with nothing "auto" left
    recipe    and why it is that one
    measured  whether the recipe was chosen by measurements
    """

    problem: Problem
    options: FitOptions
    recipe: ChosenRecipe
    measured: bool


@dataclass(frozen=True, slots=True, eq=False)
class Fit(Chosen):
    """A solution, and the choices that led to it; the step size may be smaller than the one resolved."""

    solution: Solution

    def coefficients(self, comm: Communicator) -> tuple[torch.Tensor, torch.Tensor]:
        """coef (C, n) of all columns in the units of X, and intercept (C,), on every rank."""
        problem = self.problem
        coef, intercept = self.solution.state.coef.cpu(), self.solution.state.intercept.cpu().clone()
        if problem.scaling is not None:
            coef, shift = problem.scaling.undo(coef)
            comm.all_reduce(shift)()
            intercept = (intercept.double() - shift).to(coef.dtype)
        return gather_columns(coef, problem.first, problem.n_features, comm), intercept


def choose(
    asked: FitOptions, problem: Problem, comm: Communicator, earlier: Earlier | None = None, *, one_epoch: bool = False
) -> Chosen:
    """Choose what is "auto": solver, s and step size, then the recipe. Every rank calls this.

    one_epoch  over a part of the data: whatever the loss does
    """
    options = replace(asked, tol=None) if one_epoch else asked
    if earlier is not None and asked.eta0 == AUTO:
        options = replace(options, eta0=earlier.eta0)
    options = resolve(options, problem, comm)
    recipe = None if earlier is None else earlier.recipe
    if recipe is None:
        recipe = find_recipe(asked.recipe, problem, options, comm)
    if recipe.precision == options.precision:
        return Chosen(problem, options, recipe, asked.recipe != AUTO)
    return Chosen(problem.stored_as(recipe.precision), replace(options, recipe=recipe.precision), recipe, True)


def run(
    asked: FitOptions,
    chosen: Chosen,
    comm: Communicator,
    *,
    callbacks: Sequence[Callback] = (),
    checkpointing: Checkpointing | None = None,
    start: Callable[[Problem, FitOptions], State] = begin,
    last_epoch: int | None = None,
) -> Fit:
    """Solve on the ranks of `comm`; all call this.

    Where the loss diverges and the step size was ours to choose, begin again with smaller steps.

    start       where to begin; a checkpoint, where there is one, comes first
    last_epoch  as in `solve`
    """
    problem, options, ours = chosen.problem, chosen.options, asked.eta0 == AUTO
    restored: list[State] = []
    if checkpointing is not None:
        state, options = resume(checkpointing, problem, options, comm, smaller=ours)
        restored.append(state)

    def attempt(options: FitOptions) -> Solution:
        state = restored.pop() if restored else start(problem, options)  # only the first continues
        if checkpointing is None:
            return solve(problem, options, comm=comm, state=state, callbacks=callbacks, last_epoch=last_epoch)
        if options.tol is not None and state.stalls >= options.n_iter_no_change:
            return Solution(state, Outcome.CONVERGED, state.history, Accounting(), 0, "nothing: it had converged")
        keeper = Checkpointer(checkpointing, fingerprint(problem, options, comm), comm)
        solution = solve(problem, options, comm=comm, state=state, callbacks=[keeper, *callbacks])
        keeper.save(solution.state)
        return solution

    solution, options = solve_with_smaller_steps(options, attempt, chosen=ours)
    return Fit(problem, options, chosen.recipe, chosen.measured, solution)


@dataclass(frozen=True, slots=True)
class FileFit:
    """A fit to a file, as JSON values.

    data, test  rows to fit to, and a file of rows to judge by
    output      file of the model
    checkpoint  folder, or None; `checkpoint_every` and `resume` are as in `Checkpointing`
    """

    data: Source
    output: str
    options: FitOptions = field(default_factory=FitOptions)
    test: str | None = None
    checkpoint: str | None = None
    checkpoint_every: float = 300.0
    resume: bool = False


def run_job(on_progress: OnProgress | None, *, job: Mapping[str, Any]) -> dict[str, Any]:
    """`fit_file` on the ranks there are; every rank calls this. What is returned is JSON: rank 0 gives the report.

    job  `dataclasses.asdict` of a `FileFit`

    What is the user's to mend is raised as a `LaconicError`, on every rank.
    """
    own = {"data": Source(**job["data"]), "options": FitOptions(**job["options"])}
    return fit_file(FileFit(**{**job, **own}), on_progress)


def fit_file(job: FileFit, on_progress: OnProgress | None = None, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Read this rank's columns, fit, score, and save the model on rank 0; returns the report.

    on_progress  called with JSON that says where the fit stands, some times a second
    """
    began, options = time.perf_counter(), job.options
    comm = Communicator.over().split(options.teams)
    with user_errors(comm.whole):
        check_writable(Path(job.output))
        require("safetensors.torch", for_="saving a model", extra="glm")
        require_gpu(options.device)
        table = load(job.data, comm, text_format(options.recipe))
        names, inputs = table.feature_names, inputs_of(job.data, table)
        problem = problem_of(table, options, comm)
        del table  # from here on X is kept once, as it was prepared
    if on_progress is not None:
        on_progress(json.dumps({"n_epochs": options.max_iter, "epoch": 0, "fraction": 0.0}))
        callbacks = [_Reporter(on_progress, options.max_iter), *callbacks]
    checkpointing = None
    if job.checkpoint is not None:
        checkpointing = Checkpointing(Path(job.checkpoint), job.checkpoint_every, job.resume)
    chosen = choose(options, problem, comm)
    problem = chosen.problem  # where a recipe was found, X is stored anew
    fitted = run(options, chosen, comm, callbacks=callbacks, checkpointing=checkpointing)
    scores, tested = training_scores(problem, fitted.solution.state, comm), None
    coef, intercept = fitted.coefficients(comm)
    settings, family = fitted.options.to_json(), problem.family.option
    model = Model(coef, intercept, family, problem.classes, names, inputs, settings, scores.summary())
    with user_errors(comm.whole):
        if comm.whole.rank == 0:
            tested = None if job.test is None else scores_of_file(model, job.data, job.test)
            model.save(job.output)
    more = {"test_metrics": tested, "seconds": time.perf_counter() - began}
    return _report(job, fitted, model, scores, comm) | more


def scores_of_file(model: Model, like: Source, path: str) -> dict[str, float]:
    """Scores of the rows of another file with the same columns, on this rank alone."""
    scores = Scores(model.kind)
    rows, blocks = rows_for(model, replace(like, path=path))
    if not rows.has_target:
        raise BadTable(f"{path} has no target to judge by")
    n_before = 0
    for block in blocks:
        z = model.margins(block.X, block.offset)
        y = block.y if model.classes is None else codes(block.y, rows.classes, model.classes, n_before)
        scores.add(z, y, block.sample_weight, block.offset)
        n_before += block.n_rows
    return scores.summary()


def _report(job: FileFit, fitted: Fit, model: Model, scores: Scores, comm: Communicator) -> dict[str, Any]:
    """The report of a fit, as JSON values."""
    state, solution = fitted.solution.state, fitted.solution
    return {
        "data": job.data.path,
        "n_rows": scores.n_rows,
        "n_features": fitted.problem.n_features,
        "family": model.family,
        "classes": None if model.classes is None else list(model.classes),
        "ranks": comm.whole.size,
        "ran": solution.ran,
        "settings": dict(model.settings),
        "recipe_explained": fitted.recipe.explained if is_auto(job.options.recipe) else None,
        "recipe_measured": fitted.measured,
        "epochs": state.epoch,
        "iterations": state.iteration,
        "outcome": solution.outcome.name.lower(),
        "because": solution.outcome.value,
        "loss": scores.loss,
        "metrics": dict(model.metrics),
        "fit_seconds": state.seconds,
        "messages": state.messages,
        "bytes_sent": state.bytes_sent,
        "history": state.history,
        "model": job.output,
    }


@dataclass(slots=True)
class _Reporter:
    """A callback that says where the fit stands, some times a second."""

    on_progress: OnProgress
    n_epochs: int
    last: float = 0.0

    def __call__(self, progress: Progress) -> None:
        if time.perf_counter() - self.last < PROGRESS_SECONDS:
            return
        self.last = time.perf_counter()
        done = {"epoch": progress.epoch, "fraction": progress.fraction, "n_epochs": self.n_epochs}
        rate = progress.iteration / max(progress.state.seconds, 1e-9)
        self.on_progress(json.dumps({**done, "loss": progress.loss, "iterations_per_second": rate}))
