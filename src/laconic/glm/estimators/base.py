"""scikit-learn's contract for both estimators: parameters, fitted attributes, answers in the type of the question."""

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

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
from laconic.glm.data import Data, Label, type_of
from laconic.glm.estimators.inputs import (
    Given,
    Inputs,
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
)
from laconic.glm.estimators.saved import Saved
from laconic.glm.families import Family
from laconic.glm.fit import Earlier, Fit, prepare, resolve, run
from laconic.glm.model import Model
from laconic.glm.options import FitOptions, check_choice, check_flag, is_auto
from laconic.glm.precision import ChosenRecipe
from laconic.glm.problem import Problem
from laconic.glm.resolve import precision_for
from laconic.glm.scores import Scores
from laconic.glm.solvers import Callback, Outcome, Progress, Settings, State, begin
from laconic.glm.source import rows_for

UNCOMPARED = ("random_state", "verbose", "callbacks", "warm_start")
"""Parameters that need not be the same on every rank."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Numbers of all rows.

    y        (m,) what the family takes: class numbers, counts, measurements
    weights  (m,) not negative, or None for ones
    classes  labels by number, of a classifier
    """

    y: np.ndarray
    family: Family
    weights: np.ndarray | None
    classes: tuple[Label, ...] | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """Rows and the model's margins of them, offset included; y as the family takes it."""

    z: torch.Tensor
    y: torch.Tensor
    weights: torch.Tensor | None
    offset: torch.Tensor | None


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
        self._train((X, y, sample_weight, offset), rows, comm, going_on=going_on, one_epoch=False)
        return self

    @abstractmethod
    def _targets(self, y: np.ndarray, weights: np.ndarray | None, *, going_on: bool) -> Targets:
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
        for name in self._get_param_names():
            setattr(self, name, given[name])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _options(self) -> FitOptions:
        """The parameters as a fit's options; raises `InvalidOption` for the first that is not what it can be."""
        check_choice("loss", self.loss, self._losses)
        check_flag("warm_start", self.warm_start)
        if not isinstance(self.callbacks, Iterable) or not all(map(callable, self.callbacks)):
            raise InvalidOption(Option("callbacks"), f" must be functions in a list, got {self.callbacks!r}")
        params = self.get_params(deep=False)
        own = {field.name: params[field.name] for field in fields(FitOptions) if field.name in params}
        return FitOptions(
            **{name: value.item() if isinstance(value, np.generic) else value for name, value in own.items()}
        )

    def _seed(self) -> int:
        """An integer `random_state` itself, as `laconic fit --seed`; otherwise a number drawn from it."""
        generator = check_random_state(self.random_state)
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(generator.randint(np.iinfo(np.int32).max))

    def _train(self, data: Given, rows: str, comm: Communicator | None, *, going_on: bool, one_epoch: bool) -> None:
        """Read, agree, fit, publish.

        going_on   from what was fitted before, if anything was
        one_epoch  over a part of the data there is: its weights are taken as they are
        """
        comm = default_communicator() if comm is None else comm
        saved = self._saved if going_on else None
        with raise_on_all_ranks(comm):
            options = self._options()
            local = read_inputs(self, data, rows, comm, options, reset=saved is None, numeric=self._numeric)
        facts = require_same(comm, self._facts(local, rows), may_differ=_may_differ(rows))
        seed = int(facts[0]["seed"]) if saved is None else saved.sampling.seed
        options = replace(options, seed=seed)
        precision = precision_for(options.recipe, type_of(local.X))
        X, columns, whole = distribute(local, [one["n_rows"] for one in facts], rows, precision.data, comm)
        found = self._data(X, columns, whole, options, going_on=going_on, one_epoch=one_epoch)
        prepared = prepare(options, found, comm, precision, part=one_epoch)
        earlier = None if saved is None else self._earlier(saved, options)
        resolved = resolve(options, prepared, comm, earlier=earlier, one_epoch=one_epoch)
        self.recipe_, self.recipe_explained_ = resolved.recipe.precision, resolved.recipe.explained
        before = 0 if saved is None else int(saved.numbers["epoch"])

        def start(problem: Problem, settings: Settings) -> State:
            if saved is None:
                return begin(problem, settings)
            return saved.start(problem, settings, columns[0], one_epoch=one_epoch)

        fitted = run(options, resolved, comm, callbacks=self._listeners(options, before, comm), start=start)
        self._saved = Saved.of(fitted, comm)
        self._report(self._saved, fitted, before)

    def _facts(self, local: Inputs, rows: str) -> dict[str, Any]:
        params = self.get_params(deep=False)
        compared = {name: repr(value) for name, value in params.items() if name not in UNCOMPARED}
        return compared | {"rows": rows, "seed": self._seed()} | local.facts()

    def _data(
        self, X: Any, columns: tuple[int, int], whole: Inputs, options: FitOptions, *, going_on: bool, one_epoch: bool
    ) -> Data:
        targets = self._targets(whole.y, whole.sample_weight, going_on=going_on)
        y, train, held = torch.from_numpy(targets.y), None, None
        check_width(whole.offset, targets.family.n_outputs(y))
        if options.early_stopping and not one_epoch:
            train, held = _split(targets, options)
        weights = None if targets.weights is None else torch.from_numpy(targets.weights)
        offset = None if whole.offset is None else torch.from_numpy(whole.offset)
        n = whole.n_features
        return Data(X, y, targets.family, weights, offset, targets.classes, columns, n, train, held)

    def _earlier(self, saved: Saved, options: FitOptions) -> Earlier:
        """What to go on from; a recipe that was found is kept."""
        keep = is_auto(options.recipe) and hasattr(self, "recipe_")
        recipe = ChosenRecipe(self.recipe_, self.recipe_explained_) if keep else None
        return Earlier(int(saved.numbers["epoch"]), float(self.eta0_), recipe)

    def _listeners(self, options: FitOptions, before: int, comm: Communicator) -> Sequence[Callback]:
        printing = [_printer(before + options.max_iter)] if self.verbose and comm.rank == 0 else []
        return [*printing, *self.callbacks]

    def _report(self, saved: Saved, fitted: Fit, before: int) -> None:
        """Set the fitted attributes; warn where the loss has not come to rest."""
        state, solution, settings = fitted.state, fitted.solution, fitted.settings
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
            {"tweedie_power": getattr(self, "tweedie_power", 1.5)},
        )

    def _margins(self, X: Any, offset: Any = None) -> torch.Tensor:
        """X coefᵀ + intercept + offset, (m, C), of rows as the user has them or of a file, where X lies."""
        return torch.cat([answered.z for answered in self._answers((X, None, None, offset), target=False)])

    def _judge(self, data: Given) -> float:
        """The family's score, in which the command line agrees to the last digit."""
        scores = Scores(self._family())
        for answered in self._answers(data):
            scores.add(answered.z, answered.y, answered.weights, answered.offset)
        return scores.score

    def _answers(self, data: Given, *, target: bool = True) -> Iterator[Answered]:
        """Margins of rows in memory, or of a file's blocks of rows."""
        X, y, sample_weight, offset = data
        model = self._model()
        if is_path(X):
            yield from self._answers_of_file(model, data, target=target)
            return
        refuse_names(y=y, sample_weight=sample_weight, offset=offset)
        X = check_matrix(self, X, reset=False)
        wide = torch.float64 if type_of(X) == torch.float64 else torch.float32
        device = X.device if isinstance(X, torch.Tensor) else torch.device("cpu")
        model = replace(model, coef=model.coef.to(device, wide), intercept=model.intercept.to(device, wide))
        m, (given, weights) = X.shape[0], (check_offset(offset, X.shape[0]), check_weights(sample_weight, X.shape[0]))
        check_width(given, len(model.coef))
        shift = None if given is None else torch.from_numpy(given).to(device)
        encoded = self._encode(y, None, m) if target else torch.zeros(m)
        yield Answered(model.margins(X, shift), encoded, None if weights is None else torch.from_numpy(weights), shift)

    def _answers_of_file(self, model: Model, data: Given, *, target: bool) -> Iterator[Answered]:
        """Block by block; y and offset that are not given are the columns that `fit` took, weights what is named."""
        path, y, sample_weight, offset = data
        source = source_of(path, y, sample_weight, offset)
        if target and y is None:
            source = replace(source, target=self._inputs.get("target"))
        given = y is not None and not is_name(y)
        rows, blocks = rows_for(model, source, target=False if given or not target else None)
        weights = None if is_name(sample_weight) else check_weights(sample_weight, rows.n_rows)
        shift = None if is_name(offset) else check_offset(offset, rows.n_rows)
        check_width(shift, len(model.coef))
        whole = self._encode(y, None, rows.n_rows) if given and target else None
        first = 0
        yield Answered(torch.zeros(0, len(model.coef), dtype=model.coef.dtype), torch.zeros(0), None, None)
        for block in blocks:
            part = slice(first, first + block.n_rows)
            first += block.n_rows
            o = block.offset if shift is None else torch.from_numpy(shift[part])
            own = block.sample_weight if is_name(sample_weight) else None
            w = own if weights is None else torch.from_numpy(weights[part])
            encoded = torch.zeros(block.n_rows) if not target else None
            if encoded is None:
                encoded = self._encode(block.y, rows.classes, block.n_rows) if whole is None else whole[part]
            yield Answered(model.margins(block.X, o), encoded, w, o)


