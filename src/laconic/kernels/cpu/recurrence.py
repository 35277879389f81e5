"""One block of CA-SGD, compiled: its Gram matrix and its inner steps, without Python per iteration."""

import numpy as np
import torch
from numba import njit

from laconic.kernels.cpu.links import residuals
from laconic.kernels.glm import Block, Combination, Intercept, check_link_code

PANEL_ROWS = 128
"""Rows per panel: enough for a fast product, few enough that little of the upper triangle is computed with it."""


@njit(nogil=True, cache=True)
def _pack(panel, first, cuts, out, begin):
    """Copy each batch's rows, up to the column where the batch begins, to out[begin:]; returns where they end.

    panel  rows first, first + 1, … of Y Yᵀ; cuts are those of the batches in it
    """
    for j in range(cuts.size - 1):
        width = cuts[j]
        for row in range(cuts[j], cuts[j + 1]):
            for column in range(width):
                out[begin + column] = panel[row - first, column]
            begin += width
    return begin


def gram(Y: torch.Tensor, cuts: np.ndarray, out: torch.Tensor) -> None:
    """Write the strictly lower block triangle of Y Yᵀ to `out`, laid out as in `kernels.glm.Block`; all in Y's type."""
    begin, j, last_batch = 0, 1, len(cuts) - 1
    while j < last_batch:
        end = max(j + 1, int(np.searchsorted(cuts, cuts[j] + PANEL_ROWS, side="right")) - 1)
        panel = Y[cuts[j] : cuts[end]] @ Y[: cuts[end - 1]].T
        begin = _pack(panel.numpy(), cuts[j], cuts[j : end + 1], out.numpy(), begin)
        j = end


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _dot(a, b):
    total = a[0] * 0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _axpby(a, x, b, y):
    """y = a x + b y."""
    for i in range(x.size):
        y[i] = a * x[i] + b * y[i]


@njit(nogil=True, cache=True)
def _recurrence(
    cuts, margins, momenta, triangle, y, w, offset, rates, scales, mix, l2, mu, code, b, ub, ab, fitted, A, p
):
    """See `kernels.glm`; b, ub, ab are the intercept, its momentum and its average, in place."""
    n_outputs = margins.shape[1]
    of = margins.dtype.type
    widest = 0
    for j in range(cuts.size - 1):
        widest = max(widest, cuts[j + 1] - cuts[j])
    z = np.empty((widest, n_outputs), margins.dtype)
    r = np.empty((widest, n_outputs), margins.dtype)
    loss, begin, averages = 0.0, 0, mix.size > 0
    for j in range(cuts.size - 1):
        first, last, eta, g = cuts[j], cuts[j + 1], rates[j], of(scales[j])
        size = last - first
        a_x, a_u = of(A[0, 0]), of(A[0, 1])
        for k in range(size):
            for c in range(n_outputs):
                z[k, c] = a_x * margins[first + k, c] + offset[first + k, c] + b[c]
                if mu != 0:
                    z[k, c] += a_u * momenta[first + k, c]
                if first:
                    z[k, c] += _dot(triangle[begin + k * first : begin + (k + 1) * first], p[0, c, :first])
        begin += size * first
        loss += residuals(code, z[:size], y[first:last], w[first:last], r[:size])

        for i in range(3):
            A[1, i] = mu * A[1, i] + l2 * A[0, i]
            A[0, i] -= eta * A[1, i]
            if averages:
                A[2, i] += mix[j] * (A[0, i] - A[2, i])
        for c in range(n_outputs):
            total = of(0)
            for k in range(size):
                p[1, c, first + k] = g * r[k, c]
                total += r[k, c]
            if first and mu != 0:
                _axpby(of(l2), p[0, c, :first], of(mu), p[1, c, :first])
                _axpby(of(-eta), p[1, c, :first], of(1), p[0, c, :first])
            elif first and l2 != 0:
                _axpby(of(0), p[0, c, :first], of(1 - eta * l2), p[0, c, :first])
            for k in range(first, last):
                p[0, c, k] = -of(eta) * p[1, c, k]
            if averages:
                _axpby(of(mix[j]), p[0, c, :last], of(1 - mix[j]), p[2, c, :last])
            if fitted:
                ub[c] = of(mu) * ub[c] + g * total
                b[c] -= of(eta) * ub[c]
            if averages:
                ab[c] += of(mix[j]) * (b[c] - ab[c])
    return loss


def recurrence(block: Block, code: int | None, intercept: Intercept) -> Combination:
    """Step through the batches of a block in the type of its margins; code is a `LinkCode`."""
    k, n_outputs = block.margins.shape
    code = check_link_code(code, n_outputs)
    A, p = np.eye(3), torch.zeros(3, n_outputs, k, dtype=block.margins.dtype)
    arrays = [t.numpy() for t in (block.margins, block.momenta, block.triangle, block.y, block.w, block.offset)]
    own = [t.numpy() for t in (intercept.value, intercept.momentum, intercept.average)]
    steps = (block.rates, block.scales, block.mix, block.l2, block.momentum, code)
    loss = _recurrence(block.cuts, *arrays, *steps, *own, intercept.fitted, A, p.numpy())
    return Combination(A[:, :, None], p, np.array([loss]))
