"""Rotation of each bucket, rounding to the best levels for a Gaussian, and the inverse: the specification.

A bucket x of m values and Euclidean norm ‖x‖ is rotated by y = R x / ‖x‖ in two rounds. With p the largest power of
two that is not above m, H the Hadamard matrix of order p and s, s' random signs:

    the first p values   w ← H (s · w) / √p
    the last p values    w ← H (s' · w) / √p

Each round is orthogonal. Where m is a power of two, both rotate the whole bucket: the first turns a bucket with one
large value into values ± of the same magnitude, the second makes it nearly Gaussian, like any other bucket.

The level of a value is the one of LEVELS nearest to z = √m |y|, and the scale that is sent is

    σ = ‖x‖ √m / Σ z · level        so that x̂ = R⁻¹(± level · σ) has ⟨x, x̂⟩ = ‖x‖²

H is computed in place by stages h = 1, 2, 4, …, p/2, which replace values i and i + h (i without bit h) by their sum
and difference, in float32. The sign of value i in a round is bit 31 − ⌊i/16⌋ mod 32 of `hash32` at the offset
16 (2 ⌊i/512⌋ + round) + i mod 16 under the bucket's key: a row of 16 hashes serves 512 values.

A bucket of norm zero has scale zero; a bucket of non-finite norm has that norm as scale. Symbols are zero in both.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor

from laconic.kernels.grid import Norm
from laconic.kernels.reference.packing import pack, payload_rows, unpack
from laconic.kernels.reference.random import bucket_keys, hash32
from laconic.kernels.reference.rounding import norms, range_guard

LEVELS = {
    2: (0.45278, 1.510418),
    3: (0.24509418, 0.75600535, 1.3439095, 2.1519458),
    4: (0.12839496, 0.3880482, 0.6567589, 0.94234055, 1.2562308, 1.6180464, 2.069017, 2.7325895),
}
"""By bits: the positive levels of the quantizer of least squared error for a standard Gaussian (Max 1960).

