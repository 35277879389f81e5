"""Rotation, rounding and packing of a bucket while it lies in the cache; `reference/rotation.py` is the specification.

One pass over a bucket does seven stages of its transform in registers, and each further pass three (`vectors.py`).
Additions are those of the specification, stage by stage, so that the sums are the same to the last bit.
"""

import math
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from laconic.kernels import threads
from laconic.kernels.cpu import vectors
from laconic.kernels.cpu.bits import bits_float, bucket_key, float_bits, hash32, reciprocal, usable
from laconic.kernels.cpu.fused import flat_rows, key_numbers
from laconic.kernels.cpu.packing import PADDING, fill, pack_bucket, packed_size, unpack_bucket
from laconic.kernels.cpu.rounding import L2, MINUS, bucket_norm
from laconic.kernels.cpu.scaling import DIVIDE, MULTIPLY, scale_span, spans
from laconic.kernels.cpu.vectors import N_LEVELS
from laconic.kernels.layout import n_buckets, packed_bucket_bytes
from laconic.kernels.reference.rotation import LANES, LEVELS, ROW, thresholds
from laconic.kernels.scaling import ONES, Scale

u8, u32, u64, f32 = np.uint8, np.uint32, np.uint64, np.float32
FIRST, SECOND, UNSIGNED, STORE = np.int64(0), np.int64(1), np.int64(-1), np.bool_(False)
"""The rounds, no random signs, no sum: not literals, since Numba compiles a kernel for each literal argument."""


@njit(nogil=True, cache=True)
def _small(w):
    """All stages of at most 64 values."""
    h = 1
    if w.size >= LANES:
        for i in range(0, w.size, LANES):
            vectors.first_4(w, i, LANES)
        h = LANES
    while h < w.size:
        for i in range(w.size):
            if i & h == 0:
                w[i], w[i + h] = w[i] + w[i + h], w[i] - w[i + h]
        h *= 2


@njit(nogil=True, cache=True)
def _hash_row(k0, k1, row, turn, hashes):
    """The row's 16 hashes for round `turn`, zeros for UNSIGNED."""
    if turn < 0:
        fill(hashes, u32(0))
        return
    offset = u32(LANES * (2 * row + turn))
    for lane in range(LANES):
        hashes[lane] = hash32(u32(offset + u32(lane)), k0, k1)


