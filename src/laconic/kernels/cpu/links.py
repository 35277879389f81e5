"""Losses and residuals of the families, row by row, compiled; `LinkCode` numbers them."""

import math

import numpy as np
from numba import njit

from laconic.kernels.glm import LinkCode

GAUSSIAN, BERNOULLI = int(LinkCode.GAUSSIAN), int(LinkCode.BERNOULLI)
MULTINOMIAL, POISSON, ONE_VS_REST = int(LinkCode.MULTINOMIAL), int(LinkCode.POISSON), int(LinkCode.ONE_VS_REST)


@njit(nogil=True, cache=True)
def _gaussian(z, y):
    return 0.5 * (z - y) * (z - y), z - y


@njit(nogil=True, cache=True)
def _bernoulli(z, y):
    """e = exp(−|z|) never overflows; softplus(z) = max(z, 0) + log(1 + e)."""
    e = math.exp(-abs(z))
    loss = max(z, z * 0) + math.log1p(e) - y * z
    mean = (z * 0 + 1) / (1 + e) if z >= 0 else e / (1 + e)
    return loss, mean - y


@njit(nogil=True, cache=True)
def _poisson(z, y):
    mean = math.exp(z) if z < 709.0 else z * np.inf
    return mean - y * z, mean - y


@njit(nogil=True, cache=True)
def _softmax(z, y, r):
    """Residuals of one row into r (C,); returns its loss."""
    top = z[0]
    for c in range(1, z.size):
        top = max(top, z[c])
    total = z[0] * 0
    for c in range(z.size):
        r[c] = math.exp(z[c] - top)
        total += r[c]
    for c in range(z.size):
        r[c] /= total
    label = int(y)
    r[label] -= 1
    return math.log(total) + top - z[label]


@njit(nogil=True, cache=True)
def residuals(code, z, y, w, r):
    """r = w φ'(z, y) for z, r (b, C) and y, w (b,); returns Σ w φ(z, y). Rows of weight 0 are left out.

    A code that is none of `LinkCode` gives NaN; `check_link_code` refuses it before this is called.
    """
    total = 0.0
    for k in range(z.shape[0]):
        if w[k] == 0:
            r[k] = 0
            continue
        if code == MULTINOMIAL:
            loss = _softmax(z[k], y[k], r[k])
            for c in range(z.shape[1]):
                r[k, c] *= w[k]
        elif code == ONE_VS_REST:
            loss = z[k, 0] * 0
            for c in range(z.shape[1]):
                part, slope = _bernoulli(z[k, c], z[k, 0] * 0 + (c == int(y[k])))
                loss += part
                r[k, c] = w[k] * slope
        else:
            if code == GAUSSIAN:
                loss, slope = _gaussian(z[k, 0], y[k])
            elif code == BERNOULLI:
                loss, slope = _bernoulli(z[k, 0], y[k])
            elif code == POISSON:
                loss, slope = _poisson(z[k, 0], y[k])
            else:
                loss, slope = z[k, 0] * np.nan, z[k, 0] * np.nan
            r[k, 0] = w[k] * slope
        total += w[k] * loss
    return total


@njit(nogil=True, cache=True)
def residuals_of_models(code, z, y, w, r, losses):
    """`residuals` for M models, whose margins and residuals (b, M C) lie side by side; adds Σ w φ of each to losses."""
    n_outputs = z.shape[1] // losses.size
    for m in range(losses.size):
        own = slice(m * n_outputs, (m + 1) * n_outputs)
        losses[m] += residuals(code, z[:, own], y, w, r[:, own])
