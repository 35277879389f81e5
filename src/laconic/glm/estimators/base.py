"""What both estimators share: from arguments to a problem, from a solution to fitted attributes."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from laconic.exchange import Communicator
from laconic.exchange.agreement import raise_on_all_ranks, require_same
from laconic.exchange.launch import default_communicator
from laconic.glm.attempts import solve_with_smaller_steps
from laconic.glm.auto_recipe import precision_for
from laconic.glm.columns import Columns
from laconic.glm.estimators.inputs import Given, Inputs, check_width
from laconic.glm.estimators.parameters import Run, check_parameters, settings_for
from laconic.glm.estimators.precision import choose_recipe
from laconic.glm.estimators.reading import cut_columns, may_differ, read_inputs, type_of
from laconic.glm.estimators.saved import Saved, begin_epoch, begin_run
from laconic.glm.estimators.telling import Telling
from laconic.glm.estimators.training_set import Targets, mean_one, split
from laconic.glm.families import Family
from laconic.glm.placing import placed
from laconic.glm.problem import Problem
from laconic.glm.solvers import Callback, Outcome, Settings, Solution, State, begin, solve


class CASGDEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The fit of a linear model; see `CASGDClassifier` and `CASGDRegressor`."""

    _losses: tuple[str, ...]
    _numeric: bool
    _saved: Saved | None = None
    _roles: Mapping[str, Any] = {}

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        rows: str = "replicated",
        comm: Communicator | None = None,
    ) -> Self:
        """Fit to X (m, n) and labels or targets y (m,).

        sample_weight  (m,) not negative; only their proportions count
        offset         (m,), or (m, K) for K > 2 classes, added to the margins; for counts log(exposure)
        rows           "replicated": every rank passes the same rows; "partitioned": each its own
        comm           the ranks; by default all there are

        X may be a path, and then y, sample_weight and offset may name columns of the file.
        """
        going_on = bool(self.warm_start) and self._saved is not None
        self._train((X, y, sample_weight, offset), rows, comm, going_on=going_on, partial=False)
        return self

    @abstractmethod
    def _targets(self, y: np.ndarray, weights: np.ndarray | None, *, going_on: bool) -> Targets:
        """y as the family takes it, and weights with those of the classes."""

    @abstractmethod
    def _family(self) -> Family:
        """Of the targets seen."""

    @abstractmethod
    def _publish(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        """Set `coef_` and `intercept_`, in the estimator's own shapes, from (C, n) and (C,)."""

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Every parameter of `__init__` as an attribute, as scikit-learn has it."""
        for name in self._get_param_names():
            setattr(self, name, given[name])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _train(self, data: Given, rows: str, comm: Communicator | None, *, going_on: bool, partial: bool) -> None:
        """Read, agree, solve, publish.

        going_on  from what was fitted before, if anything was
        partial   one epoch over a part of the data there is: its weights are taken as they are
        """
        comm = default_communicator() if comm is None else comm
        saved = self._saved if going_on else None

        with raise_on_all_ranks(comm):
            check_parameters(self, self._losses)
            local, own = read_inputs(self, data, rows, comm, reset=saved is None, numeric=self._numeric)
        facts = require_same(comm, own, may_differ=may_differ(rows))
        seed = int(facts[0]["seed"]) if saved is None else saved.sampling.seed
        precision = precision_for(self.recipe, type_of(local.X))
        stored = precision.format("data").storage
        cuts, columns, whole = cut_columns(local, [said["n_rows"] for said in facts], rows, stored, comm)
        problem = placed(self._problem(columns, whole, seed, going_on=going_on, partial=partial), self.device)
        run = self._run(saved, seed, partial=partial)
        settings = settings_for(self, problem, precision, run, comm)
        problem, settings = choose_recipe(self, problem, settings, comm, going_on=saved is not None)
        first = cuts[comm.rank]

        def start() -> State:
            return self._state(problem, settings, saved, first, partial=partial)

        solution, settings = self._solve(problem, settings, start, self._listeners(run, comm), comm)
        self._saved = Saved.of(solution, first, cuts[-1], problem.n_rows, settings.sampling, comm)
        self._report(self._saved, solution, settings, 0 if saved is None else int(saved.numbers["epoch"]))

    def _solve(
        self,
        problem: Problem,
        settings: Settings,
        start: Callable[[], State],
        callbacks: Sequence[Callback],
        comm: Communicator,
    ) -> tuple[Solution, Settings]:
        def run(settings: Settings) -> Solution:
            return solve(problem, settings, comm=comm, state=start(), callbacks=callbacks)

        return solve_with_smaller_steps(settings, run, chosen=self.eta0 == "auto")

    def _problem(self, columns: Columns, whole: Inputs, seed: int, *, going_on: bool, partial: bool) -> Problem:
        targets = self._targets(whole.y, whole.sample_weight, going_on=going_on)
        family, train, held = self._family(), None, None
        check_width(whole.offset, family.n_outputs(torch.from_numpy(targets.y)))
        if self.early_stopping and not partial:
            train, held = split(targets, self.validation_fraction, seed)
        if not partial:
            targets = replace(targets, weights=mean_one(targets.weights, train))
        weights = None if targets.weights is None else torch.from_numpy(targets.weights)
        offset = None if whole.offset is None else torch.from_numpy(whole.offset)
        return Problem(columns, family, torch.from_numpy(targets.y), weights, offset, train, held)

    def _run(self, saved: Saved | None, seed: int, *, partial: bool) -> Run:
        done = 0 if saved is None else int(saved.numbers["epoch"])
        eta0 = None if saved is None else float(self.eta0_)
        if partial:
            return Run(done + 1, None, eta0, seed)
        return Run(done + int(self.max_iter), None if self.tol is None else float(self.tol), eta0, seed)

    def _state(self, problem: Problem, settings: Settings, saved: Saved | None, first: int, *, partial: bool) -> State:
        """Where to begin: at nothing, or where a former call ended."""
        state = begin(problem, settings)
        if saved is None:
            return state
        saved.put_into(state, first)
        if partial:
            begin_epoch(state)
        elif saved.converged or saved.n_rows != problem.n_rows:
            begin_run(state)
        elif saved.sampling != settings.sampling:
            begin_epoch(state)  # its batches were others
        return state

    def _listeners(self, run: Run, comm: Communicator) -> list[Callback]:
        telling = [Telling(run.max_iter)] if self.verbose and comm.rank == 0 else []
        return [*telling, *self.callbacks]

    def _report(self, saved: Saved, solution: Solution, settings: Settings, before: int) -> None:
        """Set the fitted attributes; warn where the loss has not come to rest."""
        state = solution.state
        self.n_iter_, self.t_ = state.epoch - before, state.iteration
        self.history_, self.ran_ = [dict(row) for row in state.history], solution.ran
        self.outcome_, self.converged_ = solution.outcome, solution.outcome is Outcome.CONVERGED
        self.s_, self.eta0_ = settings.step, settings.schedule.eta0
        self._publish(saved.coef, saved.intercept)
        if solution.outcome is Outcome.MAX_ITER and settings.tol is not None:
            warnings.warn(
                f"max_iter={self.max_iter} epochs did not bring the loss to rest (tol={self.tol:g}): raise max_iter, "
                "or set tol=None to run that many epochs and no more",
                ConvergenceWarning,
                stacklevel=4,
            )
