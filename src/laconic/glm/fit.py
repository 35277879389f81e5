"""A fit from this rank's rows to a solution: prepared, resolved, solved, from a checkpoint if there is one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.data import BadTable
from laconic.errors import Option
from laconic.exchange import Accounting, Communicator
from laconic.glm.checkpoint import Checkpointer, fingerprint, latest, restore
from laconic.glm.columns import Columns
from laconic.glm.data import Data, as_columns, mean_one, type_of
from laconic.glm.model import Label
from laconic.glm.options import AUTO, FitOptions
from laconic.glm.precision import ChosenRecipe, Precision
from laconic.glm.problem import Problem
from laconic.glm.ranks import gather_columns, user_errors
from laconic.glm.resolve import (
    as_before,
    find_recipe,
    placed,
    precision_for,
    settings_for,
    solve_with_smaller_steps,
    stored_as,
)
from laconic.glm.scaling import Scaling
from laconic.glm.solvers import Callback, Outcome, Settings, Solution, State, begin, solve

SAMPLED_ROWS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """This rank's part of what is to be fitted, and what is needed to make a model of the solution.

    precision   to begin with
    scaling     of the columns, if they were scaled
    classes     what the numbers in y stand for, of a classifier
    weights     of the rows as they were given, to score by
    columns     (first, last) of this rank, and
    n_features  columns in all
    checksum    of some of this rank's values; its sum over ranks does not depend on who has which columns
    """

    problem: Problem
    precision: Precision
    scaling: Scaling | None
    classes: tuple[Label, ...] | None
    weights: torch.Tensor | None
    columns: tuple[int, int]
    n_features: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """Where a fit saves its state, and whether it goes on from there.

    folder         all ranks must see the same one
    every_seconds  at most so much work is lost
    resume         go on from the checkpoint there, if there is one
    """

    folder: Path
    every_seconds: float = 300.0
    resume: bool = False


@dataclass(frozen=True, slots=True)
class Earlier:
    """A fit in this process that is to go on.

    epoch   epochs that were done
    eta0    the step size that it had come to
    recipe  that was found for it; None to find one
    """

    epoch: int
    eta0: float
    recipe: ChosenRecipe | None


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """A fit that is about to begin: nothing is "auto" any more."""

    data: Prepared
    settings: Settings
    recipe: ChosenRecipe


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A solution, and the choices that led to it: settings whose step size may be smaller than the one resolved."""

    data: Prepared
    settings: Settings
    recipe: ChosenRecipe
    solution: Solution

    def coefficients(self, comm: Communicator) -> tuple[torch.Tensor, torch.Tensor]:
        """coef (C, n) of all columns in the units of X, and intercept (C,), on every rank."""
        coef, intercept = self.solution.state.coef.cpu(), self.solution.state.intercept.cpu().clone()
        if self.data.scaling is not None:
            coef, shift = self.data.scaling.undo(coef)
            comm.all_reduce(shift)()
            intercept = (intercept.double() - shift).to(coef.dtype)
        return gather_columns(coef, self.data.columns[0], self.data.n_features, comm), intercept


def prepare(
    options: FitOptions, data: Data, comm: Communicator, precision: Precision | None = None, *, part: bool = False
) -> Prepared:
    """The rows as a problem, checked, stored as the precision says and where the device is.

    precision  to store X in; by default what the recipe says for such an X
    part       these are a part of the rows there will be: their weights are taken as they are
    """
    precision = precision_for(options.recipe, type_of(data.X)) if precision is None else precision
    weights = data.weights if part else mean_one(data.weights, data.train)
    X, scaling = data.X, None
    if options.standardize:
        scaling = Scaling.of(X, centre=options.fit_intercept)
        X = scaling.apply(X, precision.data)
    columns = as_columns(X, precision.data)
    problem = Problem(columns, data.family, data.y, weights, data.offset, data.train, data.validation)
    problem = placed(problem, options.device, comm.size)
    place = (data.columns, data.n_features, _checksum(data))
    return Prepared(problem, precision, scaling, data.classes, data.weights, *place)


