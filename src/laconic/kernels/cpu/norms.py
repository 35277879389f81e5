"""Norm of one bucket. Sums run in float64, in any order: `reassoc` lets them use vector registers."""

import numpy as np
from numba import njit

from laconic.kernels.cpu.bits import bits_float, canonical_nan, float_bits, widen
from laconic.kernels.grid import Norm

u32 = np.uint32
L2, LINF = int(Norm.L2), int(Norm.LINF)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _sum_of_squares(x):
    total = 0.0
    for i in range(x.size):
        value = np.float64(widen(x[i]))
        total += value * value
    return total


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _sum_of_magnitudes(x):
    total = 0.0
    for i in range(x.size):
        total += abs(np.float64(widen(x[i])))
    return total


@njit(nogil=True, cache=True)
def _largest_magnitude(x):
    """Magnitudes order as their bit patterns do, with infinity and then NaN on top."""
    largest = u32(0)
    for i in range(x.size):
        pattern = u32(float_bits(widen(x[i])) & u32(0x7FFFFFFF))
        largest = pattern if pattern > largest else largest
    return bits_float(largest)


@njit(nogil=True, cache=True, error_model="numpy")
def bucket_norm(x, norm):
    """The float32 norm of a non-empty bucket."""
    if norm == L2:
        return canonical_nan(np.float32(np.sqrt(_sum_of_squares(x))))
    if norm == LINF:
        return canonical_nan(_largest_magnitude(x))
    return canonical_nan(np.float32(_sum_of_magnitudes(x) / x.size))
