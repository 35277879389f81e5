"""Linear, Poisson, negative binomial, gamma and Tweedie regression."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin

from laconic.exchange import Communicator
from laconic.glm.estimators.base import CASGDEstimator, like
from laconic.glm.estimators.inputs import as_margin, as_tensor, check_target
from laconic.glm.families import ALL, Family
from laconic.glm.options import DEFAULTS
from laconic.glm.precision import Precision
from laconic.glm.solvers import Callback

FAMILIES: dict[str, type[Family]] = {family.loss_option: family for family in ALL if not family.classifies}


class CASGDRegressor(RegressorMixin, CASGDEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Linear, Poisson, gamma or Tweedie regression by (communication-avoiding) SGD.

    Minimises the mean of w φ plus alpha ((1 − l1_ratio) ‖x‖² / 2 + l1_ratio ‖x‖₁), with φ = (z − y)² / 2, or half the
    deviance of y from eᶻ. `fit` takes NumPy, pandas, SciPy sparse, torch or a path; under torchrun all ranks share the
    work. docs/glm.md explains every parameter.

    loss           "squared_error", "poisson" (whose offset is log(exposure)), "gamma" (y > 0),
                   "tweedie" (y ≥ 0) or "negative_binomial" (counts)
    tweedie_power  between 1 (as counts) and 2 (as gamma): the variance of y goes with this power of its mean
    theta          of "negative_binomial": the variance of y is its mean + mean² / theta
    All others are those of `CASGDClassifier`, which see; there is no class_weight.

    Fitted: coef_ (n,), intercept_ (1,), n_iter_, t_, history_, converged_, outcome_, gap_, ran_, s_, eta0_, recipe_,
    recipe_explained_, n_features_in_, feature_names_in_.

    >>> X = np.arange(6.0).reshape(-1, 1) - 2.5
    >>> model = CASGDRegressor(alpha=0, tol=1e-9, random_state=0).fit(X, 2 * X[:, 0] + 1)
    >>> model.predict([[10.0]]).round(2)
    array([21.])
    """

    _losses = tuple(FAMILIES)
    _numeric = True

    def __init__(
        self,
        loss: str = "squared_error",
        *,
        tweedie_power: float = DEFAULTS.tweedie_power,
        theta: float = DEFAULTS.theta,
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
        sample_weight: Any = None,
        offset: Any = None,
        *,
        exposure: Any = None,
        rows: str = "replicated",
        comm: Communicator | None = None,
    ) -> "CASGDRegressor":
        """One epoch over these rows, going on from where the last call ended; weights are taken as they are."""
        self._train((X, y, sample_weight, as_margin(offset, exposure)), rows, comm, going_on=True, one_epoch=True)
        return self

    def predict(self, X: Any, offset: Any = None, *, exposure: Any = None) -> Any:
        """Expected targets (m,): for counts, the rate times the exposure."""
        return like(X, self._family().mean(self._margins(X, offset, exposure)))

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None, *, exposure: Any = None
    ) -> float:
        """D²: the share of the deviance that the features explain; of squared errors this is R².

        It is 1 for a perfect model and 0 for one that knows the intercept and the offset only. Of a file, names of
        columns will do as in `fit`.
        """
        return self._score((X, y, sample_weight, as_margin(offset, exposure)))

    def _targets(
        self, y: np.ndarray, weights: np.ndarray | None, *, going_on: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        return y, weights

    def _encode(self, y: Any, labels: tuple[str, ...] | None, n_rows: int) -> torch.Tensor:
        encoded = as_tensor(check_target(self, y, n_rows, numeric=True))
        self._family().check(encoded)
        return encoded

    def _family(self) -> Family:
        return FAMILIES[self.loss].of(options={"tweedie_power": self.tweedie_power, "theta": self.theta})

    def _publish(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        self.coef_, self.intercept_ = coef[0].copy(), intercept.copy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss in FAMILIES and self.loss != "squared_error"
        return tags
