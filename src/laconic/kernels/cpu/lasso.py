"""Coordinate descent for a quadratic with absolute values: what a Newton step is under an L1 penalty."""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def _sweep(H, r, x, l1, sweeps):
    total = 0.0
    for _ in range(sweeps):
        gain = 0.0
        for j in range(x.size):
            h = H[j, j]
            if h <= 0:
                continue
            old, u, t = x[j], x[j] - r[j] / h, l1[j] / h
            new = u - t if u > t else (u + t if u < -t else 0.0)
            d = new - old
            if d != 0:
                gain -= r[j] * d + 0.5 * h * d * d + l1[j] * (abs(new) - abs(old))
                x[j] = new
                for i in range(x.size):
                    r[i] += d * H[j, i]
        total += gain
        if gain <= 0:
            break
    return total


def sweep(H: np.ndarray, r: np.ndarray, x: np.ndarray, l1: np.ndarray, sweeps: int) -> float:
    """Minimise ½ xᵀ H x + … + Σ l1 |x| over one coordinate after another; returns what was gained.

    H      (n, n), symmetric, positive semi-definite; coordinates whose diagonal is 0 stay
    r, x   (n,), changed in place: the slope of the quadratic at x, and x. All float64 and contiguous
    sweeps  over all coordinates, at most

    Friedman, Hastie and Tibshirani, J. Stat. Softw. 33(1), 2010.

    >>> x, r = np.zeros(2), np.array([-3.0, 0.5])
    >>> sweep(np.eye(2), r, x, np.ones(2), 9), x.tolist()
    (2.0, [2.0, 0.0])
    """
    return float(_sweep(H, r, x, l1, sweeps))
