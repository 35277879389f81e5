"""Kernels over whole tensors: a bucket at a time, so that what follows the first read comes from the cache."""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import njit

from laconic.kernels.cpu import threads
from laconic.kernels.cpu.bits import widen
from laconic.kernels.cpu.norms import bucket_norm
from laconic.kernels.cpu.packing import PADDING, copy, pack_bucket, packed_size, unpack_bucket
from laconic.kernels.cpu.rounding import TILE, bucket_values, round_bucket, round_pack_4
from laconic.kernels.cpu.scaling import scale_span, spans
from laconic.kernels.grid import Grid, Norm
from laconic.kernels.layout import n_buckets, packed_bucket_bytes, packed_bytes
from laconic.kernels.scaling import ONES, Scale

f32 = np.float32


@njit(nogil=True, cache=True)
def _norms(v, size, norm, out, first, last):
    for b in range(first, last):
        out[b] = bucket_norm(v[b * size : (b + 1) * size], norm)


@njit(nogil=True, cache=True)
def _quantize(v, norms, size, rounding, bits, levels, key, out, first, last):
    words = np.empty(TILE, np.uint32)
    for b in range(first, last):
        x = v[b * size : (b + 1) * size]
        round_bucket(x, norms[b], rounding, bits, levels, key, b, words, out[b * size : b * size + x.size])


@njit(nogil=True, cache=True)
def _dequantize(symbols, scales, size, rounding, bits, levels, key, out, first, last):
    words, values = np.empty(TILE, np.uint32), np.empty(TILE, np.float32)
    for b in range(first, last):
        s = symbols[b * size : (b + 1) * size]
        target = out[b * size : (b + 1) * size]
        bucket_values(s, scales[b], rounding, bits, levels, key, b, False, words, values, target)


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
def _quantize_pack(v, norm, size, rounding, bits, levels, key, stride, m, norms, data, first, last):
    scratch = np.empty(min(size, v.size) + PADDING, np.uint8)
    words, more = np.empty(TILE, np.uint32), np.empty(TILE, np.uint32)
    for b in range(first, last):
        x, out = v[b * size : (b + 1) * size], data[b * stride : (b + 1) * stride]
        scale_span(x, b * size, m, True)
        norms[b] = bucket_norm(x, norm)
        if bits == 4:
            round_pack_4(x, norms[b], rounding, levels, key, b, words, more, out)
        elif bits == 8:
            round_bucket(x, norms[b], rounding, bits, levels, key, b, words, out)
        else:
            round_bucket(x, norms[b], rounding, bits, levels, key, b, words, scratch[: x.size])
            pack_bucket(scratch[: x.size + PADDING], x.size, bits, out)


@njit(nogil=True, cache=True)
def _unpack_dequantize(
    data,
    data_row,
    norms,
    norm_row,
    n_payloads,
    size,
    rounding,
    bits,
    levels,
    stride,
    weight,
    accumulate,
    m,
    keys,
    out,
    first,
    last,
):
    scratch = np.empty(min(size, out.size) + PADDING, np.uint8)
    words, values = np.empty(TILE, np.uint32), np.empty(TILE, np.float32)
    for b in range(first, last):
        target = out[b * size : (b + 1) * size]
        n = target.size
        n_bytes = packed_size(n, bits)
        for p in range(n_payloads):
            start = p * data_row + b * stride
            unpack_bucket(data[start : start + n_bytes], n, bits, scratch[: n + PADDING])
            scale = norms[p * norm_row + b] * weight
            adding = accumulate or p > 0
            bucket_values(scratch[:n], scale, rounding, bits, levels, keys[p], b, adding, words, values, target)
        scale_span(target, b * size, m, False)


@njit(nogil=True, cache=True)
def _scale(values, weight, accumulate, out):
    if accumulate:
        for i in range(out.size):
            out[i] += widen(values[i]) * weight
    else:
        for i in range(out.size):
            out[i] = widen(values[i]) * weight


def _stored(v: torch.Tensor) -> Any:
    """The array a kernel reads: float32, or uint16 for bfloat16; the other types are widened first."""
    v = v.detach()
    if v.dtype == torch.bfloat16:
        return v.contiguous().view(torch.int16).numpy().view(np.uint16)
    return v.float().contiguous().numpy()


@lru_cache(maxsize=64)
def _grid(grid: Grid) -> tuple[int, int, Any]:
    """What the kernels take of a grid."""
    return int(grid.rounding), grid.bits, np.array(grid.levels, dtype=np.float32)


