"""scikit-learn's contract for both estimators: parameters, fitted attributes, answers in the type of the question."""

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.exchange.agreement import raise_on_all_ranks, require_same
from laconic.exchange.launch import default_communicator
from laconic.glm.estimators.inputs import (
    Given,
    Inputs,
    as_margin,
    as_tensor,
    check_matrix,
    check_offset,
    check_weights,
    check_width,
    distribute,
    is_name,
    is_path,
    read_inputs,
    refuse_names,
    source_of,
    type_of,
)
from laconic.glm.estimators.saved import Saved
from laconic.glm.families import Family
from laconic.glm.fit import Earlier, Fit, choose, run
from laconic.glm.model import Model, rows_for
from laconic.glm.options import DEFAULTS, FitOptions, unknown
from laconic.glm.precision import AUTO, ChosenRecipe, is_auto, precision_for
from laconic.glm.problem import Problem, make_problem
from laconic.glm.scores import ScoredRows, by_output
from laconic.glm.solvers import Callback, Outcome, Progress, begin
from laconic.glm.summary import Summary, summarise

WORSE = 10.0
"""A part of the data is fitted badly whose loss is so many times the deviance of its best constant above that."""
PRINTED = {"loss": ".6g", "objective": ".6g", "validation_loss": ".6g", "gap": ".1g", "eta": ".3g"}
"""Of a row of the history, where it has them: what `verbose` prints."""
UNCOMPARED = ("random_state", "verbose", "callbacks", "warm_start")
"""Parameters that need not be the same on every rank."""


Judged = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]
"""Margins with their offset, y as the family takes it, weights, and the offset."""


class CASGDEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The fit of a linear model; see `CASGDClassifier` and `CASGDRegressor`."""

    _losses: tuple[str, ...]
    _numeric: bool
    _saved: Saved | None = None
    _inputs: Mapping[str, Any] = {}

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        exposure: Any = None,
        rows: str = "replicated",
        comm: Communicator | None = None,
    ) -> Self:
        """Fit to X (m, n) and labels or targets y (m,).

        sample_weight  (m,) not negative; only their proportions count
        offset         (m,), or (m, K) for K > 2 classes, added to the margins
        exposure       (m,) positive, in place of an offset: its logarithm is the offset, as counts have it
        rows           "replicated": every rank passes the same rows; "partitioned": each its own
        comm           the ranks; by default all there are

        X may be a path or a `laconic.data.Source`, and then y, sample_weight, offset and exposure may name columns of
        the file; or a data frame, whose columns of categories become one column for each category.
        """
        going_on = bool(self.warm_start) and self._saved is not None
        self._train((X, y, sample_weight, as_margin(offset, exposure)), rows, comm, going_on=going_on, one_epoch=False)
        return self

    @abstractmethod
    def _targets(
        self, y: np.ndarray, weights: np.ndarray | None, *, going_on: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """y as the family takes it, and weights with those of the classes."""

    @abstractmethod
    def _family(self) -> Family:
        """Of the targets fitted to."""

    @abstractmethod
    def _encode(self, y: Any, labels: tuple[str, ...] | None, n_rows: int) -> torch.Tensor:
        """Targets to judge by, as the family takes them; `labels` are what codes in y stand for."""

    @abstractmethod
    def _publish(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        """Set `coef_` and `intercept_`, in the estimator's own shapes, from (C, n) and (C,)."""

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Every parameter of `__init__` as an attribute, as scikit-learn has it."""
        for name, value in given.items():
            if name != "self":
                setattr(self, name, value)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _options(self, seed: int) -> FitOptions:
        """The parameters as a fit's options; raises `InvalidOption` for the first that is not what it can be."""
        for name, choices in (("loss", self._losses), ("warm_start", (True, False))):
            if getattr(self, name) not in choices:
                raise unknown(name, getattr(self, name), choices)
        if not isinstance(self.callbacks, Iterable) or not all(map(callable, self.callbacks)):
            raise InvalidOption(Option("callbacks"), f" must be functions in a list, got {self.callbacks!r}")
        params = vars(self)
        own = {field.name: params[field.name] for field in fields(FitOptions) if field.name in params}
        own = {name: value.item() if isinstance(value, np.generic) else value for name, value in own.items()}
        return FitOptions(**own, seed=seed)

    def _seed(self) -> int:
        """An integer `random_state` itself, as `laconic fit --seed`; otherwise a number drawn from it."""
        given = self.random_state
        if isinstance(given, (int, np.integer)) and 0 <= given < 2**32:
            return int(given)
        return int(check_random_state(given).randint(np.iinfo(np.int32).max))  # raises for a number out of range

    def _train(self, data: Given, rows: str, comm: Communicator | None, *, going_on: bool, one_epoch: bool) -> None:
        """Read, agree, fit, publish.

        going_on   from what was fitted before, if anything was
        one_epoch  over a part of the data there is: its weights are taken as they are
        """
        comm = default_communicator() if comm is None else comm
        saved = self._saved if going_on else None
        with raise_on_all_ranks(comm):
            options = self._options(self._seed())
        require_same(comm, {"teams": options.teams})
        comm = comm.split(options.teams)
        with raise_on_all_ranks(comm.whole):
            local = read_inputs(self, data, rows, comm, options, reset=saved is None, numeric=self._numeric)
        facts = self._agree(local, rows, options.seed, comm.whole)
        seed = int(facts[0]["seed"]) if saved is None else saved.options.seed
        options = options if options.seed == seed else replace(options, seed=seed)
        data_format = precision_for(options.recipe, type_of(local.X)).data
        X, first, whole = distribute(local, [one["n_rows"] for one in facts], rows, data_format, comm)
        problem = self._problem(X, first, whole, options, comm, going_on=going_on, one_epoch=one_epoch)
        if not one_epoch:
            options = self._searched(options, problem, data, comm)
        chosen = choose(options, problem, comm, self._earlier(saved, options), one_epoch=one_epoch)
        del problem  # where a recipe was found, X is stored anew
        self.recipe_, self.recipe_explained_ = chosen.recipe.precision, chosen.recipe.explained
        before = 0 if saved is None else int(saved.numbers["epoch"])
        adaptive = options.eta0 == AUTO and options.learning_rate == "adaptive"
        printing = [_printer(before + options.max_iter)] if self.verbose and comm.whole.rank == 0 else []
        fitted = run(
            options,
            chosen,
            comm,
            callbacks=[*printing, *self.callbacks],
            start=begin if saved is None else partial(saved.start, one_epoch=one_epoch, adaptive=adaptive),
            last_epoch=before + (1 if one_epoch else options.max_iter),
        )
        self._saved = Saved.of(fitted, comm, saved)
        coef, intercept = fitted.coefficients(comm)
        self._publish(coef.numpy(), intercept.numpy())
        self._report(fitted, before)
        if one_epoch:
            self._check_part(fitted.problem)

    def _searched(self, options: FitOptions, problem: Problem, data: Given, comm: Communicator) -> FitOptions:
        """The options to fit with; `cv` looks for a penalty here."""
        return options

    def _agree(self, local: Inputs, rows: str, seed: int, comm: Communicator) -> list[dict[str, Any]]:
        """Facts of each rank: its number of rows, the seed, and what all must have alike."""
        facts = {"n_rows": len(local.y), "rows": rows, "seed": seed}
        if comm.size == 1:
            return [facts]
        params = self.get_params(deep=False)
        compared = {name: repr(value) for name, value in params.items() if name not in UNCOMPARED}
        own = ("n_rows", "y", "sample_weight", "offset") if rows == "partitioned" else ()
        return require_same(comm, compared | facts | local.facts(), may_differ={"seed", *own})

    def _problem(
        self,
        X: Any,
        first: int,
        whole: Inputs,
        options: FitOptions,
        comm: Communicator,
        *,
        going_on: bool,
        one_epoch: bool,
    ) -> Problem:
        target, w = self._targets(whole.y, whole.sample_weight, going_on=going_on)
        y, family, train, validation = as_tensor(target), self._family(), None, None
        check_width(whole.offset, family.n_outputs)
        if options.early_stopping and not one_epoch:
            train, validation = _split(target, w, options, stratified=family.classifies)
        weights = None if w is None else as_tensor(w)
        offset = None if whole.offset is None else as_tensor(whole.offset)
        more: dict[str, Any] = {"offset": offset, "rows": train, "validation": validation}
        more |= {"first": first, "n_features": whole.n_features}
        return make_problem(options, X, family, y, weights, comm=comm, part=one_epoch, **more)

    def _earlier(self, saved: Saved | None, options: FitOptions) -> Earlier | None:
        """What to go on from; a recipe that was found is kept."""
        if saved is None:
            return None
        keep = is_auto(options.recipe) and hasattr(self, "recipe_")
        eta0 = None if saved.options.solver == "newton" else float(self.eta0_)
        return Earlier(eta0, ChosenRecipe(self.recipe_, self.recipe_explained_) if keep else None)

    def explain(self) -> str:
        """What the fit chose by itself, what happened on its way, and how near to the optimum it came."""
        check_is_fitted(self)
        return "\n".join([*self._explained, f"recipe: {self.recipe_explained_}"])

    def save(self, path: "str | Path") -> None:
        """Write the model as `laconic fit` does: `laconic predict` and `laconic.load` take it."""
        self._model().save(path)

    def summary(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        exposure: Any = None,
        robust: bool = False,
    ) -> Summary:
        """The coefficients with standard errors, z, p and 95 % intervals, on the rows that were fitted to.

        robust  sandwich errors, which do not rely on the family's variance
        """
        check_is_fitted(self)
        alone, saved = Communicator(), cast(Saved, self._saved)
        options = replace(saved.options, early_stopping=False)
        data = X, y, sample_weight, as_margin(offset, exposure)
        local = read_inputs(self, data, "replicated", alone, options, reset=False, numeric=self._numeric)
        problem = self._problem(local.X, 0, local, options, alone, going_on=True, one_epoch=False)
        names = getattr(self, "feature_names_in_", [f"c{j}" for j in range(self.n_features_in_)])
        model = self._model()
        problem = replace(problem, classes=model.classes)
        return summarise(problem, options, model.coef, model.intercept, names, robust=robust)

    def _report(self, fitted: Fit, before: int) -> None:
        """Set the fitted attributes; warn where the criterion of convergence was not met."""
        state, solution, options = fitted.solution.state, fitted.solution, fitted.options
        self.n_iter_, self.t_ = state.epoch - before, state.iteration
        self.history_, self.ran_ = [dict(row) for row in state.history], solution.ran
        self.outcome_, self.converged_, self.gap_ = solution.outcome, solution.converged, solution.gap
        self.s_, self.eta0_ = options.step, options.eta0
        self._explained = fitted.explain()
        if not (solution.converged or solution.outcome is Outcome.STOPPED or options.tol is None):
            left = "" if solution.gap is None else f"at least {solution.gap:.1g} of what was gained is left to gain; "
            warnings.warn(
                f"the fit did not converge within max_iter={self.max_iter} epochs (tol={self.tol:g}): {left}"
                f"{solution.outcome.advice}, or set tol=None to run that many epochs and no more",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _check_part(self, problem: Problem) -> None:
        """Warn where the rows of a part, each met once, were predicted far worse than by their best constant."""
        family, y, w = problem.family, problem.y.double(), problem.weights_as(torch.float64)
        z = problem.null.expand(len(y), -1)
        z = z if problem.offset is None else z + problem.offset_as(torch.float64)
        loss, constant, deviance = (
            self.history_[-1]["loss"],
            *(float((w * of(z, y)).sum() / w.sum()) for of in (family.loss, family.deviance)),
        )
        if loss - constant > WORSE * deviance / 2:
            warnings.warn(
                f"the mean loss of this part was {loss:.3g}, and that of its best constant is {constant:.3g}: rows of "
                "other parts have led the weights far off. partial_fit scales no columns: scale them (StandardScaler), "
                "take the logarithm of those with long tails, or lower eta0",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _model(self) -> Model:
        """What was fitted, as the command line keeps it."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        return Model(
            as_tensor(np.atleast_2d(self.coef_)),
            as_tensor(self.intercept_),
            self._family().option,
            tuple(self.classes_.tolist()) if self._family().classifies else None,
            None if names is None else tuple(names),
            self._inputs,
            {name: getattr(self, name, value) for name, value in DEFAULTS.of_family.items()},
        )

    def _margins(self, X: Any, offset: Any = None, exposure: Any = None) -> torch.Tensor:
        """X coefᵀ + intercept + offset, (m, C), of rows as the user has them or of a file, where X lies."""
        return self._rows((X, None, None, as_margin(offset, exposure)), target=False)[0]

    def _score(self, data: Given) -> float:
        """The family's score, on which the command line agrees to the last digit."""
        rows = self._rows(data)
        scored = ScoredRows(self._family(), len(rows[0]))
        scored.add(*rows)
        return scored.scores().score

    def _rows(self, data: Given, *, target: bool = True) -> Judged:
        """Margins of some rows, and what to judge them by: as given, or as a file has it."""
        (X, y, sample_weight, offset), labels, model = data, None, self._model()
        if is_path(X):
            z, (y, sample_weight, offset), labels = self._file_rows(model, data, target=target)
        else:
            refuse_names(y=y, sample_weight=sample_weight, offset=offset)
            X = check_matrix(self, X, reset=False)
            wide = torch.float64 if type_of(X) == torch.float64 else torch.float32
            where = X.device if isinstance(X, torch.Tensor) else "cpu"
            z = replace(model, coef=model.coef.to(where, wide), intercept=model.intercept.to(where, wide)).margins(X)
        weights, shift = check_weights(sample_weight, len(z)), check_offset(offset, len(z))
        check_width(shift, z.shape[1])
        added = None if shift is None else torch.from_numpy(shift).to(z.device)
        z = z if added is None else z + by_output(added.to(z.dtype))
        encoded = self._encode(y, labels, len(z)) if target else torch.zeros(len(z))
        return z, encoded, None if weights is None else torch.from_numpy(weights), added

    def _file_rows(
        self, model: Model, data: Given, *, target: bool
    ) -> tuple[torch.Tensor, tuple[Any, Any, Any], tuple[str, ...] | None]:
        """Margins of a file's rows without their offset; y, weights and offset; what codes in y stand for.

        y and offset that are not given are the columns that `fit` took; weights are only what is named.
        """
        path, y, sample_weight, offset = data
        source, named = source_of(path, y, sample_weight, offset), y is None or is_name(y)
        if target and y is None:
            source = replace(source, target=self._inputs.get("target"))
        rows, blocks = rows_for(model, source if target and named else replace(source, target=False))
        parts = [(model.margins(block.X), block.y, block.sample_weight, block.offset) for block in blocks]
        parts = parts or [(model.coef.new_zeros(0, len(model.coef)), torch.zeros(0), None, None)]
        whole: list[Any] = [None if part[0] is None else torch.cat(part) for part in zip(*parts, strict=True)]
        z, file_y, weights, shift = whole
        y = file_y if named else y
        sample_weight = weights if is_name(sample_weight) else sample_weight
        offset = shift if offset is None or is_name(offset) else offset
        return z, (y, sample_weight, offset), rows.like.classes if named else None


def like(X: Any, result: torch.Tensor) -> Any:
    """A tensor if X is one, otherwise a NumPy array."""
    return result if isinstance(X, torch.Tensor) else result.numpy()


def _split(
    y: np.ndarray, weights: np.ndarray | None, options: FitOptions, *, stratified: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on, and rows held back, in order; if stratified, in the classes' proportions."""
    parts = train_test_split(
        np.arange(len(y)),
        test_size=options.validation_fraction,
        stratify=y if stratified else None,
        random_state=options.seed % 2**32,
    )
    train, validation = (np.sort(part).astype(np.int64) for part in parts)
    if weights is not None and not weights[validation].any():
        raise ValueError("sample_weight is zero in every row held back; try another random_state")
    return train, validation


def _printer(max_iter: int) -> Callback:
    """Prints the row of `history` at the end of every epoch."""

    def print_epoch(progress: Progress) -> None:
        if progress.fraction < 1:
            return
        row = progress.state.history[-1]
        parts = [f"{name.removesuffix('_loss')} {row[name]:{of}}" for name, of in PRINTED.items() if name in row]
        print(f"epoch {progress.epoch + 1} of {max_iter}: {', '.join(parts)}, {row['seconds']:.1f} s", flush=True)  # noqa: T201

    return print_epoch
