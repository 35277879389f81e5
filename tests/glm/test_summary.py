"""Standard errors: those of textbooks, and what a model knows where columns depend on each other."""

import numpy as np
import pytest
import scipy.sparse

from glm.estimator_problems import data
from laconic import CASGDClassifier, CASGDRegressor


def by_hand(X, y, model, fisher, slope):
    """Errors from Σ h a aᵀ and, robust, Σ r² a aᵀ, with NumPy."""
    A = np.column_stack([X, np.ones(len(X))])
    inverse = np.linalg.inv((A * fisher[:, None]).T @ A)
    return np.sqrt(np.diag(inverse)), np.sqrt(np.diag(inverse @ ((A * slope[:, None] ** 2).T @ A) @ inverse))


@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "poisson", "gamma", "negative_binomial"])
def test_standard_errors_are_the_textbook_s(loss):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((800, 3)) * [1, 20, 500] + [0, 3, 900]
    mean = np.exp(0.3 * X[:, 0] + 0.01 * X[:, 1])
    y = {
        "log_loss": (rng.random(800) < 1 / (1 + 1 / mean)).astype(int),
        "squared_error": mean + rng.standard_normal(800),
        "gamma": mean * rng.gamma(2.0, 0.5, 800),
    }.get(loss, rng.poisson(mean).astype(float))
    more = {"theta": 2.0} if loss == "negative_binomial" else {}
    kind = CASGDClassifier if loss == "log_loss" else CASGDRegressor
    model = kind(loss, alpha=0, **more).fit(X, y)
    z = X @ np.ravel(model.coef_) + model.intercept_
    mu = {"log_loss": 1 / (1 + np.exp(-z)), "squared_error": z}.get(loss, np.exp(z))
    fisher, slope = {
        "log_loss": (mu * (1 - mu), mu - y),
        "squared_error": (np.ones(800), mu - y),
        "poisson": (mu, mu - y),
        "gamma": (np.ones(800), 1 - y / mu),
        "negative_binomial": (mu * 2 / (mu + 2), 2 * (mu - y) / (mu + 2)),
    }[loss]
    plain_errors, robust = by_hand(X, y, model, fisher, slope)
    dispersion = (slope**2 / fisher).sum() / (800 - 4) if loss in ("squared_error", "gamma") else 1.0
    found = model.summary(X, y)
    assert [row.name for row in found.rows] == ["intercept", "c0", "c1", "c2"]
    order = [3, 0, 1, 2]
    assert [row.error for row in found.rows] == pytest.approx(np.sqrt(dispersion) * plain_errors[order], rel=1e-5)
    assert [row.error for row in model.summary(X, y, robust=True).rows] == pytest.approx(robust[order], rel=1e-5)
    assert found.dispersion == pytest.approx(dispersion, rel=1e-6)
    assert "95 % intervals" in str(found)


def test_standard_errors_of_several_classes_and_refusals():
    X, y, _ = data("prices")
    labels = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    model = CASGDClassifier().fit(X, labels)
    rows = model.summary(X, labels).rows
    assert len(rows) == 3 * 6
    assert all(0 < row.error < 1e3 for row in rows if not row.name.endswith("intercept"))
    sparse = CASGDRegressor(l1_ratio=0.5, max_iter=2, tol=None).fit(X, y)
    with pytest.raises(ValueError, match=r"no formula with l1_ratio=0\.5"):
        sparse.summary(X, y)


def test_errors_of_categories_are_of_differences_between_them():
    """All categories beside an intercept: half of what two differ by, whose error is known without one of them."""
    rng = np.random.default_rng(0)
    south, age = rng.integers(0, 2, 2000), rng.standard_normal(2000)
    y, both = rng.poisson(np.exp(0.4 * south + 0.2 * age - 1)), np.stack([1 - south, south, age], 1)
    every = CASGDRegressor("poisson", alpha=1e-8).fit(both, y).summary(both, y).rows
    without = CASGDRegressor("poisson", alpha=0).fit(both[:, 1:], y).summary(both[:, 1:], y).rows
    assert [row.error for row in every[1:]] == pytest.approx([without[1].error / 2] * 2 + [without[2].error], rel=1e-3)
    assert every[2].z == pytest.approx(without[1].z, rel=1e-3)
    labels = np.digitize(age + rng.standard_normal(2000), [-0.5, 0.5])
    rows = CASGDClassifier(alpha=1e-8).fit(both[:, 2:], labels).summary(both[:, 2:], labels).rows
    assert max(row.error for row in rows) < 0.2


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("far", "small", "alpha"), [(0.0, 1e-6, 1.0), (1e6, 1.0, 0.0), (1e6, 1e-5, 1e-3)])
def test_errors_do_not_depend_on_where_columns_lie_and_in_which_units(far, small, alpha, sparse):
    """A penalty that is hard on a small column, and a column far from 0, whose intercept is hardly known."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((300, 2))
    X, y = Z * [1, small] + [far, 0], Z.sum(1) + rng.standard_normal(300)
    given = scipy.sparse.csr_matrix(X) if sparse else X
    model = CASGDRegressor(alpha=alpha).fit(given, y)
    A = np.concatenate([X - X.mean(0), np.ones((300, 1))], 1)
    fisher, r = A.T @ A, y - model.predict(given)
    J = fisher + 300 * alpha * np.diag([1.0, 1.0, 0.0])
    unit = np.diag(1 / np.sqrt(np.diag(J)))
    inverse = unit @ np.linalg.inv(unit @ J @ unit) @ unit
    covariance = r @ r / 297 * inverse @ fisher @ inverse
    at = np.append(-X.mean(0), 1.0)
    expected = np.sqrt([at @ covariance @ at, covariance[0, 0], covariance[1, 1]])
    assert [row.error for row in model.summary(given, y).rows] == pytest.approx(expected, rel=1e-4)


def test_errors_without_degrees_of_freedom_are_not_numbers():
    X = np.eye(3)
    (_, *rows) = CASGDRegressor(alpha=1e-3).fit(X, np.arange(3.0)).summary(X, np.arange(3.0)).rows
    assert all(np.isnan(row.error) for row in rows)


@pytest.mark.parametrize("more", ["every category", "a column twice", "a constant column"])
def test_columns_that_depend_on_others_take_no_degree_of_freedom(more):
    rng = np.random.default_rng(0)
    places, age = rng.integers(0, 8, 30), rng.standard_normal(30)
    X = np.column_stack([age, np.eye(8)[places][:, 1:]])
    extra = {"every category": np.eye(8)[places][:, 0], "a column twice": age, "a constant column": np.full(30, 5.0)}
    y = age + places + rng.standard_normal(30)
    found = [CASGDRegressor(alpha=0).fit(A, y).summary(A, y) for A in (X, np.column_stack([X, extra[more]]))]
    assert found[1].dispersion == pytest.approx(found[0].dispersion, rel=1e-8)
