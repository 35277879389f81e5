"""The random numbers of `laconic.kernels.stream` for Numba kernels; `reference/random.py` is the specification."""

import numpy as np
from numba import njit

from laconic.kernels import stream

u32, u64 = np.uint32, np.uint64
GOLDEN, MIX_1, MIX_2 = u64(stream.GOLDEN), u64(stream.MIX_1), u64(stream.MIX_2)
HASH_1, HASH_2 = u32(stream.HASH_1), u32(stream.HASH_2)


@njit(nogil=True, cache=True, inline="always")
def bucket_key(key, bucket):
    """The 64-bit key of a bucket; its halves are k0 (low) and k1 (high)."""
    z = key + u64(bucket + 1) * GOLDEN
    z = (z ^ (z >> u64(30))) * MIX_1
    z = (z ^ (z >> u64(27))) * MIX_2
    return z ^ (z >> u64(31))


@njit(nogil=True, cache=True, inline="always")
def hash32(offset, k0, k1):
    """32 random bits for an offset; every operation is cut back to 32 bits, or Numba would widen it to 64."""
    x = u32(offset + k0)
    x = u32(u32(x ^ u32(x >> u32(16))) * HASH_1)
    x = u32(u32(u32(x ^ u32(x >> u32(15))) ^ k1) * HASH_2)
    return u32(x ^ u32(x >> u32(15)))
