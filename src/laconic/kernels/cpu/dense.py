"""Products of dense rows with one vector, compiled: rows as they are stored, arithmetic in float64.

Rows are widened in registers, so that a pass over all of them takes as long as reading them.
"""

import numpy as np
import torch
from numba import njit

from laconic.kernels.cpu.bits import widen
from laconic.kernels.cpu.sgd import array


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _margins(Y, x, out):
    for k in range(out.size):
        row, total = Y[k], 0.0
        for f in range(x.size):
            total += np.float64(widen(row[f])) * x[f]
        out[k] = total


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _combine(Y, p, out):
    """out += p Y, four rows at a time."""
    whole = p.size - p.size % 4
    for k in range(0, whole, 4):
        p0, p1, p2, p3 = p[k], p[k + 1], p[k + 2], p[k + 3]
        r0, r1, r2, r3 = Y[k], Y[k + 1], Y[k + 2], Y[k + 3]
        for f in range(out.size):
            out[f] += p0 * widen(r0[f]) + p1 * widen(r1[f]) + p2 * widen(r2[f]) + p3 * widen(r3[f])
    for k in range(whole, p.size):
        p0, r0 = p[k], Y[k]
        for f in range(out.size):
            out[f] += p0 * widen(r0[f])


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _moments(Y, origin, total, squares):
    whole = Y.shape[0] - Y.shape[0] % 4
    for k in range(0, whole, 4):
        r0, r1, r2, r3 = Y[k], Y[k + 1], Y[k + 2], Y[k + 3]
        for f in range(total.size):
            d0, d1 = widen(r0[f]) - origin[f], widen(r1[f]) - origin[f]
            d2, d3 = widen(r2[f]) - origin[f], widen(r3[f]) - origin[f]
            total[f] += (d0 + d1) + (d2 + d3)
            squares[f] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
    for k in range(whole, Y.shape[0]):
        r0 = Y[k]
        for f in range(total.size):
            d0 = widen(r0[f]) - origin[f]
            total[f] += d0
            squares[f] += d0 * d0


def margins(Y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Y x for Y (k, n), float32, float64 or bfloat16, and x (n,) float64."""
    out = np.empty(len(Y))
    _margins(array(Y), x.contiguous().numpy(), out)
    return torch.from_numpy(out)


def add_combination(Y: torch.Tensor, p: torch.Tensor, out: torch.Tensor) -> None:
    """out += p Y for p (k,) and out (n,), float64."""
    _combine(array(Y), p.contiguous().numpy(), out.numpy())


def add_moments(Y: torch.Tensor, origin: torch.Tensor, total: torch.Tensor, squares: torch.Tensor) -> None:
    """Add the sums of Y − origin and of its squares, column by column, to total and squares (n,), float64."""
    _moments(array(Y), origin.numpy(), total.numpy(), squares.numpy())
