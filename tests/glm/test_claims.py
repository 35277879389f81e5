"""What default fits claim on columns and targets of every nasty kind, beside a reference that shares no code."""

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from scipy.special import expit, logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from laconic import CASGDClassifier, CASGDRegressor

CLASSES, SEEDS = 4, range(8)
WITHIN = 1e-3
"""What a fit that claims convergence may be above the optimum, relative to what there is to gain."""


def _outliers(Z, rng, rows=False):
    for _ in range(rng.choice([1, 5])):
        Z[rng.integers(len(Z)), slice(None) if rows else rng.integers(Z.shape[1])] *= 10.0 ** rng.integers(2, 8)
    return Z


def _categories(Z, rng):
    shares = 1 / np.arange(1, Z.shape[1] + 1) ** 1.5
    return np.eye(Z.shape[1])[rng.choice(Z.shape[1], len(Z), p=shares / shares.sum())]


def _few(Z, rng):
    return scipy.sparse.csr_array(np.where(rng.random(Z.shape) < 0.05, np.exp(2 * Z), 0))


COLUMNS = {
    "normal": lambda Z, rng: Z,
    "lognormal": lambda Z, rng: np.exp(1.5 * Z),
    "Cauchy": lambda Z, rng: Z / np.abs(rng.standard_normal(Z.shape)),
    "outliers": _outliers,
    "rows far out": partial(_outliers, rows=True),
    "collinear": lambda Z, rng: np.concatenate([Z, Z + 1e-4 * rng.standard_normal(Z.shape)], 1),
    "twice": lambda Z, rng: np.concatenate([Z, Z], 1),
    "low rank": lambda Z, rng: Z[:, :1] @ rng.standard_normal((1, Z.shape[1])) + 1e-3 * Z,
    "categories": _categories,
    "years": lambda Z, rng: np.concatenate([Z, rng.integers(1990, 2024, (len(Z), 1)), 1.6e9 + 1e7 * Z[:, :1]], 1),
    "other scales": lambda Z, rng: Z * 10.0 ** rng.integers(-6, 7, Z.shape[1]),
    "constant": lambda Z, rng: np.concatenate([Z, np.full((len(Z), 1), 5), np.zeros((len(Z), 1))], 1),
    "counts": lambda Z, rng: rng.poisson(np.exp(1.2 * Z)).astype(float),
    "sparse": _few,
}


def _one(slopes):
    """A loss of one output from φ, φ′ and φ″ of (z, y)."""

    def bent(Z, y):
        loss, slope, curvature = slopes(Z[:, 0], y)
        return loss, slope[:, None], curvature[:, None, None]

    return bent


def _softmax(Z, y):
    P, hot = softmax(Z, 1), np.eye(CLASSES)[y]
    return logsumexp(Z, 1) - (Z * hot).sum(1), P - hot, P[:, :, None] * (np.eye(CLASSES) - P[:, None, :])


def _tweedie(z, y):
    up, down = np.exp(z / 2), np.where(y > 0, y * np.exp(-z / 2), 0)
    return 2 * up + 2 * down, up - down, (up + down) / 2


LOGISTIC = _one(lambda z, y: (np.logaddexp(0, z) - y * z, expit(z) - y, expit(z) * expit(-z)))
POISSON = _one(lambda z, y: (np.exp(z) - y * z, np.exp(z) - y, np.exp(z)))
GAMMA = _one(lambda z, y: (z + y * np.exp(-z), 1 - y * np.exp(-z), y * np.exp(-z)))
GAUSSIAN = _one(lambda z, y: ((z - y) ** 2 / 2, z - y, np.ones_like(z)))

TARGETS = {  # the loss by its name and by its formula, and targets around margins z (m, CLASSES)
    "bernoulli": ("log_loss", LOGISTIC, lambda z, rng: 1 * (z[:, 0] + rng.logistic(size=len(z)) > 0)),
    "rare": ("log_loss", LOGISTIC, lambda z, rng: 1 * (z[:, 0] + rng.logistic(size=len(z)) > 4)),
    "separable": ("log_loss", LOGISTIC, lambda z, rng: 1 * (z[:, 0] > np.median(z[:, 0]))),
    "classes": ("log_loss", _softmax, lambda z, rng: (z + rng.gumbel(size=z.shape)).argmax(1)),
    "poisson": ("poisson", POISSON, lambda z, rng: rng.poisson(np.exp(z[:, 0]))),
    "mostly zero": ("poisson", POISSON, lambda z, rng: rng.poisson(np.exp(z[:, 0] - 3))),
    "gamma": ("gamma", GAMMA, lambda z, rng: np.exp(z[:, 0]) * rng.gamma(2, 0.5, len(z))),
    "tweedie": ("tweedie", _one(_tweedie), lambda z, rng: rng.poisson(1, len(z)) * np.exp(z[:, 0])),
    "gaussian": ("squared_error", GAUSSIAN, lambda z, rng: z[:, 0] + rng.standard_normal(len(z))),
}


