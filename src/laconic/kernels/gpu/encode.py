"""Norm, rounding and packing in one pass over memory."""

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.buckets import pack_bucket, remember_bucket, rule_of
from laconic.kernels.gpu.launch import (
    FLAGS,
    TUNING,
    cells_on,
    is_held,
    levels_on,
    n_rows,
    next_power_of_two,
    on,
    power_of_two,
    scheme,
    signed,
    tile_for,
)
from laconic.kernels.gpu.norms import add, finish, gather, load, norms_into, sum_bucket, term
from laconic.kernels.gpu.ptx import lane_entry
from laconic.kernels.gpu.rounding import CELLS, INFINITY, LOADED_CELLS, unit, value
from laconic.kernels.gpu.steps import pack_into
from laconic.kernels.gpu.words import join_bytes, split_bytes, store_words, symbols_of
from laconic.kernels.grid import Grid, Norm, Rounding
from laconic.kernels.layout import n_buckets, packed_bucket_bytes


@triton.jit
def _held_bucket(
    v_ptr, memory_ptr, data_ptr, norm_ptr, levels_ptr, cells_ptr, shift, base, key, bucket,
    NORM: tl.constexpr, ROUNDING: tl.constexpr, BITS: tl.constexpr, FEEDBACK: tl.constexpr,
    R: tl.constexpr, S: tl.constexpr, W: tl.constexpr
):  # fmt: skip
    """One whole bucket in registers, as R rows of S values; pointers are to the bucket's own values, bytes and norm."""
    j = tl.arange(0, 4 * W)
    mask = None if S == 4 * W else j < S
    word_mask = None if S == 4 * W else tl.arange(0, W) < S // 4
    x = ()
    for r in tl.static_range(R):
        x += split_bytes(load(v_ptr, memory_ptr, r * S + j, mask, FEEDBACK), W)
    total = term(x[0], NORM)
    for k in tl.static_range(1, 4 * R):
        total = add(total, x[k], NORM)
    norm = finish(gather(total, NORM), tl.full((), R * S, tl.int32), NORM)
    tl.store(norm_ptr, norm)

    if ROUNDING == CELLS:
        tables = ()
        for k in tl.static_range(4):
            tables += (lane_entry(cells_ptr + 32 * k, x[0], W),)
        tables += (shift, base)
        rule = rule_of(norm, key, bucket, tables)
    elif ROUNDING == LOADED_CELLS:
        rule = rule_of(norm, key, bucket, (cells_ptr, shift, base))
    else:
        rule = rule_of(norm, key, bucket, levels_ptr)
    store_words(data_ptr, x, rule, word_mask, S, W, ROUNDING, BITS)
    if FEEDBACK:  # noqa: SIM102 (one is known to the compiler, the other to the program)
        if norm < INFINITY:
            step = unit(norm, ROUNDING, BITS)
            symbols = symbols_of(x, rule, S, W, ROUNDING, BITS)
            unsent = ()
            for k in tl.static_range(4 * R):
                unsent += (x[k] - value(symbols[k], step, levels_ptr, ROUNDING, BITS),)
            for r in tl.static_range(R):
                row = join_bytes(unsent[4 * r], unsent[4 * r + 1], unsent[4 * r + 2], unsent[4 * r + 3], W)
                tl.store(memory_ptr + r * S + j, row, mask=mask)


@triton.jit
def _loose_bucket(
    v_ptr, memory_ptr, data_ptr, norm_ptr, levels_ptr, key, bucket, length,
    NORM: tl.constexpr, ROUNDING: tl.constexpr, BITS: tl.constexpr, FEEDBACK: tl.constexpr,
    TILE: tl.constexpr
):  # fmt: skip
    """One bucket of any length, in two passes over it, and a third for the memory once all have read it."""
    total = sum_bucket(v_ptr, memory_ptr, 0, length, 0, 1, NORM, FEEDBACK, TILE)
    norm = finish(total, length, NORM)
    tl.store(norm_ptr, norm)
    rule = rule_of(norm, key, bucket, levels_ptr)
    pack_bucket(v_ptr, memory_ptr, data_ptr, 0, length, rule, 0, 1, ROUNDING, BITS, FEEDBACK, False, TILE)
    if FEEDBACK:
        tl.debug_barrier()
        remember_bucket(v_ptr, memory_ptr, 0, length, norm, rule, 0, 1, ROUNDING, BITS, TILE)


