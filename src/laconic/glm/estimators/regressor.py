"""Linear and Poisson regression."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin

from laconic.exchange import Communicator
from laconic.glm.estimators.base import CASGDEstimator
from laconic.glm.estimators.inputs import check_offset, check_target, check_weights
from laconic.glm.estimators.outputs import like, margins, margins_of, rows_of
from laconic.glm.estimators.training_set import Targets
from laconic.glm.families import Family, Gaussian, Poisson
from laconic.glm.precision import Precision
from laconic.glm.solvers import Callback

FAMILIES: dict[str, Family] = {"squared_error": Gaussian(), "poisson": Poisson()}


class CASGDRegressor(RegressorMixin, CASGDEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Linear or Poisson regression by (communication-avoiding) SGD.

    Minimises the mean of w φ plus alpha ((1 − l1_ratio) ‖x‖² / 2 + l1_ratio ‖x‖₁), with φ = (z − y)² / 2, or eᶻ − y z
    for counts. `fit` takes NumPy, pandas, SciPy sparse, torch or a path; under torchrun all ranks share the work.
    docs/glm.md explains every parameter.

    loss           "squared_error" or "poisson", whose offset is log(exposure)
    All others are those of `CASGDClassifier`, which see; there is no class_weight.

    Fitted: coef_ (n,), intercept_ (1,), n_iter_, t_, history_, converged_, outcome_, ran_, s_, eta0_, recipe_,
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
        alpha: float = 1e-4,
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        max_iter: int = 100,
        tol: float | None = 1e-4,
        shuffle: bool = True,
        random_state: Any = None,
        learning_rate: str = "adaptive",
        eta0: "float | str" = "auto",
        power_t: float = 0.25,
        momentum: float = 0.0,
        average: "bool | int" = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        warm_start: bool = False,
        verbose: int = 0,
        solver: str = "auto",
        s: "int | str" = "auto",
        batch_size: int = 32,
        recipe: "str | Precision" = "auto",
        device: str | None = None,
        gradient: str = "mean",
        sampling: str = "shuffle",
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
        rows: str = "replicated",
        comm: Communicator | None = None,
    ) -> "CASGDRegressor":
        """One epoch over these rows, going on from where the last call ended; weights are taken as they are."""
        self._train((X, y, sample_weight, offset), rows, comm, going_on=True, partial=True)
        return self

    def predict(self, X: Any, offset: Any = None) -> Any:
        """Expected targets (m,): for counts, the rate times the exposure."""
        return like(X, self._family().mean(margins(self, X, offset)))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None) -> float:
        """D²: the share of the deviance that the features explain; of squared errors this is R².

        It is 1 for a perfect model and 0 for one that knows the intercept and the offset only. Of a file, names of
        columns will do as in `fit`.
        """
        X, y, sample_weight, offset = rows_of(self, (X, y, sample_weight, offset))
        z = margins_of(self, X, offset).double().cpu()
        target = torch.from_numpy(check_target(self, y, len(z), numeric=True))
        given = check_weights(sample_weight, len(z))
        w = torch.ones(len(z), dtype=torch.float64) if given is None else torch.from_numpy(given)
        family = self._family()
        family.check(target)
        null = _null_margins(family, target, w, check_offset(offset, len(z)))
        lost, all_there_is = (float((w * family.deviance(m, target)).sum()) for m in (z, null))
        return 1 - lost / all_there_is if all_there_is > 0 else float(lost == 0)

    def _targets(self, y: np.ndarray, weights: np.ndarray | None, *, going_on: bool) -> Targets:
        return Targets(y, weights)

    def _family(self) -> Family:
        return FAMILIES[self.loss]

    def _publish(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        self.coef_, self.intercept_ = coef[0].copy(), intercept.copy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
        return tags


def _null_margins(family: Family, y: torch.Tensor, w: torch.Tensor, offset: np.ndarray | None) -> torch.Tensor:
    """Margins (m, 1) of the best model without features."""
    if offset is None:
        return family.start(family.target_mean(y, w)).expand(len(y), 1)
    given = torch.from_numpy(offset.reshape(-1))
    if isinstance(family, Poisson):
        constant = ((w * y).sum() / (w * given.exp()).sum()).clamp(min=1e-300).log()
    else:
        constant = (w * (y - given)).sum() / w.sum()
    return (given + constant).reshape(-1, 1)
