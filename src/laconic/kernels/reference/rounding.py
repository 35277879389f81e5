"""One norm per bucket, stochastic rounding of |v| / norm to a grid of levels, and back: the lossy step's specification.

Norms are summed in float64 and rounded to float32. A bucket that holds a non-finite value, or whose norm exceeds the
range of float32, gets a non-finite norm. Every NaN has the same bit pattern, and so the same bytes on the wire.

With r = |v| / norm between neighbouring levels lo <= r < hi, the level is hi with probability (r - lo) / (hi - lo),
else lo; hence E[level] = r. Each `_levels_*` function writes that for one kind of grid in single IEEE operations on
float32 and integers, so that every backend can repeat it bit for bit:

POWER    With l1 = 2^-m the smallest non-zero level, t = r + max(r, l1) is 2r where r >= l1 and l1 + r below: in both
         cases the fraction bits of t are the position of r between its two levels. Adding 23 random bits to the
         bit pattern of t carries into the exponent with just that probability, and the exponent is the level.
UNIFORM  The same in fixed point: r * top with 23 binary places, plus 23 random bits, shifted right by 23.
TABLE    Search, then compare a 24-bit uniform number times the gap with the distance to the lower level.
SUBTRACT With Δ = 2 norm / (2^bits − 1), v / Δ + (2^bits − 1) / 2 lies between 0 and 2^bits − 1. In fixed point, plus 23
         random bits r, shifted right by 23, it is the symbol k, at most 2^bits − 1: nothing is clipped. The decoder
         draws r again: Δ (k − 2^(bits − 1) + 1 − (2r + 1) / 2^24) is v with an error that is uniform on ±Δ/2.

The float32 operations involved, at most five, shift no expectation by more than 2^-21 of the value and 2^-22 of the
gap between its levels, where neither is subnormal.

Buckets with norm zero, or a non-finite norm, get symbol 0 throughout; since 0 * inf is NaN, a non-finite bucket
decodes to non-finite values and no other bucket does.
"""

import torch
from torch import Tensor

from laconic.kernels.grid import Grid, Norm, Rounding
from laconic.kernels.layout import n_buckets
from laconic.kernels.reference.random import random_bits

ONE_23 = 2**23


def to_buckets(v: Tensor, bucket_size: int) -> Tensor:
    """(n,) to (n_buckets, width), the short last bucket filled with zeros; width = min(bucket_size, n)."""
    width = max(1, min(bucket_size, v.numel()))
    rows = n_buckets(v.numel(), bucket_size)
    padded = torch.zeros(rows * width, dtype=v.dtype, device=v.device)
    padded[: v.numel()] = v
    return padded.view(rows, width)


def from_buckets(x: Tensor, n: int) -> Tensor:
    """The inverse of `to_buckets`."""
    return x.reshape(-1)[:n]


def norms(v: Tensor, bucket_size: int, norm: Norm) -> Tensor:
    """v (n,) to norms (n_buckets,) in float32."""
    if v.numel() == 0:
        return torch.empty(0, dtype=torch.float32, device=v.device)
    x = to_buckets(v.float(), bucket_size).double()
    if norm is Norm.L2:
        value = x.square().sum(dim=1).sqrt()
    elif norm is Norm.LINF:
        value = x.abs().amax(dim=1)
    else:
        counts = to_buckets(torch.ones_like(v), bucket_size).double().sum(dim=1)
        value = x.abs().sum(dim=1) / counts
    return value.float().nan_to_num(nan=torch.nan, posinf=torch.inf)


def range_guard(norms: Tensor) -> Tensor:
    """A power of two that brings the norm near 1 where its reciprocal would leave the range of float32."""
    small, large = norms < 2.0**-62, norms > 2.0**62
    one = torch.ones_like(norms)  # torch.where of Python numbers alone returns torch's default dtype
    return torch.where(small, 2.0**64 * one, torch.where(large, 2.0**-64 * one, one))


