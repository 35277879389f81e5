"""scikit-learn's solvers of generalised linear models, and the objective by which all contenders are judged."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor, SGDClassifier

from laconic.data import BadTable
from laconic.glm import Bernoulli, DenseColumns, Family, Problem, SparseColumns

FAMILIES = ("bernoulli", "poisson")
"""Families for which scikit-learn has a solver with this penalty."""

SCHEDULES: dict[str, dict[str, Any]] = {
    "optimal": {"learning_rate": "optimal"},
    "invscaling eta0=0.01": {"learning_rate": "invscaling", "eta0": 0.01},
    "constant eta0=0.001": {"learning_rate": "constant", "eta0": 1e-3},
}
"""Step-size schedules of SGDClassifier to try."""
TIGHT, MANY = 1e-9, 10_000
COVTYPE_ROWS, COVTYPE_NUMBERS, COVTYPE_GROUPS = 581_012, 10, (4, 40)
"""Rows, numeric columns, and categories of the two groups of one-hot columns of the forest cover data."""

Point = tuple[np.ndarray, float]
"""Coefficients (n,) and intercept."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingRows:
    """Training rows in the form that scikit-learn takes.

    X  (m, n) float32, NumPy or SciPy CSR
    y  (m,) float64
    w  (m,) weights of mean 1, or None
    """

    X: Any
    y: np.ndarray
    w: np.ndarray | None
    family: Family
    alpha: float

    @classmethod
    def of(cls, problem: Problem, alpha: float) -> "TrainingRows":
        """The rows of a problem on one rank. An exposure e becomes a weight e on the rate y / e: the same objective."""
        if problem.family.name not in FAMILIES:
            raise BadTable(f"the race to an objective is for logistic and poisson targets, not {problem.family.name}")
        y, w = problem.y.double(), problem.weights_as(torch.float64)
        if problem.offset is not None:
            if problem.family.name != "poisson":
                raise BadTable("scikit-learn has no offsets in logistic regression; leave --offset out")
            exposure = problem.offset_as(torch.float64)[:, 0].exp()
            y, w = y / exposure, w * exposure
        weighted = problem.weights is not None or problem.offset is not None
        weights = (w / w.mean()).numpy() if weighted else None
        return cls(_matrix(problem), y.numpy(), weights, problem.family, alpha)

    def head(self, n: int) -> "TrainingRows":
        """The first n rows."""
        w = None if self.w is None else self.w[:n]
        return TrainingRows(self.X[:n], self.y[:n], w, self.family, self.alpha)

    def objective(self, point: Point) -> float:
        """mean(w · deviance / 2) + α/2 ‖x‖²; 0 is a perfect fit.

        >>> from laconic.glm import Bernoulli
        >>> rows = TrainingRows(np.zeros((2, 1), np.float32), np.array([0.0, 1.0]), None, Bernoulli(), 1.0)
        >>> f"{rows.objective((np.array([2.0]), 0.0)):.4f}"
        '2.6931'
        """
        coef, intercept = point
        z = torch.from_numpy(np.asarray(self.X @ coef.astype(np.float32), np.float64)) + intercept
        half = self.family.deviance(z[:, None], torch.from_numpy(self.y)) / 2
        mean = half.mean() if self.w is None else (torch.from_numpy(self.w) * half).mean()
        return float(mean) + self.alpha / 2 * float(np.square(coef, dtype=np.float64).sum())


def _matrix(problem: Problem) -> Any:
    columns = problem.columns
    if isinstance(columns, DenseColumns):
        return columns.X.float().contiguous().numpy()
    if isinstance(columns, SparseColumns):
        from scipy.sparse import csr_matrix

        values, indices, begins = (t.numpy() for t in columns.matrix)
        return csr_matrix((values.astype(np.float32), indices, begins.astype(np.int32)), (columns.m, columns.n))
    raise TypeError(f"expected dense or sparse columns, got {type(columns).__name__}")


def covtype_like(n_rows: int = COVTYPE_ROWS, seed: int = 0) -> Problem:
    """A logistic problem with the shape of the forest cover data, columns of mean 0 and variance 1.

    Ten correlated numeric columns, then 4 and 40 one-hot columns with increasingly rare categories.
    """
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(COVTYPE_NUMBERS, COVTYPE_NUMBERS, generator=generator) * 0.7 ** torch.arange(COVTYPE_NUMBERS)
    parts = [torch.randn(n_rows, COVTYPE_NUMBERS, generator=generator) @ mixing.T]
    for n_categories in COVTYPE_GROUPS:
        shares = 10.0 ** -torch.linspace(0, 3.5, n_categories)
        drawn = torch.multinomial(shares, n_rows, replacement=True, generator=generator)
        parts.append(torch.nn.functional.one_hot(drawn, n_categories).float())
    X = torch.cat(parts, 1)
    X -= X.mean(0)
    X /= X.std(0, correction=0).clamp(min=n_rows**-0.5)
    coef = torch.randn(X.shape[1], generator=generator) * 0.35
    y = (torch.rand(n_rows, generator=generator) < torch.sigmoid(X @ coef)).float()
    return Problem(DenseColumns(X), Bernoulli(), y)


def sgd_classifier(rows: TrainingRows, schedule: str, epochs: int) -> Point:
    """`SGDClassifier` after `epochs` epochs."""
    model = SGDClassifier(
        "log_loss", alpha=rows.alpha, max_iter=epochs, tol=None, random_state=0, **SCHEDULES[schedule]
    )
    with unconverged_is_fine():
        model.fit(rows.X, rows.y.astype(np.int64), sample_weight=rows.w)
    return _point(model)


def lbfgs(rows: TrainingRows, max_iter: int, tol: float = 1e-4) -> Point:
    """`LogisticRegression` or `PoissonRegressor` after at most `max_iter` iterations of L-BFGS."""
    model: Any
    if rows.family.name == "poisson":
        model = PoissonRegressor(alpha=rows.alpha, max_iter=max_iter, tol=tol)
    else:
        model = LogisticRegression(C=1 / (rows.alpha * len(rows.y)), max_iter=max_iter, tol=tol)
    with unconverged_is_fine():
        model.fit(rows.X, rows.y, sample_weight=rows.w)
    return _point(model)


def lbfgs_name(rows: TrainingRows) -> str:
    """Name of the estimator that `lbfgs` runs."""
    return "PoissonRegressor(lbfgs)" if rows.family.name == "poisson" else "LogisticRegression(lbfgs)"


def optimum(rows: TrainingRows) -> float:
    """The least objective, by L-BFGS in float64 until it no longer changes."""
    wide = TrainingRows(rows.X.astype(np.float64), rows.y, rows.w, rows.family, rows.alpha)
    return rows.objective(lbfgs(wide, MANY, TIGHT))


def read_libsvm(path: Path) -> tuple[Any, np.ndarray]:
    """X in float32 and y of a LIBSVM file."""
    X, y = load_svmlight_file(str(path), dtype=np.float32)
    return X, y


@contextmanager
def unconverged_is_fine() -> Iterator[None]:
    """Suppress warnings about fits that are cut short on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _point(model: Any) -> Point:
    return np.asarray(model.coef_, np.float64).reshape(-1), float(np.asarray(model.intercept_).reshape(-1)[0])
