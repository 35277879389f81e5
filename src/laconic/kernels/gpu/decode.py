"""Unpacking, values and their sum over payloads in one pass over memory."""

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.buckets import own_bucket, unpack_tile
from laconic.kernels.gpu.launch import (
    FLAGS,
    MAX_PAYLOADS,
    TUNING,
    is_held,
    levels_on,
    n_rows,
    next_power_of_two,
    on,
    power_of_two,
    scheme,
    sum_sizes,
    tile_for,
    tiles,
)
from laconic.kernels.gpu.norms import load_all
from laconic.kernels.gpu.ptx import lookup
from laconic.kernels.gpu.rounding import unit, value
from laconic.kernels.gpu.words import (
    add_row,
    add_table_row,
    half_scale,
    is_safe,
    join_bytes,
    load_words,
    minus_zero,
    row_values,
    split_bytes,
    tables,
)
from laconic.kernels.grid import Grid, Rounding
from laconic.kernels.layout import n_buckets, packed_bucket_bytes

TABLE_BITS = {Rounding.TABLE: 7, Rounding.UNIFORM: 6, Rounding.POWER: 3, Rounding.SIGN: 0}
"""Widest symbols whose values come from tables in registers."""


@triton.jit
def _sum_row(
    words, units, levels_ptr, row_ptr, mask, ROW: tl.constexpr,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, ACCUMULATE: tl.constexpr, W: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """Sum the values of one row, payload after payload."""
    if ACCUMULATE:
        total = split_bytes(load_all(row_ptr, mask), W)
        total = add_row(total, words[0], units[0], levels_ptr, ROW, ROUNDING, BITS, SAFE)
    else:
        total = row_values(words[0], units[0], levels_ptr, ROW, ROUNDING, BITS, SAFE)
    for p in tl.static_range(1, len(words)):
        total = add_row(total, words[p], units[p], levels_ptr, ROW, ROUNDING, BITS, SAFE)
    tl.store(row_ptr, join_bytes(total[0], total[1], total[2], total[3], W), mask=mask)


@triton.jit
def _table_part(
    data_ptr, norm_ptr, levels_ptr, out_ptr, data_row, norm_row, weight, part,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, PAYLOADS: tl.constexpr, ACCUMULATE: tl.constexpr,
    R: tl.constexpr, S: tl.constexpr, W: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """CHUNKS times W words of each row of a held bucket, one per thread, by a warp's tables (`words.tables`).

    Operations per value and payload, at 2 and 4 bits: 1 shift, 1 shuffle, 1 sum.
    """
    lane = tl.arange(0, W) % 32  # one word per thread, so that all rows (W,) have one layout
    own = tl.minimum(lane % MAX_PAYLOADS, PAYLOADS - 1)  # a lane divides for one payload, not for all
    units = unit(tl.load(norm_ptr + own * norm_row.to(tl.int64)) * weight, ROUNDING, BITS)
    held = ()
    for p in tl.static_range(PAYLOADS):
        payload = tl.full((W,), p, tl.uint32)
        held += (tables(lookup(units, payload, MAX_PAYLOADS, 1), lane, levels_ptr, ROUNDING, BITS),)
    for c in tl.static_range(CHUNKS):
        place = (part * CHUNKS + c) * W + tl.arange(0, W)
        mask = None if S % (4 * W * CHUNKS) == 0 else place < S // 4
        i = (part * CHUNKS + c) * (4 * W) + tl.arange(0, 4 * W)
        value_mask = None if S % (4 * W * CHUNKS) == 0 else i < S
        words = ()
        for p in tl.static_range(PAYLOADS):
            words += (load_words(data_ptr + p * data_row.to(tl.int64), place, mask, S, BITS),)
        for r in tl.static_range(R):
            row_ptr = out_ptr + (r * S + i)
            total = split_bytes(load_all(row_ptr, value_mask), W) if ACCUMULATE else (minus_zero(W),) * 4
            for p in tl.static_range(PAYLOADS):
                total = add_table_row(total, words[p], held[p], r, BITS)
            tl.store(row_ptr, join_bytes(total[0], total[1], total[2], total[3], W), mask=value_mask)


@triton.jit
def _held_part(
    data_ptr, norm_ptr, levels_ptr, out_ptr, data_row, norm_row, weight, part,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, PAYLOADS: tl.constexpr, ACCUMULATE: tl.constexpr,
    R: tl.constexpr, S: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """W words of each row of a held bucket; pointers are to the bucket's own bytes, norm and values."""
    place = part * W + tl.arange(0, W)
    mask = None if S % (4 * W) == 0 else place < S // 4
    i = part * (4 * W) + tl.arange(0, 4 * W)
    value_mask = None if S % (4 * W) == 0 else i < S
    words = ()
    for p in tl.static_range(PAYLOADS):
        words += (load_words(data_ptr + p * data_row.to(tl.int64), place, mask, S, BITS),)
    units = ()
    scaled = ()
    safe = True
    for p in tl.static_range(PAYLOADS):
        units += (unit(tl.load(norm_ptr + p * norm_row.to(tl.int64)) * weight, ROUNDING, BITS),)
        scaled += (units[p] * half_scale(ROUNDING, BITS),)
        safe = safe & is_safe(scaled[p], ROUNDING)
    for r in tl.static_range(R):
        row_ptr = out_ptr + (r * S + i)
        if safe:
            _sum_row(words, scaled, levels_ptr, row_ptr, value_mask, r, ROUNDING, BITS, ACCUMULATE, W, True)
        else:
            _sum_row(words, units, levels_ptr, row_ptr, value_mask, r, ROUNDING, BITS, ACCUMULATE, W, False)


@triton.jit
def _loose_part(
    data_ptr, norm_ptr, levels_ptr, out_ptr, length, data_row, norm_row, weight, part, PARTS,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, PAYLOADS: tl.constexpr, ACCUMULATE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Every PARTS-th tile of a bucket of any length."""
    for start in range(part * TILE, length, PARTS * TILE):
        i = start + tl.arange(0, TILE)
        mask = i < length
        total = tl.zeros((TILE,), tl.float32)
        if ACCUMULATE:
            total = tl.load(out_ptr + i, mask=mask, other=0.0)
        for p in range(PAYLOADS):
            step = unit(tl.load(norm_ptr + p * norm_row.to(tl.int64)) * weight, ROUNDING, BITS)
            found = unpack_tile(data_ptr + p * data_row.to(tl.int64), i, length, mask, BITS)
            x = value(found, step, levels_ptr, ROUNDING, BITS)
            total = total + x if ACCUMULATE else tl.where(p > 0, total + x, x)
        tl.store(out_ptr + i, total, mask=mask)


@triton.jit(
    do_not_specialize=["n", "data_row", "norm_row", "weight"], do_not_specialize_on_alignment=["data_ptr", "norms_ptr"]
)
def _unpack_dequantize_kernel(
    data_ptr, norms_ptr, levels_ptr, out_ptr, n, data_row, norm_row, weight,
    BUCKET: tl.constexpr, BUCKET_BYTES: tl.constexpr, PARTS: tl.constexpr,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, PAYLOADS: tl.constexpr, ACCUMULATE: tl.constexpr,
    R: tl.constexpr, W: tl.constexpr, CHUNKS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """out = weight * sum of the payloads' values, or out += the same; PARTS programs per held bucket.

    Bytes per value: P bits / 8 read, 4 written, 4 more read to accumulate. At 4 bits and a bandwidth B the floor is
    (4 + P / 2) n / B seconds: 0.33, 0.44 and 0.58 ms for 2^28 values at 3.7 TB/s and P = 1, 4, 8.

    Operations per value and payload at 2 and 4 bits, and UNIFORM at 8: 5 (`words._halves`, and the sum), 4 where
    product and sum are one (`words.add_row`), and 1 of overhead per thread. An H200 can issue 7 in the time of each of
    eight payloads of 4 bits, and 5 of 2 bits.
    """
    bucket = (tl.program_id(0) // PARTS).to(tl.int64)
    part = tl.program_id(0) % PARTS
    first = bucket * BUCKET
    data_ptr += bucket * BUCKET_BYTES
    norms_ptr += bucket
    out_ptr += first
    if n - first >= BUCKET:
        if CHUNKS:
            _table_part(
                data_ptr, norms_ptr, levels_ptr, out_ptr, data_row, norm_row, weight, part,
                ROUNDING, BITS, PAYLOADS, ACCUMULATE, R, BUCKET // R, W, CHUNKS,
            )  # fmt: skip
        else:
            _held_part(
                data_ptr, norms_ptr, levels_ptr, out_ptr, data_row, norm_row, weight, part,
                ROUNDING, BITS, PAYLOADS, ACCUMULATE, R, BUCKET // R, W,
            )  # fmt: skip
    else:
        length = (n - first).to(tl.int32)
        _loose_part(
            data_ptr, norms_ptr, levels_ptr, out_ptr, length, data_row, norm_row, weight, part, PARTS,
            ROUNDING, BITS, PAYLOADS, ACCUMULATE, TILE,
        )  # fmt: skip


@triton.jit(do_not_specialize=["n", "data_row", "norm_row", "weight"])
def _loose_kernel(
    data_ptr, norms_ptr, levels_ptr, out_ptr, n, data_row, norm_row, weight, BUCKET, BUCKET_BYTES, PARTS,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, PAYLOADS: tl.constexpr, ACCUMULATE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """`_unpack_dequantize_kernel` for buckets that no program can hold. As many bytes, but read one by one."""
    bucket, first, length, part = own_bucket(n, BUCKET, PARTS)
    _loose_part(
        data_ptr + bucket * BUCKET_BYTES, norms_ptr + bucket, levels_ptr, out_ptr + first, length,
        data_row, norm_row, weight, part, PARTS, ROUNDING, BITS, PAYLOADS, ACCUMULATE, TILE,
    )  # fmt: skip


def unpack_dequantize(
    data: torch.Tensor,
    norms: torch.Tensor,
    grid: Grid,
    bucket_size: int,
    out: torch.Tensor,
    weight: float,
    accumulate: bool,
) -> None:
    """out (n,) float32 = weight * sum of values, or out += the same; data (P, n_bytes), norms (P, n_buckets)."""
    if out.numel() == 0:
        return
    held = is_held(bucket_size, grid.bits, data)
    kernel, n = _unpack_dequantize_kernel if held else _loose_kernel, out.numel()
    bucket_bytes, levels = packed_bucket_bytes(bucket_size, grid.bits), levels_on(grid, out.device)
    for p in range(0, len(data), MAX_PAYLOADS.value):
        rows, scales = data[p : p + MAX_PAYLOADS.value], norms[p : p + MAX_PAYLOADS.value]
        n_programs, sizes = _held_sizes(n, bucket_size, grid, len(rows)) if held else tiles(n, bucket_size)
        with on(out.device):
            kernel[(n_programs,)](
                rows, scales, levels, out, n, rows.stride(0), scales.stride(0), float(weight),
                BUCKET_BYTES=bucket_bytes, PAYLOADS=len(rows), ACCUMULATE=accumulate or p > 0, **scheme(grid), **sizes,
            )  # fmt: skip


def _held_sizes(n: int, bucket_size: int, grid: Grid, n_payloads: int) -> tuple[int, dict[str, int]]:
    """Number of programs that add up so many payloads in held buckets, and the sizes to launch them with.

    CHUNKS is 0 where no tables are used: for signs, for rows of less than a word per lane, where tables would be large
    (a level's value follows from its index, or lies in memory), and for few payloads of a width that divides 8.
    """
    rows = n_rows(grid.bits)
    row_words = bucket_size // (4 * rows)
    loaded = grid.rounding is Rounding.TABLE and grid.bits > TABLE_BITS[Rounding.TABLE]
    values_a_thread, most_warps = sum_sizes(n_payloads, loaded)
    a_thread = max(1, values_a_thread // (4 * rows))
    alone = 8 % grid.bits == 0 and grid.rounding is not Rounding.TABLE and n_payloads <= TUNING["sum_table_from"]
    chunks = a_thread if grid.bits <= TABLE_BITS[grid.rounding] and row_words >= 32 and not alone else 0
    if chunks:
        warps = power_of_two(row_words // 32, most_warps)
        words, chunks = 32 * warps, min(chunks, -(-row_words // (32 * warps)))
    else:
        words = min(next_power_of_two(row_words), 32 * most_warps * a_thread)
        warps = min(most_warps, max(1, words // 32))
    parts = -(-row_words // (words * max(1, chunks)))
    shape = {"BUCKET": bucket_size, "PARTS": parts, "R": rows, "W": words, "CHUNKS": chunks}
    shape["TILE"] = tile_for(warps, bucket_size)
    options = {"num_warps": warps, "num_stages": TUNING["sum_stages"], **FLAGS}
    return n_buckets(n, bucket_size) * parts, {**shape, **options}
