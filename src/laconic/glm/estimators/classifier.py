"""Logistic regression, with two classes or more."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from laconic.exchange import Communicator
from laconic.glm.estimators.base import CASGDEstimator, like
from laconic.glm.estimators.inputs import as_margin, as_numpy, check_target
from laconic.glm.families import Bernoulli, Family, Multinomial, OneVsRest
from laconic.glm.options import DEFAULTS, unknown
from laconic.glm.precision import Precision
from laconic.glm.problem import CHUNK, codes
from laconic.glm.scores import most_likely
from laconic.glm.solvers import Callback


class CASGDClassifier(ClassifierMixin, CASGDEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Logistic regression by (communication-avoiding) SGD: one output for two classes, one a class for more.

    Minimises the mean of w φ plus alpha ((1 − l1_ratio) ‖x‖² / 2 + l1_ratio ‖x‖₁). `fit` takes NumPy, pandas, SciPy
    sparse, torch or a path; under torchrun all ranks share the work. docs/glm.md explains every parameter.

    loss           "log_loss"
    alpha, l1_ratio, fit_intercept, class_weight              the model
    multi_class    "multinomial", or "ovr": each of several classes by a model of its own against the rest
    standardize    whether to fit to scaled columns; "auto" where their sizes differ more than tenfold. `coef_` is of
                   columns as given
    solver, polish, s, batch_size, sampling, shuffle, gradient
                   the method: "newton", "sgd", or "ca_sgd", which exchanges a message every s iterations
    learning_rate, eta0, power_t, momentum, average           its steps
    max_iter, tol, n_iter_no_change, early_stopping, validation_fraction    when to stop
    recipe         precision: "fp32", "C", "D", "fp64", a `Precision`, "auto:1e-3" (the cheapest that errs by no more
                   than that share of a step), or "auto" (float64 for such an X; see docs/glm.md)
    device         where to compute: "cuda" for a GPU, "cpu", or None for where X lies. An X larger than the GPU's
                   memory is read from the host's as it is needed
    random_state, warm_start, verbose, callbacks

    Fitted: coef_ (1, n) or (K, n), intercept_ (1,) or (K,), classes_, n_iter_, t_, history_, converged_, outcome_,
    gap_, ran_, s_, eta0_, recipe_ and recipe_explained_, n_features_in_, feature_names_in_.

    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> model = CASGDClassifier(alpha=0.1, random_state=0).fit(X, ["no", "no", "yes", "yes"])
    >>> model.predict([[3.0]]), model.ran_
    (array(['yes'], dtype='<U3'), 'newton, Cholesky, fp64')
    """

    _losses = ("log_loss",)
    _numeric = False

    def __init__(
        self,
        loss: str = "log_loss",
        *,
        alpha: float = DEFAULTS.alpha,
        l1_ratio: float = DEFAULTS.l1_ratio,
        fit_intercept: bool = DEFAULTS.fit_intercept,
        standardize: "bool | str" = DEFAULTS.standardize,
        max_iter: int = DEFAULTS.max_iter,
        tol: float | None = DEFAULTS.tol,
        shuffle: bool = DEFAULTS.shuffle,
        random_state: Any = None,
        learning_rate: str = DEFAULTS.learning_rate,
        eta0: "float | str" = DEFAULTS.eta0,
        power_t: float = DEFAULTS.power_t,
        momentum: float = DEFAULTS.momentum,
        average: "bool | int" = DEFAULTS.average,
        early_stopping: bool = DEFAULTS.early_stopping,
        validation_fraction: float = DEFAULTS.validation_fraction,
        n_iter_no_change: int = DEFAULTS.n_iter_no_change,
        class_weight: "dict[Any, float] | str | None" = None,
        multi_class: str = "multinomial",
        warm_start: bool = False,
        verbose: int = 0,
        solver: str = DEFAULTS.solver,
        polish: "bool | str" = DEFAULTS.polish,
        s: "int | str" = DEFAULTS.s,
        batch_size: int = DEFAULTS.batch_size,
        recipe: "str | Precision" = DEFAULTS.recipe,
        device: str | None = DEFAULTS.device,
        teams: int = DEFAULTS.teams,
        average_every: "int | str" = DEFAULTS.average_every,
        average_codec: str = DEFAULTS.average_codec,
        gradient: str = DEFAULTS.gradient,
        sampling: str = DEFAULTS.sampling,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self._keep(locals())

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        exposure: Any = None,
        rows: str = "replicated",
        comm: Communicator | None = None,
    ) -> "CASGDClassifier":
        """One epoch over these rows, going on from where the last call ended; weights are taken as they are.

        classes  all labels there will ever be; needed in the first call
        """
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all labels at once; with partial_fit, pass a dict: "
                "compute_class_weight('balanced', classes=classes, y=y)"
            )
        if self._saved is None and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if self._saved is None:
            self.classes_ = _classes(np.asarray(as_numpy(classes)))
        elif classes is not None and not np.array_equal(self.classes_, np.unique(as_numpy(classes))):
            raise ValueError(f"`classes={classes!r}` is not the same as on last call to partial_fit: {self.classes_!r}")
        self._train((X, y, sample_weight, as_margin(offset, exposure)), rows, comm, going_on=True, one_epoch=True)
        return self

    def decision_function(self, X: Any, offset: Any = None, *, exposure: Any = None) -> Any:
        """Margins: (m,) for two classes, positive for the second; (m, K) for more."""
        z = self._margins(X, offset, exposure)
        return like(X, z[:, 0] if z.shape[1] == 1 else z)

    def predict(self, X: Any, offset: Any = None, *, exposure: Any = None) -> Any:
        """Labels (m,): a tensor if X is one and the labels are numbers, otherwise a NumPy array."""
        index = most_likely(self._margins(X, offset, exposure))
        if isinstance(X, torch.Tensor) and self.classes_.dtype.kind in "biuf":
            return torch.from_numpy(self.classes_).to(index.device)[index]
        return self.classes_[index.cpu().numpy()]

    def predict_proba(self, X: Any, offset: Any = None, *, exposure: Any = None) -> Any:
        """Probabilities (m, K), in the order of `classes_`."""
        z = self._margins(X, offset, exposure)
        return like(X, self._log_proba(z).exp().to(z.dtype))

    def predict_log_proba(self, X: Any, offset: Any = None, *, exposure: Any = None) -> Any:
        """Their logarithms, which do not underflow; 0 of what rounds to a probability of 1."""
        z = self._margins(X, offset, exposure)
        p = self._log_proba(z)
        return like(X, torch.where(p > -torch.finfo(z.dtype).eps / 4, 0.0, p).to(z.dtype))

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None, *, exposure: Any = None
    ) -> float:
        """Share of rows, by weight, whose label is predicted; of a file, names of columns will do as in `fit`."""
        return self._score((X, y, sample_weight, as_margin(offset, exposure)))

    def _targets(
        self, y: np.ndarray, weights: np.ndarray | None, *, going_on: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        if self.multi_class not in ("multinomial", "ovr"):
            raise unknown("multi_class", self.multi_class, ("multinomial", "ovr"))
        found = _distinct(y) if y.dtype.kind in "biuf" else y
        check_classification_targets(np.tile(found, 2) if len(y) >= 2 * len(found) else y)  # which sees no more in all
        if not going_on:
            self.classes_ = _classes(found)
        index = self._index(y)
        if (index < 0).any():
            row = int((index < 0).argmax())
            label = np.asarray(y[row]).item()
            raise ValueError(f"y has label {label!r} in row {row + 1}, which is not among the classes {self.classes_}")
        if self.class_weight is not None:
            of_class = compute_class_weight(self.class_weight, classes=self.classes_, y=y, sample_weight=weights)
            weights = of_class[index] if weights is None else of_class[index] * weights
        return index.astype(np.float64), weights

    def _index(self, y: np.ndarray) -> np.ndarray:
        """Each label's number among the classes; −1 for one that is none of them."""
        index, last = np.empty(len(y), np.int64), len(self.classes_) - 1
        if y.dtype == index.dtype and np.array_equal(self.classes_, np.arange(last + 1)):
            return np.where((y >= 0) & (y <= last), y, -1)
        for first in range(0, len(y), CHUNK):
            part = y[first : first + CHUNK]
            own = np.minimum(np.searchsorted(self.classes_, part), last)
            index[first : first + CHUNK] = np.where(self.classes_[own] == part, own, -1)
        return index

    def _encode(self, y: Any, labels: tuple[str, ...] | None, n_rows: int) -> torch.Tensor:
        if labels is not None:
            return codes(y, labels, tuple(self.classes_.tolist()), strict=False)
        return torch.from_numpy(self._index(check_target(self, y, n_rows, numeric=False)))

    def _log_proba(self, z: torch.Tensor) -> torch.Tensor:
        z = z.double()
        if z.shape[1] == 1:
            return torch.nn.functional.logsigmoid(torch.cat([-z, z], dim=1))
        return torch.log_softmax(z if self._family().redundant else torch.nn.functional.logsigmoid(z), 1)

    def _family(self) -> Family:
        n = len(self.classes_)
        return Bernoulli() if n == 2 else OneVsRest(n) if self.multi_class == "ovr" else Multinomial(n)

    def _publish(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        self.coef_, self.intercept_ = coef.copy(), intercept.copy()


def _distinct(y: np.ndarray) -> np.ndarray:
    """As NumPy's `unique`; of many small numbers by counting."""
    if y.dtype.kind == "i" and len(y) > CHUNK and 0 <= y.min() <= y.max() < CHUNK:
        return np.flatnonzero(np.bincount(y)).astype(y.dtype)
    return np.unique(y)


def _classes(labels: np.ndarray) -> np.ndarray:
    classes = np.unique(labels)
    if len(classes) < 2:
        raise ValueError(f"a classifier needs at least two classes, y has only one class: {classes}")
    return classes
