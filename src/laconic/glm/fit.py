"""A fit: resolved and solved, from a checkpoint if there is one; of a file, also scored, saved and reported."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from laconic.atomic_write import check_writable
from laconic.data import BadTable, Source, Table
from laconic.exchange import Communicator
from laconic.exchange.agreement import user_errors
from laconic.extras import require
from laconic.glm.checkpoint import Checkpointer, Checkpointing, fingerprint, resume
from laconic.glm.model import Model, inputs_of, like_fitted, rows_for
from laconic.glm.options import FileFit, FitOptions
from laconic.glm.precision import AUTO, ChosenRecipe, is_auto
from laconic.glm.problem import Problem, codes, load, problem_of
from laconic.glm.ranks import gather_columns
from laconic.glm.resolve import find_recipe, one_process_seconds, resolve
from laconic.glm.scores import ScoredRows, Scores, training_scores
from laconic.glm.solvers import Callback, Progress, Solution, State, begin, solve
from laconic.glm.summary import check_summarised, summarise
from laconic.kernels import require_gpu
from laconic.kernels.formats import FORMATS

OnProgress = Callable[[str], None]
PROGRESS_SECONDS = 0.1
GROWTH = 4.0
"""How much larger than the last part's the step of the next part of the data may be."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A fit in this process that is to go on: the step size that it had come to, and its recipe; None to find one."""

    eta0: float | None
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
    """A solution, and the choices that led to it."""

    solution: Solution

    def explain(self) -> list[str]:
        """What was chosen, what happened, and how far it came: a sentence each."""
        problem, solution, state = self.problem, self.solution, self.solution.state
        lines = [f"ran {solution.ran}: {solution.outcome.value}"]
        if solution.gap is not None and self.options.tol is not None:
            how = "an estimated" if solution.converged else "at least"
            lines.append(f"{how} {solution.gap:.1g} of what was gained is left to gain (tol {self.options.tol:g})")
        if problem.scaling is not None:
            lines.append(problem.scaling.explain(self.options))
        kept_in = self.options.precision.data
        if self.measured and FORMATS[kept_in].precision < FORMATS["fp32"].precision:
            lines.append(f"X was rounded to {kept_in}, and the loss and scores of the fit are of X as rounded")
        if state.returns:
            times = "once" if state.returns == 1 else f"{state.returns} times"
            lines.append(f"the loss rose {times}: back to the best iterate, with a quarter of the step")
        return lines

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
    known = None if earlier is None else earlier.eta0
    options = resolve(options, problem, comm, None if one_epoch else known)
    if one_epoch and known is not None and asked.eta0 == AUTO:  # each part has a step of its own
        options = replace(options, eta0=min(float(options.eta0), GROWTH * known))
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

    start       where to begin; a checkpoint, where there is one, comes first
    last_epoch  as in `solve`
    """
    problem, options, keeper = chosen.problem, chosen.options, None
    if checkpointing is None:
        state = start(problem, options)
    else:
        state = resume(checkpointing, problem, options, comm)
        keeper = Checkpointer(checkpointing, fingerprint(problem, options, comm), comm)
        callbacks = [keeper, *callbacks]
    solution = solve(
        problem, options, comm=comm, state=state, callbacks=callbacks, last_epoch=last_epoch, ours=asked.eta0 == AUTO
    )
    if keeper is not None:
        keeper.save(solution.state)
    return Fit(problem, options, chosen.recipe, chosen.measured, solution)


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
        check_writable(Path(job.output), job.data.path, job.test)
        if (options.device or "").startswith("cuda"):
            require_gpu(str(options.device))
        require("safetensors.torch", for_="saving a model", extra="glm")
        table = load(job.data, comm, options)
        names, inputs, notes = table.feature_names, inputs_of(job.data, table), table.notes
    with user_errors(comm):
        problem = problem_of(table, options, comm)
        del table  # from here on X is kept once, as it was prepared
        family, shape = problem.family, (problem.family.n_outputs, problem.n_features)
        if job.summary:
            check_summarised(*shape, options)
    with user_errors(comm.whole):
        if job.test is not None and comm.whole.rank == 0:  # before the work: its first rows, and all labels of text
            blank = Model(torch.zeros(shape), torch.zeros(shape[0]), family.option, problem.classes, names, inputs, {})
            next(_judged(blank, job.data, job.test)[1], None)
    if on_progress is not None:
        on_progress(json.dumps({"n_epochs": options.max_iter, "epoch": 0, "fraction": 0.0}))
        callbacks = [_Reporter(on_progress, options.max_iter), *callbacks]
    checkpointing = None
    if job.checkpoint is not None:
        checkpointing = Checkpointing(Path(job.checkpoint), job.checkpoint_every, job.resume)
    tried = None
    if job.alphas:
        from laconic.glm.sweep import best_alpha  # which is built on fits

        with user_errors(comm.whole):
            options, tried = best_alpha(options, problem, comm, job.alphas, job.cv or 5)
    chosen = choose(options, problem, comm)
    problem = chosen.problem  # where a recipe was found, X is stored anew
    fitted = run(options, chosen, comm, callbacks=callbacks, checkpointing=checkpointing)
    scores, tested = training_scores(problem, fitted.solution.state, comm), None
    coef, intercept = fitted.coefficients(comm)
    settings = fitted.options.to_json()
    model = Model(coef, intercept, family.option, problem.classes, names, inputs, settings, scores.metrics)
    with user_errors(comm.whole):
        if comm.whole.rank == 0:
            model.save(job.output)
            tested = None if job.test is None else scores_of_file(model, job.data, job.test)
    summary = None
    if job.summary:
        features = names or [f"c{j}" for j in range(problem.n_features)]
        summary = summarise(problem, fitted.options, coef, intercept, features, robust=job.robust).to_json()
    more = {
        "notes": list(notes),
        "alphas": tried,
        "summary": summary,
        "test_metrics": tested,
        "seconds": time.perf_counter() - began,
    }
    return _report(job, fitted, model, scores, comm) | more


def scores_of_file(model: Model, like: Source, path: str) -> dict[str, float]:
    """Scores of the rows of another file with the same columns, on this rank alone."""
    n_rows, blocks = _judged(model, like, path)
    scored = ScoredRows(model.kind, n_rows)
    for block, y in blocks:
        scored.add(model.margins(block.X, block.offset), y, block.sample_weight, block.offset)
    return scored.scores().metrics


def _judged(model: Model, like: Source, path: str) -> tuple[int, Iterator[tuple[Table, torch.Tensor]]]:
    """The rows of another file, how many and in blocks, with the targets as the family takes them."""
    rows, blocks = rows_for(model, like_fitted(model, like, path))
    if not rows.has_target:
        raise BadTable(f"{path} has no target to judge by")

    def judged() -> Iterator[tuple[Table, torch.Tensor]]:
        n_before = 0
        for block in blocks:
            y = block.y
            try:
                if model.classes is not None:
                    y = codes(block.y, rows.like.classes, model.classes, n_before)
                model.kind.check(y)
            except BadTable as error:
                raise BadTable(f"{path}: ", *error.parts) from error
            except ValueError as error:
                where = f" of those after the first {n_before:,}" if n_before else ""
                raise BadTable(f"{path}: {error}{where}") from error
            yield block, y
            n_before += block.n_rows

    return rows.n_rows, judged()


def _report(job: FileFit, fitted: Fit, model: Model, scores: Scores, comm: Communicator) -> dict[str, Any]:
    """The report of a fit, as JSON values."""
    state, solution = fitted.solution.state, fitted.solution
    told = comm.whole.size > 1 and fitted.problem.columns.device.type == "cpu"  # the rates of GPUs are others
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
        "converged": solution.converged,
        "gap": solution.gap,
        "explained": fitted.explain(),
        "loss": scores.loss,
        "metrics": dict(model.metrics),
        "fit_seconds": state.seconds,
        "one_process_seconds": one_process_seconds(fitted.problem, fitted.options, state.epoch) if told else None,
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
