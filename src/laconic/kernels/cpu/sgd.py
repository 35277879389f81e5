"""SGD in one process, compiled: a run of iterations without Python.

An iteration reads its b rows once from memory, widened into a tile that stays in the nearest cache, and passes over
that tile twice: margins, then gradient. Rows of the tile and of x are padded with zeros to whole vector registers.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numba import njit

from laconic.kernels.cpu.bits import bits_float, float_bits, widen
from laconic.kernels.cpu.links import residuals
from laconic.kernels.glm import Batches, Intercept, Weights, check_link_code

u32 = np.uint32
PAD = 32
"""Values per row are a multiple of this: four registers of eight float32."""


@njit(nogil=True, cache=True)
def to_bfloat16(x):
    """The nearest bfloat16, ties to even, as float32; non-finite values stay as they are."""
    bits = float_bits(np.float32(x))
    if (bits & u32(0x7F800000)) == u32(0x7F800000):
        return np.float32(x)
    return bits_float(u32((bits + u32(0x7FFF) + ((bits >> u32(16)) & u32(1))) & u32(0xFFFF0000)))


@njit(nogil=True, cache=True)
def _gather(A, n, stride, rows, tile):
    for k in range(rows.size):
        first, out = np.int64(rows[k]) * stride, tile[k]
        row = A[first : first + n]
        for f in range(n):
            out[f] = widen(row[f])


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _margins(tile, x, z):
    for k in range(z.shape[0]):
        for c in range(z.shape[1]):
            total = x[c, 0] * 0
            for f in range(x.shape[1]):
                total += tile[k, f] * x[c, f]
            z[k, c] = total


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _gradient(tile, r, scale, g):
    """g = scale · tileᵀ r, four rows at a time."""
    n_rows = r.shape[0]
    for c in range(g.shape[0]):
        g[c] = 0
        whole = n_rows - n_rows % 4
        for k in range(0, whole, 4):
            r0, r1, r2, r3 = scale * r[k, c], scale * r[k + 1, c], scale * r[k + 2, c], scale * r[k + 3, c]
            for f in range(g.shape[1]):
                g[c, f] += r0 * tile[k, f] + r1 * tile[k + 1, f] + r2 * tile[k + 2, f] + r3 * tile[k + 3, f]
        for k in range(whole, n_rows):
            r0 = scale * r[k, c]
            for f in range(g.shape[1]):
                g[c, f] += r0 * tile[k, f]


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _step(x, u, average, g, eta, l2, l1, mu, mix):
    """u ← μ u + g + λ x, x ← x − η u, shrunk by η l1, x̄ ← x̄ + mix (x − x̄)."""
    for c in range(x.shape[0]):
        for f in range(x.shape[1]):
            slope = g[c, f] + l2 * x[c, f]
            if u.shape[0]:
                slope += mu * u[c, f]
                u[c, f] = slope
            x[c, f] -= eta * slope
        if l1 != 0:
            for f in range(x.shape[1]):
                size = max(abs(x[c, f]) - eta * l1, x[c, f] * 0)
                x[c, f] = size if x[c, f] > 0 else -size
        if average.shape[0]:
            for f in range(x.shape[1]):
                average[c, f] += mix * (x[c, f] - average[c, f])


@njit(nogil=True, cache=True)
def finish_margins(z, batch, offset, b, narrow):
    """z + offset + b, with z rounded to bfloat16 first where asked."""
    for k in range(z.shape[0]):
        for c in range(z.shape[1]):
            if narrow:
                z[k, c] = to_bfloat16(z[k, c])
            z[k, c] += b[c]
            if offset.shape[0]:
                z[k, c] += offset[batch[k], c]


@njit(nogil=True, cache=True)
def step_intercept(r, scale, b, ub, ab, eta, mu, mix, fitted, averages):
    """One step of the intercept, its momentum and its average, in place."""
    for c in range(b.size):
        if fitted:
            total = scale * 0
            for k in range(r.shape[0]):
                total += r[k, c]
            ub[c] = mu * ub[c] + scale * total
            b[c] -= eta * ub[c]
        if averages:
            ab[c] += mix * (b[c] - ab[c])


@njit(nogil=True, cache=True)
def _sgd(
    A, width, stride, rows, size, y, w, offset, rates, mix, l2, l1, mu, mean, narrow, code, x, u, average, b, ub, ab,
    fitted,
):  # fmt: skip
    of, n_outputs, n = x.dtype.type, x.shape[0], x.shape[1]
    tile, g = np.zeros((size, n), x.dtype), np.empty((n_outputs, n), x.dtype)
    z, r = np.empty((size, n_outputs), x.dtype), np.empty((size, n_outputs), x.dtype)
    targets, weights = np.empty(size, x.dtype), np.empty(size, x.dtype)
    loss, averages = 0.0, mix.size > 0
    for j in range(rates.size):
        batch = rows[j * size : (j + 1) * size]
        k = batch.size
        for i in range(k):
            targets[i], weights[i] = y[batch[i]], w[batch[i] if w.size > 1 else 0]
        _gather(A, width, stride, batch, tile)
        _margins(tile, x, z[:k])
        finish_margins(z[:k], batch, offset, b, narrow)
        loss += residuals(code, z[:k], targets[:k], weights[:k], r[:k])
        scale, eta, part = of(1.0 / k if mean else 1.0), of(rates[j]), of(mix[j] if averages else 0.0)
        _gradient(tile, r[:k], scale, g)
        _step(x, u, average, g, eta, of(l2), of(l1), of(mu), part)
        step_intercept(r[:k], scale, b, ub, ab, eta, of(mu), part, fitted, averages)
    return loss


def sgd(A: torch.Tensor, batches: Batches, code: int | None, weights: Weights) -> float:
    """Take a step for each batch, in place; returns Σ w φ, each row at the iterate of its own step.

    A  (m, n) float32, float64 or bfloat16; the arithmetic is that of the weights. Rows may be strided: all of them are
       given as one array, so that a slice of columns needs no kernel of its own
    """
    A = A if A.stride(1) == 1 else A.contiguous()
    (m, n), stride = A.shape, A.stride(0)
    flat = A.as_strided(((m - 1) * stride + n if A.numel() else 0,), (1,))
    given = (weights.x, weights.momentum, weights.average)
    used = [_pad(t) for t in given]
    loss = run_batches(_sgd, (array(flat), n, stride), batches, code, used, weights.intercept)
    for t, padded in zip(given, used, strict=True):
        t.copy_(padded[:, :n])
    return loss


def run_batches(
    kernel: Callable[..., float],
    matrix: tuple[object, ...],
    batches: Batches,
    code: int | None,
    vectors: Sequence[torch.Tensor],
    own: Intercept,
) -> float:
    """Run a compiled loop over batches of rows of a matrix; returns the loss.

    vectors  weights, momentum and average, laid out as the loop wants them; changed, as the intercept is
    """
    b, w = batches, batches.w.numpy()
    rows, w = np.ascontiguousarray(b.rows, np.int32), w if w.strides[0] else w[:1]  # of equal weights, only one
    arrays = (rows, b.size, b.y.numpy(), w, b.offset.numpy(), b.rates, b.mix)
    numbers = (b.l2, b.l1, b.momentum, b.mean, b.narrow, check_link_code(code, len(own.value)))
    changed = [t.numpy() for t in (*vectors, own.value, own.momentum, own.average)]
    return kernel(*matrix, *arrays, *numbers, *changed, own.fitted)


def array(t: torch.Tensor) -> np.ndarray:
    """A tensor as an array for kernels; bfloat16 as uint16 bit patterns, which `widen` reads."""
    return t.view(torch.uint16).numpy() if t.dtype == torch.bfloat16 else t.numpy()


def _pad(t: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(t, (0, -t.shape[1] % PAD))
