"""The estimators with a penalty found by cross-validation: each fold fits all penalties on one stream of rows."""

import inspect
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.metaestimators import available_if

from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm.estimators.base import CASGDEstimator
from laconic.glm.estimators.classifier import CASGDClassifier
from laconic.glm.estimators.inputs import Given, is_path
from laconic.glm.estimators.regressor import CASGDRegressor
from laconic.glm.fit import Fit
from laconic.glm.options import FitOptions, check_number
from laconic.glm.problem import Problem
from laconic.glm.ranks import gather_array
from laconic.glm.scores import Scores
from laconic.glm.sweep import held_out

ALPHAS = tuple(10.0**k for k in range(-7, 1))


class CrossValidated(CASGDEstimator):
    """What both have in common: `alphas`, `cv` and `scoring` instead of `alpha`."""

    alphas: Sequence[float]
    cv: Any
    scoring: Any

    def _searched(self, options: FitOptions, problem: Problem, data: Given, comm: Communicator) -> FitOptions:
        """Set alpha_, alphas_, scores_ and best_score_."""
        self.alphas_ = self._checked_alphas()
        if self.scoring is not None:
            self._check_scoring(data, comm)
            data = indexable(*data)  # of sparse matrices only some have rows
        target = problem.y.cpu().numpy()
        splitter = check_cv(self.cv, target, classifier=problem.family.classifies)
        try:
            splits = list(splitter.split(np.zeros((len(target), 1)), target))
        except ValueError as error:
            if "groups" not in str(error):
                raise
            what = f": {splitter!r} needs groups; give its splits, such as cv=list(splitter.split(X, y, groups))"
            raise InvalidOption(Option("cv"), what) from error
        parts = [[gather_array(_numbers(part), comm.whole)[0] for part in split] for split in splits]  # rank 0's
        found = held_out(options, problem, comm, self.alphas_.tolist(), [(train, test) for train, test in parts])
        self.scores_ = np.array(
            [
                [self._judged(fit, scores, data, test, comm) for fit, scores in fold]
                for fold, (_, test) in zip(found, parts, strict=True)
            ]
        )
        mean, losses = self.scores_.mean(0), np.mean([[scores.loss for _, scores in fold] for fold in found], 0)
        best = int(np.lexsort((losses, -np.where(np.isnan(mean), -np.inf, mean)))[0])  # of equal scores the lower loss
        self.alpha_, self.best_score_ = float(self.alphas_[best]), float(mean[best])
        return replace(options, alpha=self.alpha_)

    def _checked_alphas(self) -> np.ndarray:
        try:
            alphas = np.asarray(self.alphas, dtype=np.float64)
            if alphas.ndim != 1 or not len(alphas):
                raise ValueError("there must be one at least")
        except (TypeError, ValueError) as error:
            why = f" must be a list of penalties such as [1e-4, 1e-2]; got {self.alphas!r}"
            raise InvalidOption(Option("alphas"), why) from error
        for alpha in alphas.tolist():
            check_number("alpha", alpha, "alphas")
        return alphas

    def _check_scoring(self, data: Given, comm: Communicator) -> None:
        """Raise `InvalidOption` for what cannot judge the rows."""
        otherwise = "; leave it out to judge by accuracy or D²"
        if is_path(data[0]) or comm.whole.size > 1:
            raise InvalidOption(Option("scoring"), f" needs X in memory and one process{otherwise}")
        if data[3] is not None:
            raise InvalidOption(Option("scoring"), f" knows no offset{otherwise}")
        if not isinstance(self.scoring, str) and not callable(self.scoring):
            raise InvalidOption(Option("scoring"), f" must be a name or a function, got {self.scoring!r}{otherwise}")
        check_scoring(self, self.scoring)

    def _judged(self, fit: Fit, scores: Scores, data: Given, test: np.ndarray, comm: Communicator) -> float:
        """The family's score, or that of `scoring` on the rows as they were given."""
        if self.scoring is None:
            return scores.score
        own = copy(self)
        coef, intercept = fit.coefficients(comm)
        own._publish(coef.numpy(), intercept.numpy())
        X, y, weights = (None if part is None else _safe_indexing(part, test) for part in data[:3])
        weighted = {} if weights is None else {"sample_weight": weights}
        try:
            return float(check_scoring(own, self.scoring)(own, X, y, **weighted))
        except TypeError as error:
            if "'sample_weight'" not in str(error):
                raise
            what = f" takes no sample_weight ({error}); give one that does, such as a function of (model, X, y, "
            raise InvalidOption(Option("scoring"), f"{what}sample_weight=None), or leave the weights out") from error


def _numbers(part: Any) -> np.ndarray:
    """Numbers of rows, which scikit-learn also takes as a mask."""
    rows = np.asarray(part)
    return np.flatnonzero(rows) if rows.dtype == bool else rows


def _init(base: type) -> Any:
    """`__init__` of an estimator, with what a search needs instead of its penalty; its signature says so."""
    usual, kind = inspect.signature(base.__init__).parameters, inspect.Parameter.KEYWORD_ONLY  # type: ignore[misc]
    given = {"alphas": ALPHAS, "cv": None, "scoring": None}
    own = [inspect.Parameter(name, kind, default=value) for name, value in given.items()]
    first = [usual["self"], usual["loss"]]
    signature = inspect.Signature(
        [*first, *own, *(usual[name] for name in usual if name not in ("self", "loss", "alpha"))]
    )

    def __init__(self: Any, *args: Any, **params: Any) -> None:
        bound = signature.bind(self, *args, **params)
        bound.apply_defaults()
        self._keep(bound.arguments)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__


class CASGDClassifierCV(CrossValidated, CASGDClassifier):
    """Logistic regression whose penalty is found by cross-validation, then fitted to all rows with it.

    alphas   penalties to try
    cv       folds: a number, a splitter of scikit-learn, or an iterable of splits; None for 5, stratified
    scoring  a name or function of scikit-learn, given the weights that `fit` has; None for accuracy, which also works
             for files and on ranks
    All other parameters are those of `CASGDClassifier`, which see.

    All penalties of a fold are fitted at once (`laconic.glm.path`). Columns are scaled by all rows, once.

    Fitted: alpha_, alphas_, scores_ (n_folds, n_alphas), best_score_ (the mean over folds), and what `CASGDClassifier`
    has.

    >>> X = np.arange(40.0).reshape(-1, 1) % 10
    >>> CASGDClassifierCV(alphas=[1e-3, 10.0], random_state=0).fit(X, X[:, 0] > 4).alpha_
    0.001
    """

    __init__ = _init(CASGDClassifier)
    partial_fit = available_if(lambda self: False)(CASGDClassifier.partial_fit)


class CASGDRegressorCV(CrossValidated, CASGDRegressor):
    """Regression whose penalty is found by cross-validation, then fitted to all rows with it.

    alphas, cv, scoring are those of `CASGDClassifierCV`, with D² (R² of squared errors) for accuracy; all others those
    of `CASGDRegressor`, which see.

    Fitted: alpha_, alphas_, scores_ (n_folds, n_alphas), best_score_, and what `CASGDRegressor` has.

    >>> X = np.arange(40.0).reshape(-1, 1) % 10
    >>> CASGDRegressorCV(alphas=[1e-6, 10.0]).fit(X, 2 * X[:, 0]).alpha_
    1e-06
    """

    __init__ = _init(CASGDRegressor)
    partial_fit = available_if(lambda self: False)(CASGDRegressor.partial_fit)