def resolve(
    options: FitOptions,
    data: Prepared,
    comm: Communicator,
    *,
    earlier: Earlier | None = None,
    one_epoch: bool = False,
) -> Resolved:
    """Choose what is "auto": solver, s and step size, then the recipe. Every rank calls this.

    one_epoch  over a part of the data: stop after one more epoch, whatever the loss does
    """
    before = 0 if earlier is None else earlier.epoch
    settings = settings_for(
        replace(options, tol=None) if one_epoch else options,
        data.problem,
        data.precision,
        comm,
        eta0=None if earlier is None else earlier.eta0,
        last_epoch=before + (1 if one_epoch else options.max_iter),
    )
    chosen = None if earlier is None else earlier.recipe
    if chosen is None:
        chosen = find_recipe(options.recipe, data.problem, settings, comm)
    if chosen.precision != settings.precision:
        data = replace(data, problem=stored_as(data.problem, chosen.precision))
        settings = replace(settings, precision=chosen.precision)
    return Resolved(data, settings, chosen)


def run(
    options: FitOptions,
    resolved: Resolved,
    comm: Communicator,
    *,
    callbacks: Sequence[Callback] = (),
    checkpointing: Checkpointing | None = None,
    start: Callable[[Problem, Settings], State] = begin,
) -> Fit:
    """Solve on the ranks of `comm`; all call this. Where the loss diverges, begin again with smaller steps.

    start  where to begin; a checkpoint, where there is one, comes first
    """
    data, settings = resolved.data, resolved.settings
    restored: list[State] = []
    if checkpointing is not None:
        state, settings = _begin(options, data, settings, comm, checkpointing)
        restored.append(state)

    def attempt(settings: Settings) -> Solution:
        if checkpointing is None:
            state = start(data.problem, settings)
            return solve(data.problem, settings, comm=comm, state=state, callbacks=callbacks)
        state = restored.pop() if restored else begin(data.problem, settings)  # only the first continues
        if settings.tol is not None and state.stalls >= settings.n_iter_no_change:
            return Solution(state, Outcome.CONVERGED, state.history, Accounting(), 0, "nothing: it had converged")
        now = _fingerprint(options, data, settings, comm)
        keeper = Checkpointer(checkpointing.folder, now, comm, every_seconds=checkpointing.every_seconds)
        solution = solve(data.problem, settings, comm=comm, state=state, callbacks=[keeper, *callbacks])
        keeper.save(solution.state)
        return solution

    solution, settings = solve_with_smaller_steps(settings, attempt, chosen=options.eta0 == AUTO)
    return Fit(data, settings, resolved.recipe, solution)


def _begin(
    options: FitOptions, data: Prepared, settings: Settings, comm: Communicator, checkpointing: Checkpointing
) -> tuple[State, Settings]:
    """The state of the last checkpoint, if there is one and it may be used, and settings with its step size."""
    folder = checkpointing.folder
    with user_errors(comm):
        found = latest(folder)
        if found is not None and not checkpointing.resume:
            what = f"{folder} holds a checkpoint of epoch {found.numbers['epoch']}; go on from it with "
            raise BadTable(what, Option("resume", True), ", or give another folder")
    if found is not None and options.eta0 == AUTO:
        settings = as_before(settings, found.fingerprint.get("eta0"))
    state, now = begin(data.problem, settings), _fingerprint(options, data, settings, comm)
    with user_errors(comm):
        if found is not None:
            state = restore(folder, found, now, state, columns=data.columns, comm=comm)
    return state, settings


def _fingerprint(options: FitOptions, data: Prepared, settings: Settings, comm: Communicator) -> dict[str, Any]:
    total = torch.tensor([data.checksum])
    comm.all_reduce(total)()
    return fingerprint(
        data.problem,
        settings,
        features=data.n_features,
        classes=None if data.classes is None else list(data.classes),
        standardize=options.standardize,
        X=int(total),
    )


def _checksum(data: Data) -> int:
    """Of a few rows: Σ bits of the value · (column + 1) · (row + 1), modulo 2⁶⁴."""
    if isinstance(data.X, Columns):
        return 0
    rows = np.unique(np.linspace(0, max(0, data.X.shape[0] - 1), SAMPLED_ROWS).astype(np.int64))
    if isinstance(data.X, torch.Tensor):
        values = data.X[torch.from_numpy(rows).to(data.X.device)].float().cpu().numpy()
        i, j = np.indices(values.shape)
    else:
        taken = data.X[rows].tocoo()
        values, (i, j) = taken.data, (taken.row, taken.col)
    bits = np.ascontiguousarray(values, np.float32).view(np.int32).astype(np.int64)
    return int((bits * (j.astype(np.int64) + data.columns[0] + 1) * (rows[i] + 1)).sum())
