"""Products of sparse rows (CSR: values, columns, where each row begins), compiled."""

from functools import partial

import numpy as np
import torch
from numba import njit

from laconic.kernels import threads
from laconic.kernels.cpu.bits import widen
from laconic.kernels.cpu.links import residuals
from laconic.kernels.cpu.sgd import array, finish_margins, run_batches, step_intercept
from laconic.kernels.glm import CSR, Batches, Weights

SMALLEST_SCALE = 1e-6
"""x is kept as scale · x̂, so that an L2 shrinkage is one multiplication; below this scale x̂ is rescaled."""


@njit(nogil=True, cache=True)
def _take(values, columns, begins, rows, values_out, columns_out, begins_out):
    at = 0
    for k in range(rows.size):
        begins_out[k] = at
        for i in range(begins[rows[k]], begins[rows[k] + 1]):
            values_out[at] = widen(values[i])
            columns_out[at] = columns[i]
            at += 1
    begins_out[rows.size] = at


@njit(nogil=True, cache=True)
def _margins(values, columns, begins, x, out, first, last):
    """Rows first to last of Y x for x (n, C); each value of Y is multiplied by the C numbers of its column at once."""
    for k in range(first, last):
        if x.shape[1] == 1:
            total = out[k, 0]
            for i in range(begins[k], begins[k + 1]):
                total += widen(values[i]) * x[columns[i], 0]
            out[k, 0] = total
            continue
        own = out[k]
        for i in range(begins[k], begins[k + 1]):
            value, weights = widen(values[i]), x[columns[i]]
            for c in range(own.size):
                own[c] += value * weights[c]


@njit(nogil=True, cache=True)
def _combine(values, columns, begins, p, out, first, last):
    """Add Yᵀ p for p (k, C) to out (n, C), in the outputs first to last."""
    for k in range(begins.size - 1):
        if out.shape[1] == 1:
            factor = p[k, 0]
            for i in range(begins[k], begins[k + 1]):
                out[columns[i], 0] += values[i] * factor
            continue
        factors = p[k, first:last]
        for i in range(begins[k], begins[k + 1]):
            own = out[columns[i], first:last]
            for c in range(factors.size):
                own[c] += values[i] * factors[c]


@njit(nogil=True, cache=True)
def _gram(values, columns, begins, cuts, row, out):
    """Expand each row once, into the dense `row`, then multiply it by all rows of later batches."""
    n_batches = cuts.size - 1
    for j in range(n_batches):
        for k in range(cuts[j], cuts[j + 1]):
            for i in range(begins[k], begins[k + 1]):
                row[columns[i]] = values[i]
            begin = 0
            for later in range(1, n_batches):
                first, last = cuts[later], cuts[later + 1]
                if later > j:
                    for q in range(first, last):
                        total = row[0] * 0
                        for i in range(begins[q], begins[q + 1]):
                            total += values[i] * row[columns[i]]
                        out[begin + (q - first) * first + k] = total
                begin += (last - first) * first
            for i in range(begins[k], begins[k + 1]):
                row[columns[i]] = 0


@njit(nogil=True, cache=True)
def _weighted_gram(values, columns, begins, h, out):
    """The lower triangle of `weighted_gram`, added to out; a column may be in a row twice."""
    n = out.shape[0] - 1
    for k in range(h.size):
        for i in range(begins[k], begins[k + 1]):
            a, factor = columns[i], h[k] * values[i]
            for j in range(begins[k], i):
                b = columns[j]
                if b < a:
                    out[a, b] += factor * values[j]
                elif b > a:
                    out[b, a] += factor * values[j]
                else:
                    out[a, a] += 2 * factor * values[j]
            out[a, a] += factor * values[i]
            out[n, a] += factor
        out[n, n] += h[k]


@njit(nogil=True, cache=True)
def _dense_step(x, u, average, eta, l1, mix):
    """The part of a step that touches all weights; the gradient is in u (with momentum) or already applied to x."""
    for f in range(x.shape[0]):
        for c in range(x.shape[1]):
            if u.shape[1]:
                x[f, c] -= eta * u[f, c]
            if l1 != 0:
                size = max(abs(x[f, c]) - eta * l1, x[f, c] * 0)
                x[f, c] = size if x[f, c] > 0 else -size
            if average.shape[1]:
                average[f, c] += mix * (x[f, c] - average[f, c])


