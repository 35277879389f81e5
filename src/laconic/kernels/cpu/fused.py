"""Kernels over whole tensors: a bucket at a time, so that every read after the first comes from the cache."""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from laconic.kernels import threads
from laconic.kernels.cpu.bits import widen
from laconic.kernels.cpu.packing import PADDING, copy, pack_bucket, packed_size, unpack_bucket
from laconic.kernels.cpu.rounding import TILE, bucket_norm, bucket_values, round_bucket, round_pack_4
from laconic.kernels.cpu.scaling import DIVIDE, MULTIPLY, scale_span, spans
from laconic.kernels.grid import Grid, Norm
from laconic.kernels.layout import n_buckets, packed_bucket_bytes, packed_bytes
from laconic.kernels.scaling import ONES, Scale

f32 = np.float32
NORMS_GIVEN = -1
"""Replaces the number of a norm: the norms are given."""


@njit(nogil=True, cache=True)
def _norms(v, size, norm, out, first, last):
    for b in range(first, last):
        out[b] = bucket_norm(v[b * size : (b + 1) * size], norm)


@njit(nogil=True, cache=True)
def _pack(symbols, size, bits, stride, out, first, last):
    scratch = np.empty(min(size, symbols.size) + PADDING, np.uint8)
    for b in range(first, last):
        s = symbols[b * size : (b + 1) * size]
        copy(s, scratch[: s.size])
        pack_bucket(scratch[: s.size + PADDING], s.size, bits, out[b * stride : (b + 1) * stride])


@njit(nogil=True, cache=True)
def _unpack(data, size, bits, stride, out, first, last):
    scratch = np.empty(min(size, out.size) + PADDING, np.uint8)
    for b in range(first, last):
        target = out[b * size : (b + 1) * size]
        n = target.size
        unpack_bucket(data[b * stride : (b + 1) * stride], n, bits, scratch[: n + PADDING])
        copy(scratch, target)


@njit(nogil=True, cache=True)
def _quantize_pack(v, norm, size, grid, key, width, stride, m, norms, data, first, last):
    rounding, bits, levels = grid
    scratch = np.empty(min(size, v.size) + PADDING, np.uint8)
    words, more = np.empty(TILE, np.uint32), np.empty(TILE, np.uint32)
    for b in range(first, last):
        x, out = v[b * size : (b + 1) * size], data[b * stride : (b + 1) * stride]
        if m[0].size:
            scale_span(x, b * size, m, DIVIDE)
        if norm != NORMS_GIVEN:
            norms[b] = bucket_norm(x, norm)
        if width == 4:
            round_pack_4(x, norms[b], rounding, bits, levels, key, b, words, more, out)
        elif width == 8:
            round_bucket(x, norms[b], rounding, bits, levels, key, b, words, out)
        else:
            round_bucket(x, norms[b], rounding, bits, levels, key, b, words, scratch[: x.size])
            pack_bucket(scratch[: x.size + PADDING], x.size, width, out)


@njit(nogil=True, cache=True)
def _unpack_dequantize(rows, size, grid, width, stride, weight, accumulate, m, keys, out, first, last):
    data, data_row, norms, norm_row = rows
    rounding, bits, levels = grid
    scratch = np.empty(min(size, out.size) + PADDING, np.uint8)
    words, values = np.empty(TILE, np.uint32), np.empty(TILE, np.float32)
    for b in range(first, last):
        target = out[b * size : (b + 1) * size]
        n = target.size
        n_bytes = packed_size(n, width)
        for p in range(keys.size):
            start = p * data_row + b * stride
            symbols = data[start : start + n_bytes]
            if width < 8:
                unpack_bucket(symbols, n, width, scratch[: n + PADDING])
                symbols = scratch[:n]
            scale = norms[p * norm_row + b] * weight
            adding = accumulate or p > 0
            bucket_values(symbols, scale, rounding, bits, levels, keys[p], b, adding, words, values, target)
        if m[0].size:
            scale_span(target, b * size, m, MULTIPLY)


@njit(nogil=True, cache=True)
def _scale(values, weight, accumulate, out):
    if accumulate:
        for i in range(out.size):
            out[i] += widen(values[i]) * weight
    else:
        for i in range(out.size):
            out[i] = widen(values[i]) * weight


def stored(v: Tensor) -> Any:
    """The array a kernel reads: float32, or uint16 for bfloat16; the other types are widened first."""
    v = v.detach()
    if v.dtype == torch.bfloat16:
        return v.contiguous().view(torch.int16).numpy().view(np.uint16)
    return v.float().contiguous().numpy()


@lru_cache(maxsize=64)
def _grid(grid: Grid) -> tuple[int, int, Any]:
    """A grid as the kernels' arguments."""
    return int(grid.rounding), grid.bits, np.array(grid.levels, dtype=np.float32)