def quantize(v: Tensor, norms: Tensor, grid: Grid, bucket_size: int, key: int) -> Tensor:
    """v (n,) and norms (n_buckets,) to symbols (n,) uint8: sign << (bits - 1) | level."""
    if v.numel() == 0:
        return torch.empty(0, dtype=torch.uint8, device=v.device)
    x = to_buckets(v.float(), bucket_size)
    negative = x < 0
    if grid.rounding is Rounding.SUBTRACT:
        symbols = _shifted(x, norms, grid, random_bits(key, x.shape[0], x.shape[1], x.device) >> 9)
    elif grid.rounding is Rounding.SIGN:
        symbols = negative.long()
    else:
        level = _levels(x, norms, grid, random_bits(key, x.shape[0], x.shape[1], x.device))
        symbols = torch.where(negative & (level > 0), level + 2 ** (grid.bits - 1), level)
    usable = torch.isfinite(norms) & (norms > 0)
    return from_buckets(torch.where(usable[:, None], symbols, 0).to(torch.uint8), v.numel())


def _levels(x: Tensor, norms: Tensor, grid: Grid, random: Tensor) -> Tensor:
    guard = range_guard(norms)
    a = (x.abs() * guard[:, None]).nan_to_num(nan=0.0, posinf=0.0)
    inverse = (1.0 / (norms * guard))[:, None]
    if grid.rounding is Rounding.POWER:
        return _levels_power((a * inverse).clamp(max=1.0), grid, random >> 9)
    if grid.rounding is Rounding.UNIFORM:
        return _levels_uniform(a, inverse, grid, random >> 9)
    return _levels_table((a * inverse).clamp(max=1.0), grid, random >> 8)


def _shifted(x: Tensor, norms: Tensor, grid: Grid, random23: Tensor) -> Tensor:
    guard, top = range_guard(norms), float((2**grid.bits - 1) * 2**22)
    factor = (1.0 / (norms * guard) * top)[:, None]
    fixed = ((x * guard[:, None]) * factor).clamp(-top, top).nan_to_num(nan=0.0).long()
    return (fixed + int(top) + random23) >> 23


def _levels_power(r: Tensor, grid: Grid, random23: Tensor) -> Tensor:
    m = grid.top - 1
    t = r + r.clamp(min=2.0**-m)
    return ((t.view(torch.int32).long() + random23) >> 23) - (127 - m)


def _levels_uniform(a: Tensor, inverse: Tensor, grid: Grid, random23: Tensor) -> Tensor:
    top = float(grid.top * ONE_23)
    fixed = (a * (inverse * top)).clamp(max=top).nan_to_num(nan=0.0).long()
    return (fixed + random23) >> 23


def _levels_table(r: Tensor, grid: Grid, random24: Tensor) -> Tensor:
    levels = torch.tensor(grid.levels, dtype=torch.float32, device=r.device)
    low = (torch.searchsorted(levels, r.contiguous(), right=True) - 1).clamp(0, grid.top - 1)
    uniform = random24.float() * 2.0**-24
    up = uniform * (levels[low + 1] - levels[low]) < r - levels[low]
    return low + up.long()


def dequantize(symbols: Tensor, norms: Tensor, grid: Grid, bucket_size: int, key: int = 0) -> Tensor:
    """Symbols (n,) to float32 values (n,): (+ or -) level * norm. SUBTRACT takes the encoder's key.

    `norms` may be any factors per bucket.
    """
    n = symbols.numel()
    if n == 0:
        return torch.empty(0, dtype=torch.float32, device=symbols.device)
    s = to_buckets(symbols, bucket_size).long()
    sign_bit = 2 ** (grid.bits - 1)
    sign = 1.0 - 2.0 * (s >= sign_bit).float()
    level = s & (sign_bit - 1)
    scales = norms[:, None]
    if grid.rounding is Rounding.SUBTRACT:
        random23 = random_bits(key, s.shape[0], s.shape[1], s.device) >> 9
        shifted = ((s - (sign_bit - 1)) * 2**24 - (2 * random23 + 1)).float() * 2.0**-24
        return from_buckets(shifted * (scales / torch.full_like(scales, sign_bit - 0.5)), n)
    if grid.rounding is Rounding.SIGN:
        return from_buckets(sign * scales, n)
    if grid.rounding is Rounding.UNIFORM:
        return from_buckets(sign * (level.float() * (scales / torch.full_like(scales, grid.top))), n)
    levels = torch.tensor(grid.levels, dtype=torch.float32, device=s.device)
    return from_buckets(sign * (levels[level] * scales), n)