def norms(v: torch.Tensor, bucket_size: int, norm: Norm) -> torch.Tensor:
    """v (n,) to norms (n_buckets,) in float32."""
    out = torch.empty(n_buckets(v.numel(), bucket_size), dtype=torch.float32, device=v.device)
    x, y = _stored(v), out.numpy()
    threads.run(lambda i, j: _norms(x, bucket_size, int(norm), y, i, j), len(out), v.numel())
    return out


def quantize(v: torch.Tensor, norms: torch.Tensor, grid: Grid, bucket_size: int, key: int) -> torch.Tensor:
    """v (n,) and norms (n_buckets,) to symbols (n,) uint8."""
    out = torch.empty(v.numel(), dtype=torch.uint8, device=v.device)
    args = (_stored(v), norms.numpy(), bucket_size, *_grid(grid), np.uint64(key), out.numpy())
    threads.run(lambda i, j: _quantize(*args, i, j), len(norms), v.numel())
    return out


def dequantize(symbols: torch.Tensor, norms: torch.Tensor, grid: Grid, bucket_size: int, key: int = 0) -> torch.Tensor:
    """Symbols (n,) to float32 values (n,)."""
    out = torch.empty(symbols.numel(), dtype=torch.float32, device=symbols.device)
    args = (symbols.numpy(), norms.numpy(), bucket_size, *_grid(grid), np.uint64(key), out.numpy())
    threads.run(lambda i, j: _dequantize(*args, i, j), len(norms), len(out))
    return out


def pack(symbols: torch.Tensor, bits: int, bucket_size: int) -> torch.Tensor:
    """Symbols (n,) uint8 to packed bytes."""
    n, stride = symbols.numel(), packed_bucket_bytes(bucket_size, bits)
    out = torch.empty(packed_bytes(n, bits, bucket_size), dtype=torch.uint8, device=symbols.device)
    args = (symbols.numpy(), bucket_size, bits, stride, out.numpy())
    threads.run(lambda i, j: _pack(*args, i, j), n_buckets(n, bucket_size), n)
    return out


def unpack(data: torch.Tensor, n: int, bits: int, bucket_size: int) -> torch.Tensor:
    """The inverse of `pack`."""
    out = torch.empty(n, dtype=torch.uint8, device=data.device)
    args = (data.numpy(), bucket_size, bits, packed_bucket_bytes(bucket_size, bits), out.numpy())
    threads.run(lambda i, j: _unpack(*args, i, j), n_buckets(n, bucket_size), n)
    return out


def quantize_pack(
    v: torch.Tensor,
    norm: Norm,
    grid: Grid,
    bucket_size: int,
    key: int,
    norms_out: torch.Tensor,
    data_out: torch.Tensor,
    scale: Scale = ONES,
) -> None:
    """Norms, symbols and packed bytes in one pass over memory; v is divided by m first, in place."""
    stride = packed_bucket_bytes(bucket_size, grid.bits)
    args = (_stored(v), int(norm), bucket_size, *_grid(grid), np.uint64(key), stride, spans(scale))
    out = (norms_out.numpy(), data_out.numpy())
    threads.run(lambda i, j: _quantize_pack(*args, *out, i, j), len(norms_out), v.numel())


def unpack_dequantize(
    data: torch.Tensor,
    norms: torch.Tensor,
    grid: Grid,
    bucket_size: int,
    out: torch.Tensor,
    weight: float,
    accumulate: bool,
    scale: Scale = ONES,
    *,
    keys: torch.Tensor | None = None,
) -> None:
    """out = weight * sum of values, or out += the same, in one pass over memory; `out` (n,) float32, contiguous.

    What is then in `out` is multiplied by m. `keys` (P, 2) int32 are those of the encoders, for SUBTRACT.
    """
    numbers = np.zeros(len(data), np.uint64) if keys is None else keys.contiguous().numpy().view(np.uint64)[:, 0]
    stride = packed_bucket_bytes(bucket_size, grid.bits)
    rows = (*_flat_rows(data), *_flat_rows(norms), len(data))
    args = (*rows, bucket_size, *_grid(grid), stride, f32(weight), accumulate, spans(scale), numbers, out.numpy())
    threads.run(lambda i, j: _unpack_dequantize(*args, i, j), norms.shape[1], data.shape[0] * len(out))


def scale(values: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool) -> None:
    """out = weight * values, or out += weight * values, in one pass over memory."""
    x, y, w = _stored(values), out.numpy(), f32(weight)
    threads.run(lambda i, j: _scale(x[i:j], w, accumulate, y[i:j]), len(out), len(out))


def _flat_rows(x: torch.Tensor) -> tuple[Any, int]:
    """A matrix whose rows may lie apart as one array from its first element to its last, and the distance of rows."""
    distance = x.stride(0)
    length = (x.shape[0] - 1) * distance + x.shape[1]
    return x.as_strided((length,), (1,)).numpy(), distance