@njit(nogil=True, cache=True)
def _flip(source, factor, k0, k1, turn, hashes, accumulate, out):
    """out = ± source · factor, or out += the same, with the signs of round `turn`; `hashes` (LANES,) is scratch."""
    for first in range(0, out.size, ROW):
        _hash_row(k0, k1, first // ROW, turn, hashes)
        last = min(first + ROW, out.size)
        whole = first + (last - first) // (8 * LANES) * (8 * LANES)
        for i in range(first, whole, 8 * LANES):
            if accumulate:
                vectors.put_added(source, out, i, hashes, u32((i - first) // LANES), factor)
            else:
                vectors.put(source, out, i, hashes, u32((i - first) // LANES), factor)
        for i in range(whole, last):
            sign = u32(u32(hashes[i % LANES] << u32((i - first) // LANES)) & MINUS)
            value = bits_float(u32(float_bits(source[i] * factor) ^ sign))
            out[i] = out[i] + value if accumulate else value


@njit(nogil=True, cache=True)
def _turn(source, factor, k0, k1, turn, hashes, w):
    """w = H (± source · factor), with the signs of round `turn`, or UNSIGNED; w (a power of two) may be the source."""
    p = w.size
    if p < 8 * LANES:
        _flip(source, factor, k0, k1, turn, hashes, STORE, w)
        _small(w)
        return
    for first in range(0, p, ROW):
        _hash_row(k0, k1, first // ROW, turn, hashes)
        for i in range(first, min(first + ROW, p), 8 * LANES):
            vectors.first_7(source, w, i, hashes, u32((i - first) // LANES), factor)
    _rest(w, 8 * LANES)


@njit(nogil=True, cache=True)
def _rest(w, h):
    """The stages from h ≥ 16 on, in place."""
    p = w.size
    while h < p:
        if 8 * h <= p:
            for first in range(0, p, 8 * h):
                for i in range(first, first + h, LANES):
                    vectors.next_3(w, i, h)
            h *= 8
        elif 4 * h <= p:
            for first in range(0, p, 4 * h):
                for i in range(first, first + h, LANES):
                    vectors.next_2(w, i, h)
            h *= 4
        else:
            for i in range(0, h, LANES):
                vectors.next_1(w, i, h)
            h *= 2


@njit(nogil=True, cache=True)
def _scale(w, factor):
    for i in range(w.size):
        w[i] *= factor


@njit(nogil=True, cache=True)
def _scaled(x, guard, inverse, w):
    for i in range(x.size):
        w[i] = (x[i] * guard) * inverse


@njit(nogil=True, cache=True)
def _round(y, factor, root_m, bits, marks, levels, symbols):
    """Symbols of the rotated values y · factor; returns Σ z · level."""
    total, whole = 0.0, y.size // (8 * LANES) * (8 * LANES)
    for i in range(0, whole, 8 * LANES):
        if bits == 4:
            total += vectors.round_4(y, i, factor, root_m, symbols)
        elif bits == 3:
            total += vectors.round_3(y, i, factor, root_m, symbols)
        else:
            total += vectors.round_2(y, i, factor, root_m, symbols)
    for i in range(whole, y.size):
        value, k = y[i] * factor, 0
        z = abs(value) * root_m
        while k + 1 < N_LEVELS and z >= marks[k + 1]:
            k += 1
        symbols[i] = u8(k | (1 << (bits - 1) if value < f32(0) else 0))
        total += np.float64(f32(z * levels[k]))
    return total


@njit(nogil=True, cache=True)
def _frame(m, key, bucket):
    """Order of the transform of m values, its factor 1 / √p, √m, and the halves of the bucket's key."""
    p = 1
    while 2 * p <= m:
        p *= 2
    k0, k1 = bucket_key(key, bucket)
    return p, f32(1.0 / np.float64(f32(math.sqrt(p)))), f32(math.sqrt(m)), k0, k1


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _quantize_bucket(x, bits, marks, levels, key, bucket, w, hashes, symbols):
    """Symbols of one bucket to `symbols` (x.size,) uint8; returns its scale. `w` (x.size,) float32 is scratch."""
    m, norm = x.size, bucket_norm(x, L2)
    if not usable(norm):
        fill(symbols, u8(0))
        return norm
    guard, inverse = reciprocal(norm)
    p, factor, root_m, k0, k1 = _frame(m, key, bucket)
    if p == m and guard == f32(1):
        _turn(x, inverse, k0, k1, FIRST, hashes, w)
    else:
        _scaled(x, guard, inverse, w)
        _turn(w, f32(1), k0, k1, FIRST, hashes, w[:p])
    if p == m:
        _turn(w, factor, k0, k1, SECOND, hashes, w)
    else:
        _scale(w[:p], factor)
        _turn(w[m - p :], f32(1), k0, k1, SECOND, hashes, w[m - p :])
        _scale(w[m - p :], factor)
    dot = _round(w, factor if p == m else f32(1), root_m, bits, marks, levels, symbols)
    return f32(np.float64(norm) * math.sqrt(m) / dot)


@njit(nogil=True, cache=True)
def _pick(symbols, sign_bit, values, out):
    """± values[level] of each symbol, by selects instead of a table look-up, so that it vectorises."""
    v0, v1, v2, v3 = values[0], values[1], values[2], values[3]
    v4, v5, v6, v7 = values[4], values[5], values[6], values[7]
    level_bits = u32(sign_bit - u32(1))
    for i in range(out.size):
        s = u32(symbols[i])
        k = u32(s & level_bits)
        one, two = u32(k & u32(1)) != u32(0), u32(k & u32(2)) != u32(0)
        low = (v3 if one else v2) if two else (v1 if one else v0)
        high = (v7 if one else v6) if two else (v5 if one else v4)
        value = high if k >= u32(4) else low
        sign = MINUS if s >= sign_bit else u32(0)
        out[i] = bits_float(u32(float_bits(value) ^ sign))


@njit(nogil=True, cache=True, inline="always")
def _bucket_values(symbols, scale, bits, levels, key, bucket, accumulate, scaled, w, hashes, out):
    """out = R⁻¹(± level · scale) of one bucket, or out += the same; `w` and `scaled` (N_LEVELS,) are scratch."""
    m = symbols.size
    p, factor, _, k0, k1 = _frame(m, key, bucket)
    for k in range(N_LEVELS):
        scaled[k] = levels[k] * scale
    if p == m:
        _scale(scaled, factor)
        _pick(symbols, u32(1 << (bits - 1)), scaled, w)
        _turn(w, f32(1), k0, k1, UNSIGNED, hashes, w)
        _turn(w, factor, k0, k1, SECOND, hashes, w)
    else:
        _pick(symbols, u32(1 << (bits - 1)), scaled, w)
        _turn(w[m - p :], factor, k0, k1, UNSIGNED, hashes, w[m - p :])
        _flip(w[m - p :], f32(1), k0, k1, SECOND, hashes, STORE, w[m - p :])
        _turn(w, factor, k0, k1, UNSIGNED, hashes, w[:p])
        _put_rest(w[p:], accumulate, out[p:])
    _flip(w, f32(1), k0, k1, FIRST, hashes, accumulate, out[:p])


@njit(nogil=True, cache=True)
def _put_rest(values, accumulate, out):
    for i in range(out.size):
        out[i] = out[i] + values[i] if accumulate else values[i]


@njit(nogil=True, cache=True, error_model="numpy")
def _quantize_range(v, size, bits, marks, levels, key, width, stride, m, scales, out, first, last):
    """Buckets `first` to `last`: their scales, and their symbols in `width` bits each."""
    n = min(size, v.size)
    w, hashes, symbols = np.empty(n, np.float32), np.empty(LANES, np.uint32), np.empty(n + PADDING, np.uint8)
    for b in range(first, last):
        x = v[b * size : (b + 1) * size]
        n = x.size
        if m[0].size:
            scale_span(x, b * size, m, DIVIDE)
        scales[b] = _quantize_bucket(x, bits, marks, levels, key, b, w[:n], hashes, symbols[:n])
        pack_bucket(symbols[: n + PADDING], n, width, out[b * stride : (b + 1) * stride])


@njit(nogil=True, cache=True)
def _values_range(rows, keys, size, bits, levels, width, stride, weight, accumulate, m, out, first, last):
    data, data_row, scales, scale_row = rows
    n = min(size, out.size)
    w, scaled, hashes = np.empty(n, np.float32), np.empty(N_LEVELS, np.float32), np.empty(LANES, np.uint32)
    symbols = np.empty(n + PADDING, np.uint8)
    for b in range(first, last):
        target = out[b * size : (b + 1) * size]
        n = target.size
        for p in range(keys.size):
            start = p * data_row + b * stride
            unpack_bucket(data[start : start + packed_size(n, width)], n, width, symbols[: n + PADDING])
            scale = scales[p * scale_row + b] * weight
            adding = accumulate or p > 0
            _bucket_values(symbols[:n], scale, bits, levels, keys[p], b, adding, scaled, w[:n], hashes, target)
        if m[0].size:
            scale_span(target, b * size, m, MULTIPLY)


@cache
def _levels(bits: int) -> tuple[Any, Any]:
    """The lower thresholds of the levels and the levels, padded to N_LEVELS; an infinite threshold is never reached."""
    marks, levels = np.full(N_LEVELS, np.inf, np.float32), np.zeros(N_LEVELS, np.float32)
    marks[1 : len(LEVELS[bits])] = thresholds(bits)
    levels[: len(LEVELS[bits])] = LEVELS[bits]
    return marks, levels


def rotate_quantize(v: Tensor, bits: int, bucket_size: int, key: int) -> tuple[Tensor, Tensor]:
    """Values (n,) to symbols (n,) uint8 and scales (n_buckets,) float32."""
    symbols = torch.empty(v.numel(), dtype=torch.uint8, device=v.device)
    scales = torch.empty(n_buckets(v.numel(), bucket_size), dtype=torch.float32, device=v.device)
    rotate_pack(v, bits, bucket_size, key, scales, symbols, width=8)
    return symbols, scales


def rotate_pack(
    v: Tensor,
    bits: int,
    bucket_size: int,
    key: int,
    scales: Tensor,
    data: Tensor,
    scale: Scale = ONES,
    width: int | None = None,
) -> None:
    """Scales and packed symbols in one pass over memory; v is divided by m first, in place.

    width  bits that a symbol takes in `data`, if not `bits`: 8 for one symbol per byte
    """
    width, x = bits if width is None else width, v.detach().float().contiguous().numpy()
    args = (x, bucket_size, bits, *_levels(bits), u64(key), width, packed_bucket_bytes(bucket_size, width))
    more = (spans(scale), scales.numpy(), data.numpy())
    threads.run(lambda i, j: _quantize_range(*args, *more, i, j), len(scales), 2 * v.numel())


def rotate_dequantize(symbols: Tensor, scales: Tensor, bits: int, bucket_size: int, key: int) -> Tensor:
    """Symbols (n,) to float32 values (n,)."""
    out = torch.empty(symbols.numel(), dtype=torch.float32, device=symbols.device)
    rows, keys = (symbols.numpy(), 0, scales.numpy(), 0), np.array([key], np.uint64)
    _decode(rows, keys, bits, bucket_size, 8, 1.0, False, ONES, out)
    return out


def unpack_rotate(
    data: Tensor,
    scales: Tensor,
    keys: Tensor,
    bits: int,
    bucket_size: int,
    out: Tensor,
    weight: float,
    accumulate: bool,
    scale: Scale = ONES,
) -> None:
    """out = weight * sum of values, or out += the same, in one pass over memory; `out` (n,) float32, contiguous.

    Then `out` is multiplied by m.
    """
    _decode(flat_rows(data, scales), key_numbers(keys), bits, bucket_size, bits, weight, accumulate, scale, out)


def _decode(rows, keys, bits, bucket_size, width, weight, accumulate, scale, out):
    """`unpack_rotate` for symbols stored in `width` bits each."""
    args = (rows, keys, bucket_size, bits, _levels(bits)[1], width, packed_bucket_bytes(bucket_size, width))
    more, n = (f32(weight), accumulate, spans(scale), out.numpy()), len(out)
    threads.run(lambda i, j: _values_range(*args, *more, i, j), n_buckets(n, bucket_size), 2 * len(keys) * n)