def like(X: Any, result: torch.Tensor) -> Any:
    """A tensor if X is one, otherwise a NumPy array."""
    return result if isinstance(X, torch.Tensor) else result.numpy()


def _may_differ(rows: str) -> frozenset[str]:
    """Facts that ranks need not agree on; the seed is rank 0's."""
    own = ("n_rows", "y", "sample_weight", "offset") if rows == "partitioned" else ()
    return frozenset({"seed", *own})


def _split(targets: Targets, options: FitOptions) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on, and rows held back, in the classes' proportions; both in order."""
    parts = train_test_split(
        np.arange(len(targets.y)),
        test_size=options.validation_fraction,
        stratify=targets.y if targets.family.classifies else None,
        random_state=options.seed % 2**32,
    )
    train, validation = (np.sort(part).astype(np.int64) for part in parts)
    if targets.weights is not None and not targets.weights[validation].any():
        raise ValueError("sample_weight is zero in every row held back; try another random_state")
    return train, validation


def _printer(max_iter: int) -> Callback:
    """Prints the row of `history` at the end of every epoch."""

    def tell(progress: Progress) -> None:
        if progress.fraction < 1:
            return
        row = progress.state.history[-1]
        parts = [f"loss {row['loss']:.6g}", f"objective {row['objective']:.6g}"]
        if "validation_loss" in row:
            parts.append(f"validation {row['validation_loss']:.6g}")
        parts += [f"eta {row['eta']:.3g}", f"{row['seconds']:.1f} s"]
        print(f"epoch {progress.epoch + 1} of {max_iter}: " + ", ".join(parts), flush=True)  # noqa: T201

    return tell
