"""scikit-learn's solvers of the same problems."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor, SGDClassifier

from benchmarks.glm.objective import Point, TrainingRows

SCHEDULES: dict[str, dict[str, Any]] = {
    "optimal": {"learning_rate": "optimal"},
    "invscaling eta0=0.01": {"learning_rate": "invscaling", "eta0": 0.01},
    "constant eta0=0.001": {"learning_rate": "constant", "eta0": 1e-3},
}
"""Step sizes of SGDClassifier that are worth a try."""
TIGHT, MANY = 1e-9, 10_000


def sgd_classifier(rows: TrainingRows, schedule: str, epochs: int) -> Point:
    """So many epochs of `SGDClassifier`."""
    model = SGDClassifier(
        "log_loss", alpha=rows.alpha, max_iter=epochs, tol=None, random_state=0, **SCHEDULES[schedule]
    )
    with unconverged_is_fine():
        model.fit(rows.X, rows.y.astype(np.int64), sample_weight=rows.w)
    return _point(model)


def lbfgs(rows: TrainingRows, max_iter: int, tol: float = 1e-4) -> Point:
    """So many iterations of L-BFGS, of `LogisticRegression` or `PoissonRegressor`."""
    model: Any
    if rows.family.name == "poisson":
        model = PoissonRegressor(alpha=rows.alpha, max_iter=max_iter, tol=tol)
    else:
        model = LogisticRegression(C=1 / (rows.alpha * len(rows.y)), max_iter=max_iter, tol=tol)
    with unconverged_is_fine():
        model.fit(rows.X, rows.y, sample_weight=rows.w)
    return _point(model)


def lbfgs_name(rows: TrainingRows) -> str:
    """Of the estimator that `lbfgs` runs."""
    return "PoissonRegressor(lbfgs)" if rows.family.name == "poisson" else "LogisticRegression(lbfgs)"


def optimum(rows: TrainingRows) -> float:
    """The least objective, by L-BFGS in float64 until it no longer moves."""
    wide = TrainingRows(rows.X.astype(np.float64), rows.y, rows.w, rows.family, rows.alpha)
    return rows.objective(lbfgs(wide, MANY, TIGHT))


def read_libsvm(path: Path) -> tuple[Any, np.ndarray]:
    """X in float32 and y of a LIBSVM file."""
    X, y = load_svmlight_file(str(path), dtype=np.float32)
    return X, y


@contextmanager
def unconverged_is_fine() -> Iterator[None]:
    """No warnings about fits that were cut short on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _point(model: Any) -> Point:
    return np.asarray(model.coef_, np.float64).reshape(-1), float(np.asarray(model.intercept_).reshape(-1)[0])
