"""Rates from timings: least squares of relative errors, without negative rates, and deaf to outliers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PASSES = 5
TOLERATED = 0.1
"""Relative errors beyond this count by their size, not by its square."""


@dataclass(frozen=True, slots=True)
class Fit:
    """coefficients (k,), and for each sample how far the fit is from it, relatively: predicted ÷ measured − 1."""

    coefficients: tuple[float, ...]
    residuals: tuple[float, ...]


def fit(features: Sequence[Sequence[float]], seconds: Sequence[float]) -> Fit:
    """min over x ≥ 0 of Σ ρ(a_i·x / t_i − 1), with ρ that of Huber; features (n, k), seconds (n,).

    >>> fit([[1, 10], [1, 1000], [1, 5000]], [1.02e-3, 3e-3, 11e-3]).coefficients
    (0.001, 2e-06)
    """
    A = np.asarray(features, dtype=np.float64)
    t = np.asarray(seconds, dtype=np.float64)
    scaled = A / t[:, None]
    largest = np.maximum(scaled.max(axis=0), 1e-300)  # columns of very different size otherwise confuse the solver
    weights = np.ones(len(t))
    x = np.zeros(A.shape[1])
    for _ in range(PASSES):
        root = np.sqrt(weights)
        x = nonnegative_least_squares(scaled / largest * root[:, None], root) / largest
        errors = np.abs(scaled @ x - 1)
        weights = np.minimum(1.0, TOLERATED / np.maximum(errors, 1e-12))
    return Fit(tuple(float(f"{value:.6g}") for value in x), tuple(float(value) for value in scaled @ x - 1))


def nonnegative_least_squares(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """min over x ≥ 0 of ‖A x − b‖; A (n, k) with few columns. The active-set method of Lawson and Hanson (1974).

    >>> nonnegative_least_squares(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([2.0, -1.0]))
    array([2., 0.])
    """
    k = A.shape[1]
    x, free = np.zeros(k), np.zeros(k, dtype=bool)
    tolerance = 1e-12 * (np.abs(A).sum() * np.abs(b).max() + 1e-300)
    for _ in range(3 * k):
        descent = np.where(free, -np.inf, A.T @ (b - A @ x))
        if descent.max() <= tolerance:
            break
        free[descent.argmax()] = True
        while free.any():
            z = np.zeros(k)
            z[free] = np.linalg.lstsq(A[:, free], b, rcond=None)[0]
            if (z[free] > 0).all():
                x = z
                break
            blocking = free & (z <= 0)
            x = x + min(1.0, (x[blocking] / (x[blocking] - z[blocking])).min()) * (z - x)
            free &= x > 1e-12 * max(x.max(), 1e-300)
            x[~free] = 0.0
    return x