@njit(nogil=True, cache=True)
def _sgd(
    values, columns, begins, rows, size, y, w, offset, rates, mix, l2, l1, mu, mean, narrow, code, x, u, average,
    b, ub, ab, fitted,
):  # fmt: skip
    of, n_outputs = x.dtype.type, x.shape[1]
    z, r = np.empty((size, n_outputs), x.dtype), np.empty((size, n_outputs), x.dtype)
    targets, weights = np.empty(size, x.dtype), np.empty(size, x.dtype)
    loss, averages = 0.0, mix.size > 0
    dense = u.shape[1] > 0 or averages or l1 != 0
    scale_x = 1.0
    for j in range(rates.size):
        batch = rows[j * size : (j + 1) * size]
        n_rows = batch.size
        for k in range(n_rows):
            targets[k], weights[k] = y[batch[k]], w[batch[k] if w.size > 1 else 0]
            z[k] = 0
            for i in range(begins[batch[k]], begins[batch[k] + 1]):
                value, f = widen(values[i]), columns[i]
                for c in range(n_outputs):
                    z[k, c] += value * x[f, c]
            z[k] *= of(scale_x)
        finish_margins(z[:n_rows], batch, offset, b, narrow)
        loss += residuals(code, z[:n_rows], targets[:n_rows], weights[:n_rows], r[:n_rows])
        g, eta, part = of(1.0 / n_rows if mean else 1.0), of(rates[j]), of(mix[j] if averages else 0.0)
        if u.shape[1]:
            for f in range(x.shape[0]):
                for c in range(n_outputs):
                    u[f, c] = of(mu) * u[f, c] + of(l2) * x[f, c]
            factor, into = g, u
        else:
            shrink = 1.0 - rates[j] * l2
            if dense or abs(scale_x * shrink) < SMALLEST_SCALE:
                for f in range(x.shape[0]):
                    for c in range(n_outputs):
                        x[f, c] *= of(scale_x * shrink)
                scale_x = 1.0
            else:
                scale_x *= shrink
            factor, into = of(-rates[j] * g / scale_x), x
        for k in range(n_rows):
            r_k = factor * r[k]
            for i in range(begins[batch[k]], begins[batch[k] + 1]):
                value, f = widen(values[i]), columns[i]
                for c in range(n_outputs):
                    into[f, c] += r_k[c] * value
        if dense:
            _dense_step(x, u, average, eta, of(l1), part)
        step_intercept(r[:n_rows], g, b, ub, ab, eta, of(mu), part, fitted, averages)
    for f in range(x.shape[0] if scale_x != 1 else 0):
        for c in range(n_outputs):
            x[f, c] *= of(scale_x)
    return loss


def sgd(matrix: CSR, batches: Batches, code: int | None, weights: Weights) -> float:
    """`cpu.sgd.sgd` for a sparse matrix.

    The kernel takes weights (C, n) transposed, the C numbers of a column side by side, so that a value of X is
    multiplied by all of them at once; weights in another layout are copied.
    """
    given = (weights.x, weights.momentum, weights.average)
    used = [t.T.contiguous() for t in given]
    loss = run_batches(_sgd, tuple(array(t) for t in matrix), batches, code, used, weights.intercept)
    for t, copied in zip(given, used, strict=True):
        if t.data_ptr() != copied.data_ptr():
            t.copy_(copied.T)
    return loss


def take(matrix: CSR, rows: np.ndarray, dtype: torch.dtype) -> CSR:
    """Some rows of a sparse matrix, widened to `dtype`."""
    begins = matrix[2].numpy()
    n_values = int((begins[rows + 1] - begins[rows]).sum())
    taken = (
        torch.empty(n_values, dtype=dtype),
        torch.empty(n_values, dtype=matrix[1].dtype),
        torch.empty(len(rows) + 1, dtype=matrix[2].dtype),
    )
    _take(*(array(t) for t in matrix), rows, *(t.numpy() for t in taken))
    return taken


def margins(matrix: CSR, x: torch.Tensor) -> torch.Tensor:
    """Y xᵀ for x (C, n): (k, C); fastest if x is stored by columns."""
    k = len(matrix[2]) - 1
    out = torch.zeros(k, x.shape[0], dtype=x.dtype)
    arrays = (*(array(t) for t in matrix), x.T.contiguous().numpy(), out.numpy())
    threads.run(partial(_margins, *arrays), k, len(matrix[0]) * x.shape[0])
    return out


def add_combination(matrix: CSR, p: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """out += p Y for p (C, k), in place, for out (C, n) stored by columns; returns it."""
    n_outputs = len(p)
    arrays = (*(array(t) for t in matrix), p.T.contiguous().numpy(), out.T.numpy())
    threads.run(partial(_combine, *arrays), n_outputs, len(matrix[0]) * n_outputs if n_outputs >= 32 else 0)
    return out


def gram(matrix: CSR, cuts: np.ndarray, n: int, out: torch.Tensor) -> None:
    """The strictly lower block triangle of Y Yᵀ; the values' type is the accumulator's."""
    row = np.zeros(max(n, 1), out.numpy().dtype)
    _gram(*(array(t) for t in matrix), cuts, row, out.numpy())


def weighted_gram(matrix: CSR, h: torch.Tensor, n: int) -> torch.Tensor:
    """Σ_k h_k y_k y_kᵀ for h (k,), (n + 1, n + 1), with 1 for the intercept at the end of each row."""
    lower = h.new_zeros(n + 1, n + 1)
    _weighted_gram(*(array(t) for t in matrix), h.numpy(), lower.numpy())
    return lower + lower.tril(-1).T
