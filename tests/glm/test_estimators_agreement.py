"""Converged, the estimators have scikit-learn's coefficients; weights are repetitions, offsets are exposures."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from laconic import CASGDClassifier, CASGDRegressor
from laconic.glm import Diverged

from .estimator_problems import ALPHA, KNOWN, M, distance, features

CLOSE = 1e-2


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("alpha", [1e-4, 1e-2])
@pytest.mark.parametrize("recipe", ["auto", "fp32", "C"])
def test_coefficients(name, alpha, recipe):
    known, X = KNOWN[name], features()
    model, best = known.ours(alpha=alpha, recipe=recipe).fit(X, known.y), known.best(alpha=alpha)
    assert model.converged_
    assert distance(model, best) < CLOSE
    np.testing.assert_allclose(np.ravel(model.intercept_), np.ravel(best.intercept_), atol=2e-2)
    assert model.score(X, known.y) == pytest.approx(best.score(X, known.y), abs=5e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", [{"solver": "ca_sgd", "s": 8}, {"momentum": 0.9}, {"average": True}])
@pytest.mark.parametrize("name", KNOWN)
def test_other_ways_lead_there_too(name, solver):
    known = KNOWN[name]
    assert distance(known.ours(**solver).fit(features(), known.y), known.best()) < 2 * CLOSE


@pytest.mark.parametrize("name", KNOWN)
def test_weights_are_repetitions(name):
    known, X = KNOWN[name], features()
    weights = np.random.default_rng(2).integers(0, 4, M)
    best = known.best(sample_weight=weights)
    assert distance(known.ours().fit(X, known.y, sample_weight=weights), best) < CLOSE
    assert distance(known.ours().fit(X, known.y, sample_weight=1000.0 * weights), best) < CLOSE
    assert distance(known.ours().fit(X.repeat(weights, 0), known.y.repeat(weights)), best) < CLOSE


def test_balanced_classes():
    rng, X = np.random.default_rng(0), features()
    y = (X[:, 0] - 2.5 + rng.logistic(size=M) > 0).astype(int)
    model = CASGDClassifier(alpha=ALPHA, tol=1e-5, class_weight="balanced", random_state=0).fit(X, y)
    best = LogisticRegression(C=1 / (ALPHA * M), tol=1e-11, max_iter=10_000, class_weight="balanced").fit(X, y)
    assert distance(model, best) < CLOSE
    as_dict = {0: M / (2 * (y == 0).sum()), 1: M / (2 * (y == 1).sum())}
    same = CASGDClassifier(alpha=ALPHA, tol=1e-5, class_weight=as_dict, random_state=0).fit(X, y)
    np.testing.assert_allclose(same.coef_, model.coef_, rtol=1e-6)


def counts():
    rng, X = np.random.default_rng(0), features()
    exposure = rng.uniform(0.5, 3, M)
    rate = np.exp(X @ [0.4, -0.3, 0.2, 0, 0, 0.1] - 0.5)
    return X, exposure, rng.poisson(exposure * rate).astype(float)


def test_an_offset_is_an_exposure():
    X, exposure, y = counts()
    model = CASGDRegressor("poisson", alpha=ALPHA, tol=1e-5, random_state=0).fit(X, y, offset=np.log(exposure))
    best = PoissonRegressor(alpha=ALPHA / exposure.mean(), tol=1e-11, max_iter=10_000)
    best.fit(X, y / exposure, sample_weight=exposure)
    assert distance(model, best) < CLOSE
    np.testing.assert_allclose(model.predict(X, offset=np.log(exposure)), best.predict(X) * exposure, rtol=0.05)
    assert model.score(X, y, offset=np.log(exposure)) > model.score(X, y)
    as_weights = CASGDRegressor("poisson", alpha=ALPHA / exposure.mean(), tol=1e-5, random_state=0)
    assert distance(as_weights.fit(X, y / exposure, sample_weight=exposure), best) < CLOSE


@pytest.mark.parametrize("rate", [3.0, 0.3, 0.03])
def test_the_automatic_step_survives_skewed_counts(rate):
    """The curvature of counts has no bound: the first step size tried may be too large."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 8))
    y = rng.poisson(rate * np.exp(X @ rng.normal(0, 0.35, 8))).astype(float)
    model = CASGDRegressor("poisson", random_state=0).fit(X, y)
    best = PoissonRegressor(alpha=1e-4, tol=1e-10, max_iter=10_000).fit(X, y)
    assert model.score(X, y) == pytest.approx(best.score(X, y), abs=5e-3)


def test_a_step_of_one_s_own_diverges_with_advice():
    X, _, y = counts()
    with pytest.raises(Diverged, match=r"lower eta0 \(it is 50; try 5\)"):
        CASGDRegressor("poisson", eta0=50.0).fit(X, y)


def test_the_score_of_counts_is_that_of_scikit_learn():
    X, _, y = counts()
    model = CASGDRegressor("poisson", random_state=0).fit(X, y)
    best = PoissonRegressor(alpha=1e-4)
    best.fit(X, y)
    best.coef_, best.intercept_ = model.coef_, float(model.intercept_[0])
    weights = np.linspace(0, 1, M)
    assert model.score(X, y, sample_weight=weights) == pytest.approx(best.score(X, y, sample_weight=weights))


def test_absolute_values_in_the_penalty_leave_zeros():
    rng, X = np.random.default_rng(0), features()
    y = 3 * X[:, 0] + 0.1 * rng.standard_normal(M)
    model = CASGDRegressor(alpha=0.5, l1_ratio=1.0, random_state=0).fit(X, y)
    assert (model.coef_[1:] == 0).all()
    assert model.coef_[0] == pytest.approx(2.5, abs=0.1)
