"""Unpacking, values and their sum over payloads in one pass over memory."""

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.buckets import unpack_tile
from laconic.kernels.gpu.launch import (
    FLAGS,
    MAX_PAYLOADS,
    TUNING,
    bucket_parts,
    is_held,
    levels_on,
    n_rows,
    next_power_of_two,
    on,
    sum_sizes,
    tile_for,
)
from laconic.kernels.gpu.norms import load_all
from laconic.kernels.gpu.rounding import unit, value
from laconic.kernels.gpu.words import add_row, half_scale, is_safe, join_bytes, load_words, row_values, split_bytes
from laconic.kernels.grid import Grid
from laconic.kernels.layout import field_widths, n_buckets, packed_bucket_bytes


@triton.jit
def _sum_row(
    words,
    units,
    levels_ptr,
    row_ptr,
    mask,
    ROW: tl.constexpr,
    ROUNDING: tl.constexpr,
    BITS: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    W: tl.constexpr,
    SAFE: tl.constexpr,
):
    """The values of one row, payload after payload."""
    if ACCUMULATE:
        total = split_bytes(load_all(row_ptr, mask), W)
        total = add_row(total, words[0], units[0], levels_ptr, ROW, ROUNDING, BITS, SAFE)
    else:
        total = row_values(words[0], units[0], levels_ptr, ROW, ROUNDING, BITS, SAFE)
    for p in tl.static_range(1, len(words)):
        total = add_row(total, words[p], units[p], levels_ptr, ROW, ROUNDING, BITS, SAFE)
    tl.store(row_ptr, join_bytes(total[0], total[1], total[2], total[3], W), mask=mask)