class Reference:
    """F over columns divided by their size, less their mean; its minimum by damped Newton's steps with eigenvalues."""

    def __init__(self, X, y, loss, alpha):
        m, sizes = len(y), np.sqrt(np.square(X).mean(0))
        deviation = X.std(0)
        varies = deviation > 1e-9 * sizes
        self.mean = np.where(varies, X.mean(0), 0)
        self.size = np.where(varies, deviation, np.where(sizes > 0, sizes, 1))
        self.A, self.y, self.loss = np.concatenate([(X - self.mean) / self.size, np.ones((m, 1))], 1), y, loss
        self.penalty = np.append(alpha / self.size**2, 0)

    def theta(self, coef, intercept):
        coef = np.atleast_2d(coef).astype(float)
        return np.concatenate([coef * self.size, (np.ravel(intercept) + coef @ self.mean)[:, None]], 1)

    def value(self, theta):
        with np.errstate(all="ignore"):
            found = self.loss(self.A @ theta.T, self.y)[0].mean() + (self.penalty * theta**2).sum() / 2
        return found if np.isfinite(found) else np.inf

    def minimum(self, theta):
        value, C, n = self.value(theta), *theta.shape
        for _ in range(300):
            with np.errstate(all="ignore"):
                _, slope, curvature = self.loss(self.A @ theta.T, self.y)
            g = (slope.T @ self.A / len(self.y) + self.penalty * theta).ravel()
            H = np.einsum("icd,ij,ik->cjdk", curvature, self.A, self.A, optimize=True).reshape(C * n, -1) / len(self.y)
            H += np.diag(np.tile(self.penalty, C))
            scale = 1 / np.sqrt(np.maximum(np.diag(H), 1e-300))
            values, Q = np.linalg.eigh(scale[:, None] * H * scale)
            kept = values > 1e-14 * values.max()
            step = (-scale * (Q[:, kept] @ ((Q.T @ (scale * g))[kept] / values[kept]))).reshape(theta.shape)
            lower = min((theta + step * 0.5**k for k in range(30)), key=self.value)
            if not self.value(lower) < value - 1e-15 * abs(value):
                return value
            theta, value = lower, self.value(lower)
        return value


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(n, marks=pytest.mark.exhaustive) for n in SEEDS[1:])])
def test_a_fit_that_claims_convergence_is_at_the_optimum(columns, kind, seed, monkeypatch):
    rng = np.random.default_rng([seed, *columns.encode(), *kind.encode()])
    if rng.random() < 0.5:  # as with more weights: by conjugate gradients
        monkeypatch.setattr("laconic.glm.solvers.objective.DIRECT", 0)
        monkeypatch.setattr("laconic.glm.solvers.objective.MOST_DIRECT", 0)
    X = COLUMNS[columns](rng.standard_normal((rng.choice([60, 300, 1500]), rng.choice([2, 8, 30]))), rng)
    X = X.astype(rng.choice([np.float32, np.float64]))
    dense = (X.toarray() if scipy.sparse.issparse(X) else X).astype(float)
    m, n = dense.shape
    Z = dense - np.median(dense, 0)
    Z = Z / np.maximum(np.median(np.abs(Z), 0), 1e-3)
    name, loss, draw = TARGETS[kind]
    y = draw(np.clip(Z, -9, 9) @ rng.standard_normal((n, CLASSES)) / n**0.5, rng)
    some = CLASSES if kind == "classes" else 2
    y[:some] = np.arange(some) if name == "log_loss" else np.arange(1, some + 1)
    alpha, kind = rng.choice([1e-8, 1e-4, 1e-2]), CASGDClassifier if name == "log_loss" else CASGDRegressor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = kind(name, alpha=alpha, random_state=0).fit(X, y)
    reference = Reference(dense, y, loss, alpha)
    mean = np.bincount(y) / m if name == "log_loss" else y.mean()
    link = {"log_loss": lambda p: np.log(p) if len(p) > 2 else np.log(p[1:] / p[0]), "squared_error": float}
    null = reference.theta(np.zeros_like(model.coef_), link.get(name, np.log)(mean))
    theta = reference.theta(model.coef_, model.intercept_)
    lowest = min(reference.minimum(theta), reference.minimum(null))
    above, gained = reference.value(theta) - lowest, reference.value(null) - lowest
    assert above <= gained, "worse than a constant"
    if model.converged_:
        assert above <= WITHIN * gained + 1e-13 * abs(lowest)
