"""Random orders of rows, compiled."""

import numpy as np
from numba import njit

from laconic.kernels.stream import GOLDEN, MIX_1, MIX_2, Stream

u64 = np.uint64
_GOLDEN, _MIX_1, _MIX_2 = u64(GOLDEN), u64(MIX_1), u64(MIX_2)


@njit(nogil=True, cache=True, inline="always")
def _below(key, i, n):
    """A number below n < 2³²: the high half of a 32-bit hash times n, off from uniform by less than n / 2³²."""
    z = u64(key + u64(i + 1) * _GOLDEN)
    z = u64((z ^ (z >> u64(30))) * _MIX_1)
    z = u64((z ^ (z >> u64(27))) * _MIX_2)
    z = u64(z ^ (z >> u64(31)))
    return np.int64(u64(u64(z >> u64(32)) * u64(n)) >> u64(32))


@njit(nogil=True, cache=True)
def _permutation(key, order):
    for i in range(order.size):
        j = _below(key, i, i + 1)
        order[i] = order[j]
        order[j] = i


@njit(nogil=True, cache=True)
def _draws(key, n, order):
    for i in range(order.size):
        order[i] = _below(key, i, n)


def permutation(n: int, stream: Stream) -> np.ndarray:
    """A random order of range(n) (int32), a function of the stream alone (Fisher and Yates, inside out).

    >>> sorted(permutation(5, Stream(seed=3))) == list(range(5))
    True
    """
    order = np.empty(_check(n), np.int32)
    _permutation(u64(stream.key), order)
    return order


def draws(n: int, stream: Stream) -> np.ndarray:
    """n independent draws from range(n) (int32), a function of the stream alone."""
    order = np.empty(_check(n), np.int32)
    _draws(u64(stream.key), n, order)
    return order


def _check(n: int) -> int:
    if n >= 2**31:
        raise ValueError(f"there can be at most 2**31 - 1 rows, got {n}")
    return n