def norms(v: Tensor, bucket_size: int, norm: Norm) -> Tensor:
    """v (n,) to norms (n_buckets,) in float32."""
    out = torch.empty(n_buckets(v.numel(), bucket_size), dtype=torch.float32, device=v.device)
    x, y = stored(v), out.numpy()
    threads.run(lambda i, j: _norms(x, bucket_size, int(norm), y, i, j), len(out), v.numel())
    return out


def quantize(v: Tensor, norms: Tensor, grid: Grid, bucket_size: int, key: int) -> Tensor:
    """v (n,) and norms (n_buckets,) to symbols (n,) uint8."""
    out = torch.empty(v.numel(), dtype=torch.uint8, device=v.device)
    quantize_pack(v, NORMS_GIVEN, grid, bucket_size, key, norms, out, width=8)
    return out


def dequantize(symbols: Tensor, norms: Tensor, grid: Grid, bucket_size: int, key: int = 0) -> Tensor:
    """Symbols (n,) to float32 values (n,)."""
    out = torch.empty(symbols.numel(), dtype=torch.float32, device=symbols.device)
    rows, keys = (symbols.numpy(), 0, norms.numpy(), 0), np.array([key], np.uint64)
    _decode(rows, keys, grid, bucket_size, 8, 1.0, False, ONES, out)
    return out


def pack(symbols: Tensor, bits: int, bucket_size: int) -> Tensor:
    """Symbols (n,) uint8 to packed bytes."""
    n, stride = symbols.numel(), packed_bucket_bytes(bucket_size, bits)
    out = torch.empty(packed_bytes(n, bits, bucket_size), dtype=torch.uint8, device=symbols.device)
    args = (symbols.numpy(), bucket_size, bits, stride, out.numpy())
    threads.run(lambda i, j: _pack(*args, i, j), n_buckets(n, bucket_size), n)
    return out


def unpack(data: Tensor, n: int, bits: int, bucket_size: int) -> Tensor:
    """The inverse of `pack`."""
    out = torch.empty(n, dtype=torch.uint8, device=data.device)
    args = (data.numpy(), bucket_size, bits, packed_bucket_bytes(bucket_size, bits), out.numpy())
    threads.run(lambda i, j: _unpack(*args, i, j), n_buckets(n, bucket_size), n)
    return out


def quantize_pack(
    v: Tensor,
    norm: int,
    grid: Grid,
    bucket_size: int,
    key: int,
    norms: Tensor,
    data: Tensor,
    scale: Scale = ONES,
    width: int | None = None,
) -> None:
    """Norms, symbols and packed bytes in one pass over memory; v is divided by m first, in place.

    width  bits that a symbol takes in `data`, if not the grid's: 8 for one symbol per byte
    """
    width = grid.bits if width is None else width
    args = (stored(v), int(norm), bucket_size, _grid(grid), np.uint64(key), width)
    more = (packed_bucket_bytes(bucket_size, width), spans(scale), norms.numpy(), data.numpy())
    threads.run(lambda i, j: _quantize_pack(*args, *more, i, j), len(norms), v.numel())


def unpack_dequantize(
    data: Tensor,
    norms: Tensor,
    grid: Grid,
    bucket_size: int,
    out: Tensor,
    weight: float,
    accumulate: bool,
    scale: Scale = ONES,
    *,
    keys: Tensor | None = None,
) -> None:
    """out = weight * sum of values, or out += the same, in one pass over memory; `out` (n,) float32, contiguous.

    Then `out` is multiplied by m. `keys` (P, 2) int32 are the encoders' keys, needed for SUBTRACT.
    """
    numbers = np.zeros(len(data), np.uint64) if keys is None else key_numbers(keys)
    _decode(flat_rows(data, norms), numbers, grid, bucket_size, grid.bits, weight, accumulate, scale, out)


def _decode(rows, keys, grid, bucket_size, width, weight, accumulate, scale, out):
    """`unpack_dequantize` for symbols stored in `width` bits each."""
    args = (rows, bucket_size, _grid(grid), width, packed_bucket_bytes(bucket_size, width))
    more, n = (f32(weight), accumulate, spans(scale), keys, out.numpy()), len(out)
    threads.run(lambda i, j: _unpack_dequantize(*args, *more, i, j), n_buckets(n, bucket_size), len(keys) * n)


def scale(values: Tensor, out: Tensor, weight: float, accumulate: bool) -> None:
    """out = weight * values, or out += weight * values, in one pass over memory."""
    x, y, w = stored(values), out.numpy(), f32(weight)
    threads.run(lambda i, j: _scale(x[i:j], w, accumulate, y[i:j]), len(out), len(out))


def key_numbers(keys: Tensor) -> Any:
    """Keys (P, 2) int32 as P numbers."""
    return keys.contiguous().numpy().view(np.uint64)[:, 0]


def flat_rows(*matrices: Tensor) -> tuple[Any, ...]:
    """For each matrix, whose rows may be strided: one array from its first element to its last, and the row stride."""
    found: list[Any] = []
    for x in matrices:
        length = (x.shape[0] - 1) * x.stride(0) + x.shape[1]
        found += [x.as_strided((length,), (1,)).numpy(), x.stride(0)]
    return tuple(found)
