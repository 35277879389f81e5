"""The random numbers of `laconic.kernels.stream` for Triton kernels; `reference/random.py` is the specification."""

import triton
import triton.language as tl

from laconic.kernels import stream

GOLDEN, MIX_1, MIX_2 = tl.constexpr(stream.GOLDEN), tl.constexpr(stream.MIX_1), tl.constexpr(stream.MIX_2)
HASH_1, HASH_2 = tl.constexpr(stream.HASH_1), tl.constexpr(stream.HASH_2)


@triton.jit
def bucket_key(key, bucket):
    """Halves (k0, k1) of a bucket's key, uint32: once a program."""
    z = key.to(tl.uint64) + (bucket + 1).to(tl.uint64) * GOLDEN
    z = (z ^ (z >> 30)) * MIX_1
    z = (z ^ (z >> 27)) * MIX_2
    z = z ^ (z >> 31)
    return (z & 0xFFFFFFFF).to(tl.uint32), (z >> 32).to(tl.uint32)


@triton.jit
def hash32(offset, k0, k1):
    """32 random bits (uint32) for each offset (uint32): 1 add, 3 shifts, 3 logical operations, 2 multiplications."""
    x = offset + k0
    x = (x ^ (x >> 16)) * HASH_1
    x = (x ^ (x >> 15) ^ k1) * HASH_2
    return x ^ (x >> 15)
