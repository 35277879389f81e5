"""A bucket of any length, a tile at a time: the short last one of a tensor, and those too large for one program.

`reference/packing.py` states the layout. Lengths here are known at run time only, so a byte's symbols are gathered one
by one, and a width of several components rounds each value once per component. A program takes every PARTS-th tile of
TILE values, from tile `part` on.
"""

import triton
import triton.language as tl

from laconic.kernels.gpu.norms import load
from laconic.kernels.gpu.rounding import INFINITY, bucket_key, draw, reciprocal, symbol, unit, value


@triton.jit
def own_bucket(n, BUCKET, PARTS):
    """(bucket, first, length, part) of a program: its bucket, the place of its first value, and which tiles to take."""
    bucket = (tl.program_id(0) // PARTS).to(tl.int64)
    first = bucket * BUCKET
    return bucket, first, tl.minimum(n - first, BUCKET), tl.program_id(0) % PARTS


@triton.jit
def rule_of(norm, key, bucket, levels_ptr):
    """All that the values of a bucket share: (keep, guard, inverse, k0, k1, levels)."""
    keep, guard, inverse = reciprocal(norm)
    k0, k1 = bucket_key(key, bucket)
    return keep, guard, inverse, k0, k1, levels_ptr


@triton.jit
def round_tile(x, i, mask, rule, ROUNDING: tl.constexpr, BITS: tl.constexpr, CHECKED: tl.constexpr):
    """Symbols (uint32) of values x (float32) at places i of a bucket; 0 where `mask` is false."""
    drawn = draw(x, i.to(tl.uint32), rule, ROUNDING, BITS, CHECKED)
    return tl.where(mask, symbol(x, drawn, rule, ROUNDING, BITS), 0)


@triton.jit
def _pack_field(
    v_ptr, memory_ptr, data_ptr, first, length, rule, part, PARTS, WIDTH: tl.constexpr,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, FEEDBACK: tl.constexpr, SYMBOLS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Store the component of WIDTH bits; returns where the next one begins."""
    wider: tl.constexpr = BITS & (16 - 2 * WIDTH)
    n_bytes: tl.constexpr = TILE * WIDTH // 8
    stride = (length * WIDTH + 7) // 8
    for start in range(part * n_bytes, stride, PARTS * n_bytes):
        j = start + tl.arange(0, n_bytes)
        byte = tl.zeros((n_bytes,), tl.uint32)
        for place in tl.static_range(8 // WIDTH):
            i = j + place * stride
            mask = (j < stride) & (i < length)
            if SYMBOLS:
                s = tl.load(v_ptr + first + i, mask=mask, other=0).to(tl.uint32)
            else:
                x = load(v_ptr, memory_ptr, first + i, mask, FEEDBACK)
                s = round_tile(x, i, mask, rule, ROUNDING, BITS, False)
            byte |= ((s >> wider) & ((1 << WIDTH) - 1)) << (place * WIDTH)
        tl.store(data_ptr + j, byte.to(tl.uint8), mask=j < stride)
    return data_ptr + stride


@triton.jit
def pack_bucket(
    v_ptr, memory_ptr, data_ptr, first, length, rule, part, PARTS,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, FEEDBACK: tl.constexpr, SYMBOLS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Round and pack the bucket of `length` values at v_ptr + first to data_ptr; with SYMBOLS, v holds symbols."""
    for c in tl.static_range(4):
        if BITS & (8 >> c):
            data_ptr = _pack_field(
                v_ptr, memory_ptr, data_ptr, first, length, rule, part, PARTS,
                8 >> c, ROUNDING, BITS, FEEDBACK, SYMBOLS, TILE,
            )  # fmt: skip


@triton.jit
def remember_bucket(
    v_ptr, memory_ptr, first, length, norm, rule, part, PARTS,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """memory = (v + memory) - sent, unless the norm is not finite."""
    if norm < INFINITY:
        step = unit(norm, ROUNDING, BITS)
        for start in range(part * TILE, length, PARTS * TILE):
            i = start + tl.arange(0, TILE)
            mask = i < length
            x = load(v_ptr, memory_ptr, first + i, mask, True)
            sent = value(round_tile(x, i, mask, rule, ROUNDING, BITS, False), step, rule[5], ROUNDING, BITS)
            tl.store(memory_ptr + first + i, x - sent, mask=mask)


@triton.jit
def _unpack_field(data_ptr, i, stride, mask, WIDTH: tl.constexpr):
    """The components of WIDTH bits at places i of a field of `stride` bytes."""
    place = tl.zeros_like(i)
    for k in tl.static_range(1, 8 // WIDTH):
        place += (i >= k * stride).to(i.dtype)
    byte = tl.load(data_ptr + (i - place * stride), mask=mask, other=0).to(tl.uint32)
    return (byte >> (place * WIDTH).to(tl.uint32)) & ((1 << WIDTH) - 1)


@triton.jit
def unpack_tile(data_ptr, i, length, mask, BITS: tl.constexpr):
    """Symbols (uint32) at places i of the packed bucket of `length` symbols at data_ptr."""
    found = tl.zeros_like(i).to(tl.uint32)
    for c in tl.static_range(4):
        if BITS & (8 >> c):
            stride = (length * (8 >> c) + 7) // 8
            found |= _unpack_field(data_ptr, i, stride, mask, 8 >> c) << (BITS & (16 - (16 >> c)))
            data_ptr += stride
    return found
