"""Small problems with a known best model, for the estimators' tests."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

import laconic

M, N, ALPHA = 1500, 6, 1e-2


@dataclass(frozen=True)
class Known:
    """A problem, and scikit-learn's solution of the same objective to far more digits than SGD has.

    loss      of `CASGDRegressor`, or "log_loss"
    rival     scikit-learn's estimator
    """

    loss: str
    y: np.ndarray
    rival: type

    def ours(self, **parameters):
        parameters = {"alpha": ALPHA, "random_state": 0, "tol": 1e-5} | parameters
        if self.loss == "log_loss":
            return laconic.CASGDClassifier(**parameters)
        return laconic.CASGDRegressor(self.loss, **parameters)

    def best(self, X=None, y=None, sample_weight=None, alpha=ALPHA):
        X, y = (features() if X is None else X), (self.y if y is None else y)
        total = len(y) if sample_weight is None else np.sum(sample_weight)
        precise = {"tol": 1e-11, "max_iter": 100_000}
        if self.rival is LogisticRegression:
            model = LogisticRegression(C=1 / (alpha * total), **precise)
        elif self.rival is Ridge:
            model = Ridge(alpha=alpha * total)
        else:
            model = PoissonRegressor(alpha=alpha, **precise)
        return model.fit(X, y, sample_weight=sample_weight)


def features(seed=0):
    return np.random.default_rng(seed).standard_normal((M, N))


def _known():
    rng, X = np.random.default_rng(1), features()
    beta, B = rng.standard_normal(N), rng.standard_normal((4, N))
    names = np.array(["ant", "bee", "cat", "dog"])
    return {
        "binary": Known("log_loss", (X @ beta + 0.5 + rng.logistic(size=M) > 0).astype(int), LogisticRegression),
        "multinomial": Known("log_loss", names[(X @ B.T + rng.gumbel(size=(M, 4))).argmax(1)], LogisticRegression),
        "linear": Known("squared_error", X @ beta + 2 + rng.standard_normal(M), Ridge),
        "poisson": Known("poisson", rng.poisson(np.exp(0.3 * X @ beta + 0.5)).astype(float), PoissonRegressor),
    }


KNOWN = _known()


def distance(ours, best):
    """Relative distance of the coefficients."""
    a, b = np.ravel(ours.coef_), np.ravel(best.coef_)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@cache
def data(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Rows, targets and loss of data that were called converged far from the optimum."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 5))
    z = X @ [1.0, -0.5, 0.3, 0.2, 0.0]
    if name == "outlier":
        X[7, 4] = 1e6
        return X, (z + rng.logistic(size=len(z)) > 0).astype(int), "log_loss"
    if name == "long tails":
        X[:, 4] = np.exp(4 * X[:, 4])
        return X, (z + rng.logistic(size=len(z)) > 0).astype(int), "log_loss"
    if name == "seconds since 1970":
        return X + 1.7e9, (z + rng.logistic(size=len(z)) > 0).astype(int), "log_loss"
    X = X * [5, 1, 20, 0.3, 3000] + [2015, 6, 45, 0.5, 1500]
    return X, rng.poisson(np.exp(z / 4 - 2)) if name == "claims" else z + rng.standard_normal(len(z)), {
        "claims": "poisson", "prices": "squared_error"
    }[name]  # fmt: skip