Each is moved by less than 2⁻²¹, so that the last three bits of its float32 pattern are its index: a kernel that has
selected a level need not compute the index as well.
"""
LANES, ROW = 16, 512
"""Hashes in a row, and the values that one row has signs for."""


def thresholds(bits: int) -> tuple[float, ...]:
    """The midpoints between neighbouring levels."""
    levels = LEVELS[bits]
    return tuple((a + b) / 2 for a, b in pairwise(levels))


def order(m: int) -> int:
    """The largest power of two that is not above m ≥ 1."""
    return 1 << (m.bit_length() - 1)


def root(m: int) -> float:
    """√m, rounded to float32."""
    return float(torch.tensor(math.sqrt(m), dtype=torch.float32, device="cpu"))


def signs(key: int, first: int, n_buckets: int, p: int, turn: int, device: torch.device) -> Tensor:
    """± 1 (n_buckets, p) for round `turn` of the buckets from `first` on."""
    k0, k1 = (half[first:, None] for half in bucket_keys(key, first + n_buckets, device))
    i = torch.arange(p, device=device)
    bits = hash32(LANES * (2 * (i // ROW) + turn) + i % LANES, k0, k1)
    return 1.0 - 2.0 * (bits >> (31 - i // LANES % 32) & 1).float()


def hadamard(x: Tensor) -> Tensor:
    """H x of each row (rows, p) float32, without a factor."""
    rows, p = x.shape
    h = 1
    while h < p:
        a, b = x.view(rows, p // (2 * h), 2, h).unbind(2)
        x = torch.stack([a + b, a - b], 2).view(rows, p)
        h *= 2
    return x


def parts(m: int) -> list[slice]:
    """The slice of m values that each round rotates."""
    p = order(m)
    return [slice(0, p), slice(m - p, m)]


def rotate(x: Tensor, key: int, first: int, back: bool = False) -> Tensor:
    """R x of each row (rows, m) float32, or R⁻¹ x; row 0 is bucket `first`."""
    (rows, m), y = x.shape, x.clone()
    p = order(m)
    turns = list(enumerate(parts(m)))
    for turn, part in reversed(turns) if back else turns:
        s, factor = signs(key, first, rows, p, turn, x.device), 1 / root(p)
        y[:, part] = hadamard(y[:, part] * factor) * s if back else hadamard(y[:, part] * s) * factor
    return y


def rotate_quantize(v: Tensor, bits: int, bucket_size: int, key: int) -> tuple[Tensor, Tensor]:
    """Values (n,) to symbols (n,) uint8, sign << (bits − 1) | level, and scales (n_buckets,) float32."""
    whole = norms(v, bucket_size, Norm.L2)
    made = [
        _quantize(v[start:stop].float().view(-1, m), whole[b : b + rows], bits, key, b)
        for b, rows, m, start, stop in _groups(v.numel(), bucket_size)
    ]
    if not made:
        return torch.empty(0, dtype=torch.uint8, device=v.device), whole
    symbols, scales = zip(*made, strict=True)
    return torch.cat(symbols), torch.cat(scales)


def _quantize(x: Tensor, norm: Tensor, bits: int, key: int, first: int) -> tuple[Tensor, Tensor]:
    """`rotate_quantize` for buckets (rows, m) of one size; row 0 is bucket `first`."""
    m, usable, guard = x.shape[1], torch.isfinite(norm) & (norm > 0), range_guard(norm)
    inverse = torch.where(usable, 1 / (norm * guard), 0.0)
    t = torch.where(usable[:, None], x, 0.0) * guard[:, None] * inverse[:, None]
    y = rotate(t, key, first)
    z = y.abs() * root(m)
    levels = torch.tensor(LEVELS[bits], dtype=torch.float32, device=x.device)
    marks = torch.tensor(thresholds(bits), dtype=torch.float32, device=x.device)
    level = torch.bucketize(z, marks, right=True)
    dot = (z * levels[level]).double().sum(1)
    scale = (norm.double() * math.sqrt(m) / dot).float()
    symbols = torch.where(usable[:, None], level + (y < 0) * 2 ** (bits - 1), 0)
    return symbols.to(torch.uint8).view(-1), torch.where(usable, scale, norm)


def rotate_dequantize(symbols: Tensor, scales: Tensor, bits: int, bucket_size: int, key: int) -> Tensor:
    """Symbols (n,) to float32 values (n,): R⁻¹(± level · scale)."""
    levels = torch.tensor(LEVELS[bits], dtype=torch.float32, device=symbols.device)
    values = torch.cat([levels, -levels])[symbols.long()]
    made = [
        rotate(values[start:stop].view(-1, m) * scales[b : b + rows, None], key, b, back=True).view(-1)
        for b, rows, m, start, stop in _groups(symbols.numel(), bucket_size)
    ]
    return torch.cat(made) if made else torch.empty(0, dtype=torch.float32, device=symbols.device)


def _groups(n: int, bucket_size: int) -> list[tuple[int, int, int, int, int]]:
    """(first bucket, number of buckets, their size, first value, end): the full buckets, then the short one."""
    full, rest = divmod(n, bucket_size)
    groups = [(0, full, bucket_size, 0, n - rest), (full, 1, rest, n - rest, n)]
    return [group for group in groups if group[1] * group[2]]


def rotate_pack(v: Tensor, bits: int, bucket_size: int, key: int, scales_out: Tensor, data_out: Tensor) -> None:
    """scales_out, data_out = scales and packed symbols of v."""
    symbols, scales = rotate_quantize(v, bits, bucket_size, key)
    scales_out.copy_(scales)
    data_out.copy_(pack(symbols, bits, bucket_size))


def unpack_rotate(
    data: Tensor,
    scales: Tensor,
    keys: Tensor,
    bits: int,
    bucket_size: int,
    out: Tensor,
    weight: float,
    accumulate: bool,
) -> None:
    """out = weight * sum over payloads of their values, or out += the same.

    `data` (P, n_bytes), `scales` (P, n_buckets), `keys` (P, 2) int32, `out` (n,) float32.
    """
    for row, scaled, key in payload_rows(data, scales, keys, weight):
        symbols = unpack(row, out.numel(), bits, bucket_size)
        values = rotate_dequantize(symbols, scaled, bits, bucket_size, key)
        out.copy_(out + values if accumulate else values)
        accumulate = True