@triton.jit
def _held_part(
    data_ptr,
    norm_ptr,
    levels_ptr,
    out_ptr,
    data_row,
    norm_row,
    weight,
    part,
    ROUNDING: tl.constexpr,
    BITS: tl.constexpr,
    PAYLOADS: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    W: tl.constexpr,
):
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
    data_ptr,
    norm_ptr,
    levels_ptr,
    out_ptr,
    length,
    data_row,
    norm_row,
    weight,
    part,
    PARTS,
    ROUNDING: tl.constexpr,
    BITS: tl.constexpr,
    PAYLOADS: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    TILE: tl.constexpr,
):
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
    data_ptr,
    norms_ptr,
    levels_ptr,
    out_ptr,
    n,
    data_row,
    norm_row,
    weight,
    BUCKET: tl.constexpr,
    BUCKET_BYTES: tl.constexpr,
    PARTS: tl.constexpr,
    ROUNDING: tl.constexpr,
    BITS: tl.constexpr,
    PAYLOADS: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    R: tl.constexpr,
    W: tl.constexpr,
    TILE: tl.constexpr,
):
    """out = weight * sum of the payloads' values, or out += the same; PARTS programs a held bucket.

    Bytes a value: P bits / 8 read, 4 written, 4 more read to accumulate. At 4 bits and a bandwidth B the floor is
    (4 + P / 2) n / B seconds: 0.28, 0.37 and 0.50 ms for 2^28 values at 4.3 TB/s and P = 1, 4, 8.

    Operations a value and payload at 2 and 4 bits, and UNIFORM at 8: 5 (`words._halves`, and the sum), 4 where product
    and sum are one (`words.add_row`), and 1 that is a thread's own. An H200 can issue 7 in the time of each of eight
    payloads of 4 bits, and 5 of 2 bits.
    """
    bucket = (tl.program_id(0) // PARTS).to(tl.int64)
    part = tl.program_id(0) % PARTS
    first = bucket * BUCKET
    data_ptr += bucket * BUCKET_BYTES
    norms_ptr += bucket
    out_ptr += first
    if n - first >= BUCKET:
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
    data_ptr,
    norms_ptr,
    levels_ptr,
    out_ptr,
    n,
    data_row,
    norm_row,
    weight,
    BUCKET,
    BUCKET_BYTES,
    PARTS,
    ROUNDING: tl.constexpr,
    BITS: tl.constexpr,
    PAYLOADS: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    TILE: tl.constexpr,
):
    """The same for buckets that no program can hold. The bytes are the same; they are read one by one."""
    bucket = (tl.program_id(0) // PARTS).to(tl.int64)
    first = bucket * BUCKET
    length = tl.minimum(n - first, BUCKET)
    _loose_part(
        data_ptr + bucket * BUCKET_BYTES, norms_ptr + bucket, levels_ptr, out_ptr + first, length,
        data_row, norm_row, weight, tl.program_id(0) % PARTS, PARTS, ROUNDING, BITS, PAYLOADS, ACCUMULATE, TILE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["n"])
def _dequantize_kernel(
    symbols_ptr,
    norms_ptr,
    levels_ptr,
    out_ptr,
    n,
    BUCKET,
    PARTS,
    ROUNDING: tl.constexpr,
    BITS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Values of symbols. Bytes a value: 1 read, 4 written."""
    bucket = (tl.program_id(0) // PARTS).to(tl.int64)
    first = bucket * BUCKET
    length = tl.minimum(n - first, BUCKET)
    step = unit(tl.load(norms_ptr + bucket), ROUNDING, BITS)
    for start in range((tl.program_id(0) % PARTS) * TILE, length, PARTS * TILE):
        i = start + tl.arange(0, TILE)
        found = tl.load(symbols_ptr + first + i, mask=i < length, other=0).to(tl.uint32)
        tl.store(out_ptr + first + i, value(found, step, levels_ptr, ROUNDING, BITS), mask=i < length)


@triton.jit(do_not_specialize=["n"])
def _unpack_kernel(data_ptr, symbols_ptr, n, BUCKET, BUCKET_BYTES, PARTS, BITS: tl.constexpr, TILE: tl.constexpr):
    """Symbols of packed bytes. Bytes a value: bits / 8 read, 1 written."""
    bucket = (tl.program_id(0) // PARTS).to(tl.int64)
    first = bucket * BUCKET
    length = tl.minimum(n - first, BUCKET)
    for start in range((tl.program_id(0) % PARTS) * TILE, length, PARTS * TILE):
        i = start + tl.arange(0, TILE)
        found = unpack_tile(data_ptr + bucket * BUCKET_BYTES, i, length, i < length, BITS)
        tl.store(symbols_ptr + first + i, found.to(tl.uint8), mask=i < length)


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
    launch = _launch_held if is_held(bucket_size, grid.bits, data) else _launch_loose
    at_once = MAX_PAYLOADS if len(field_widths(grid.bits)) == 1 else MAX_PAYLOADS // 2
    for p in range(0, len(data), at_once):
        rows = slice(p, p + at_once)
        launch(data[rows], norms[rows], grid, bucket_size, out, weight, accumulate or p > 0)


def _launch_held(
    data: torch.Tensor,
    norms: torch.Tensor,
    grid: Grid,
    bucket_size: int,
    out: torch.Tensor,
    weight: float,
    accumulate: bool,
) -> None:
    rows = n_rows(grid.bits)
    row_words = bucket_size // (4 * rows)
    values_a_thread, most_warps = sum_sizes(len(data))
    a_thread = max(1, values_a_thread // (4 * rows))
    words = min(next_power_of_two(row_words), 32 * most_warps * a_thread)
    parts = -(-row_words // words)
    warps = min(most_warps, max(1, words // 32))
    with on(out.device):
        _unpack_dequantize_kernel[(n_buckets(out.numel(), bucket_size) * parts,)](
            data,
            norms,
            levels_on(grid, out.device),
            out,
            out.numel(),
            data.stride(0),
            norms.stride(0),
            float(weight),
            BUCKET=bucket_size,
            BUCKET_BYTES=packed_bucket_bytes(bucket_size, grid.bits),
            PARTS=parts,
            ROUNDING=int(grid.rounding),
            BITS=grid.bits,
            PAYLOADS=len(data),
            ACCUMULATE=accumulate,
            R=rows,
            W=words,
            TILE=tile_for(warps, bucket_size),
            num_warps=warps,
            num_stages=TUNING["sum_stages"],
            **FLAGS,
        )


def _launch_loose(
    data: torch.Tensor,
    norms: torch.Tensor,
    grid: Grid,
    bucket_size: int,
    out: torch.Tensor,
    weight: float,
    accumulate: bool,
) -> None:
    n, tile = out.numel(), TUNING["tile"]
    count, parts = bucket_parts(n, bucket_size, tile)
    with on(out.device):
        _loose_kernel[(count * parts,)](
            data,
            norms,
            levels_on(grid, out.device),
            out,
            n,
            data.stride(0),
            norms.stride(0),
            float(weight),
            bucket_size,
            packed_bucket_bytes(bucket_size, grid.bits),
            parts,
            ROUNDING=int(grid.rounding),
            BITS=grid.bits,
            PAYLOADS=len(data),
            ACCUMULATE=accumulate,
            TILE=tile,
            num_warps=TUNING["tile_warps"],
            **FLAGS,
        )


def dequantize(symbols: torch.Tensor, norms: torch.Tensor, grid: Grid, bucket_size: int) -> torch.Tensor:
    """Symbols (n,) to float32 values (n,): (+ or -) level * norm."""
    out = torch.empty(symbols.numel(), dtype=torch.float32, device=symbols.device)
    if out.numel():
        n, tile = out.numel(), TUNING["tile"]
        count, parts = bucket_parts(n, bucket_size, tile)
        rule = {"ROUNDING": int(grid.rounding), "BITS": grid.bits, "TILE": tile, "num_warps": TUNING["tile_warps"]}
        levels = levels_on(grid, out.device)
        with on(out.device):
            _dequantize_kernel[(count * parts,)](
                symbols.contiguous(), norms.contiguous(), levels, out, n, bucket_size, parts, **rule, **FLAGS
            )
    return out


def unpack(data: torch.Tensor, n: int, bits: int, bucket_size: int) -> torch.Tensor:
    """The inverse of `pack`; `data` has `layout.packed_bytes(n, bits, bucket_size)` bytes."""
    out = torch.empty(n, dtype=torch.uint8, device=data.device)
    if n:
        tile = TUNING["tile"]
        count, parts = bucket_parts(n, bucket_size, tile)
        bucket_bytes = packed_bucket_bytes(bucket_size, bits)
        with on(out.device):
            _unpack_kernel[(count * parts,)](
                data.contiguous(), out, n, bucket_size, bucket_bytes, parts,
                BITS=bits, TILE=tile, num_warps=TUNING["tile_warps"],
            )  # fmt: skip
    return out
