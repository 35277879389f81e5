"""The work of one rank of `laconic fit`, from the file to the model."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from laconic.atomic_write import check_writable
from laconic.data import BadTable
from laconic.exchange import Accounting, Communicator
from laconic.glm.attempts import as_before, solve_with_smaller_steps
from laconic.glm.auto_recipe import find_recipe, is_auto, with_recipe
from laconic.glm.checkpoint import Checkpointer, fingerprint, latest, restore
from laconic.glm.job.judge import scores_of_file, training_scores
from laconic.glm.job.outcome import make_model, report
from laconic.glm.job.prepared import Prepared, prepare
from laconic.glm.job.task import Task
from laconic.glm.ranks import user_errors
from laconic.glm.solvers import Callback, Outcome, Progress, Settings, Solution, State, begin, solve

Tell = Callable[[str], None]
TELL_SECONDS = 0.1


def fit(tell: Tell, *, task: Mapping[str, Any]) -> dict[str, Any]:
    """Fit on the ranks there are; every rank calls this. What is returned is JSON: rank 0 gives the report.

    Whatever is the user's to mend is raised as a `LaconicError`, on every rank.
    """
    return run(Task.from_json(task), tell)


def run(task: Task, tell: Tell = lambda said: None, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """The same in Python, with callbacks of one's own:

    1. read this rank's columns, check everything;
    2. find the recipe, where it is ours to choose;
    3. solve, from the last checkpoint if asked to;
    4. gather the coefficients, score them, save the model on rank 0.
    """
    comm, began = Communicator.over(), time.perf_counter()
    with user_errors(comm):
        check_writable(Path(task.output))
        settings = task.settings(comm.size)
        data = prepare(task, comm, settings.precision)
    settings = task.for_problem(settings, data.problem, comm)
    with user_errors(comm):
        found = find_recipe(task.recipe, data.problem, settings, comm)
    problem, settings = with_recipe(data.problem, settings, found)
    data = replace(data, problem=problem)
    tell(json.dumps({"n_epochs": settings.max_iter, "epoch": 0, "fraction": 0.0}))
    solution, settings = _solve(task, data, settings, comm, [_teller(tell, settings), *callbacks])
    scores = training_scores(data, solution.state, comm)
    model, tested = make_model(task, data, settings, solution.state, scores, comm), None
    with user_errors(comm):
        if comm.rank == 0:
            tested = None if task.test is None else scores_of_file(model, task.data, task.test)
            model.save(task.output)
    seconds = time.perf_counter() - began
    more = {
        "recipe_explained": found.explained if is_auto(task.recipe) else None,
        "test_metrics": tested,
        "seconds": seconds,
    }
    return report(task, data, settings, solution, scores, comm) | more


def _solve(
    task: Task, data: Prepared, settings: Settings, comm: Communicator, callbacks: Sequence[Callback]
) -> tuple[Solution, Settings]:
    """The solution and the settings that led to it, whose step size may be smaller than asked for; see `attempts`."""
    states: list[State] = []
    if task.checkpoint is not None:
        state, settings = _begin(task, data, settings, comm)
        states.append(state)

    def attempt(settings: Settings) -> Solution:
        state = states.pop() if states else begin(data.problem, settings)  # only the first may go on from a checkpoint
        if task.checkpoint is None:
            return solve(data.problem, settings, comm=comm, state=state, callbacks=callbacks)
        if _is_done(state, settings):
            return Solution(state, Outcome.CONVERGED, state.history, Accounting(), 0, "nothing: it had converged")
        now = _fingerprint(task, data, settings, comm)
        keeper = Checkpointer(Path(task.checkpoint), now, comm, every_seconds=task.checkpoint_every)
        solution = solve(data.problem, settings, comm=comm, state=state, callbacks=[keeper, *callbacks])
        keeper.save(solution.state)
        return solution

    return solve_with_smaller_steps(settings, attempt, chosen=task.eta0 is None)


def _begin(task: Task, data: Prepared, settings: Settings, comm: Communicator) -> tuple[State, Settings]:
    """The state of the last checkpoint, if there is one and it may be used, and settings with its step size."""
    folder = Path(task.checkpoint or "")
    with user_errors(comm):
        found = latest(folder)
        if found is not None and not task.resume:
            raise BadTable(
                f"{folder} holds a checkpoint of epoch {found.numbers['epoch']}; go on from it with --resume, "
                "or give another folder"
            )
    if found is not None and task.eta0 is None:
        settings = as_before(settings, found.fingerprint.get("eta0"))
    state, now = begin(data.problem, settings), _fingerprint(task, data, settings, comm)
    with user_errors(comm):
        if found is not None:
            state = restore(folder, found, now, state, columns=data.columns, comm=comm)
    return state, settings


def _fingerprint(task: Task, data: Prepared, settings: Settings, comm: Communicator) -> dict[str, Any]:
    total = torch.tensor([data.checksum])
    comm.all_reduce(total)()
    return fingerprint(
        data.problem,
        settings,
        features=data.n_features,
        classes=None if data.classes is None else list(data.classes),
        standardize=task.standardize,
        X=int(total),
    )


def _is_done(state: State, settings: Settings) -> bool:
    """Whether the state is one at which `solve` has found that the loss no longer falls."""
    return settings.tol is not None and state.stalls >= settings.n_iter_no_change


def _teller(tell: Tell, settings: Settings) -> Callback:
    """A callback that says where the fit stands, some times a second."""
    last = 0.0

    def report(progress: Progress) -> None:
        nonlocal last
        if time.perf_counter() - last < TELL_SECONDS:
            return
        last = time.perf_counter()
        said = {"epoch": progress.epoch, "fraction": progress.fraction, "loss": progress.loss}
        rate = progress.iteration / max(progress.state.seconds, 1e-9)
        tell(json.dumps({**said, "n_epochs": settings.max_iter, "iterations_per_second": rate}))

    return report
