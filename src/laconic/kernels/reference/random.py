"""The random numbers of `laconic.kernels.stream`, written out in plain torch."""

import torch
from torch import Tensor

from laconic.kernels.stream import GOLDEN, HASH_1, HASH_2, MIX_1, MIX_2

MASK_32 = 0xFFFFFFFF


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    return value - 2**64 if value >= 2**63 else value


def _shift_right(z: Tensor, bits: int) -> Tensor:
    """Logical shift: torch's `>>` repeats the sign bit."""
    return z.bitwise_right_shift(bits).bitwise_and((1 << (64 - bits)) - 1)


def bucket_keys(key: int, n_buckets: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Halves (k0, k1) of each bucket's key, as int64 (n_buckets,) holding 32-bit values."""
    z = torch.arange(1, n_buckets + 1, dtype=torch.int64, device=device) * _signed(GOLDEN) + _signed(key)
    z = (z ^ _shift_right(z, 30)) * _signed(MIX_1)
    z = (z ^ _shift_right(z, 27)) * _signed(MIX_2)
    z = z ^ _shift_right(z, 31)
    return z & MASK_32, _shift_right(z, 32)


def hash32(offset: Tensor, k0: Tensor, k1: Tensor) -> Tensor:
    """32 random bits for each offset under the key (k0, k1); all int64 holding 32-bit values, broadcast together."""
    x = (offset + k0) & MASK_32
    x = ((x ^ (x >> 16)) * HASH_1) & MASK_32
    x = ((x ^ (x >> 15) ^ k1) * HASH_2) & MASK_32
    return x ^ (x >> 15)


def random_bits(key: int, n_buckets: int, bucket_size: int, device: torch.device) -> Tensor:
    """32 random bits for every value of every bucket: int64 (n_buckets, bucket_size)."""
    k0, k1 = bucket_keys(key, n_buckets, device)
    offset = torch.arange(bucket_size, dtype=torch.int64, device=device)
    return hash32(offset, k0[:, None], k1[:, None])