@triton.jit(do_not_specialize=["n", "key", "shift", "base"], do_not_specialize_on_alignment=["data_ptr", "norms_ptr"])
def _quantize_pack_kernel(
    v_ptr, memory_ptr, data_ptr, norms_ptr, levels_ptr, cells_ptr, shift, base, n, key,
    BUCKET: tl.constexpr, BUCKET_BYTES: tl.constexpr, NORM: tl.constexpr, HELD_ROUNDING: tl.constexpr,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, FEEDBACK: tl.constexpr,
    R: tl.constexpr, W: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """One program per bucket, which it reads once: norm, symbols, bytes. The last bucket, often short, comes first.

    Bytes per value: 4 (float32) or 2 (bfloat16, float16) read, bits / 8 written, 4 / BUCKET of norm; with feedback 4
    more read and 4 written. At 4 bits, float32 and a bandwidth B the floor is 4.5 n / B seconds: 0.33 ms for 2^28
    values at 3.7 TB/s.

    Operations per value, POWER, as compiled for an H200: load 1/4; norm 2 (conversion to float64, multiply-add); random
    bits 9; |v| / norm 2, the second of which clamps; smallest level and sum 2; carry, which is also the shift into the
    word, 3; sign 1; some 4 more of overhead per thread, at 32 values per thread. In all 24 of the 33 that the GPU can
    issue in that time. UNIFORM has a clamp and a conversion to integer in the place of smallest level and sum.
    """
    bucket = tl.num_programs(0) - 1 - tl.program_id(0)
    first = bucket.to(tl.int64) * BUCKET
    v_ptr += first
    memory_ptr += first
    data_ptr += bucket.to(tl.int64) * BUCKET_BYTES
    norms_ptr += bucket
    if n - first >= BUCKET:
        _held_bucket(
            v_ptr, memory_ptr, data_ptr, norms_ptr, levels_ptr, cells_ptr, shift, base, key, bucket,
            NORM, HELD_ROUNDING, BITS, FEEDBACK, R, BUCKET // R, W,
        )  # fmt: skip
    else:
        length = (n - first).to(tl.int32)
        _loose_bucket(
            v_ptr, memory_ptr, data_ptr, norms_ptr, levels_ptr, key, bucket, length,
            NORM, ROUNDING, BITS, FEEDBACK, TILE,
        )  # fmt: skip


def quantize_pack(
    v: torch.Tensor,
    norm: Norm,
    grid: Grid,
    bucket_size: int,
    key: int,
    norms_out: torch.Tensor,
    data_out: torch.Tensor,
    *,
    memory: torch.Tensor | None = None,
) -> None:
    """norms_out (n_buckets,) = norms(v); data_out (packed_bytes,) = pack(quantize(v)), in one pass over memory.

    memory  (n,) float32: added to v first, then set to the part of the sum that was not sent; buckets with a non-finite
            norm leave their memory as it was
    """
    if v.numel() == 0:
        return
    v = v.contiguous()
    if not is_held(bucket_size, grid.bits, data_out):
        norms_into(v, memory, bucket_size, norm, norms_out)
        pack_into(v, memory, norms_out, grid, bucket_size, key, data_out)
        return
    n_programs, sizes = _held_sizes(v.numel(), bucket_size, grid.bits)
    bucket_bytes, levels = packed_bucket_bytes(bucket_size, grid.bits), levels_on(grid, v.device)
    held, cells = _cells(grid, v, sizes["W"])
    with on(v.device):
        _quantize_pack_kernel[(n_programs,)](
            v, levels if memory is None else memory, data_out, norms_out, levels, *cells, v.numel(), signed(key),
            BUCKET_BYTES=bucket_bytes, NORM=int(norm), FEEDBACK=memory is not None, HELD_ROUNDING=held,
            **scheme(grid), **sizes,
        )  # fmt: skip


def _cells(grid: Grid, v: torch.Tensor, words: int) -> tuple[int, tuple[torch.Tensor, int, int]]:
    """How held buckets are rounded, and the tables of cells, if any."""
    held = TUNING["cells_held"] if words % 32 == 0 else 0
    for rounding, most in ((CELLS, held), (LOADED_CELLS, TUNING["cells"])) if grid.rounding is Rounding.TABLE else ():
        if found := cells_on(grid, v.device, most):
            return rounding.value, found
    return int(grid.rounding), (levels_on(grid, v.device), 0, 0)


def _held_sizes(n: int, bucket_size: int, bits: int) -> tuple[int, dict[str, int]]:
    """Number of programs that hold a bucket each, and the sizes to launch them with."""
    rows = n_rows(bits)
    words = next_power_of_two(bucket_size // (4 * rows))
    threads = min(4 * rows * words // TUNING["pack_values_a_thread"], words)
    warps = power_of_two(threads // 32, TUNING["pack_max_warps"])
    shape = {"BUCKET": bucket_size, "R": rows, "W": words, "TILE": tile_for(warps, bucket_size)}
    options = {"num_warps": warps, "num_stages": TUNING["pack_stages"], **FLAGS}
    return n_buckets(n, bucket_size), {**shape, **options}
