"""One step per kernel, for buckets of any length: pack, update the memory, quantize, dequantize, unpack, scale.

Several programs may share a bucket, a tile each in turn: `buckets.py`.
"""

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.buckets import own_bucket, pack_bucket, remember_bucket, round_tile, rule_of, unpack_tile
from laconic.kernels.gpu.launch import FLAGS, TUNING, levels_on, on, scheme, signed, tiles
from laconic.kernels.gpu.norms import load
from laconic.kernels.gpu.rounding import unit, value
from laconic.kernels.grid import Grid, Rounding
from laconic.kernels.layout import packed_bucket_bytes, packed_bytes


@triton.jit(do_not_specialize=["n", "key"])
def _pack_kernel(
    v_ptr, memory_ptr, data_ptr, norms_ptr, levels_ptr, n, key, BUCKET, BUCKET_BYTES, PARTS,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, FEEDBACK: tl.constexpr, SYMBOLS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Round and pack buckets that no program can hold, given their norms; with SYMBOLS, pack only.

    Bytes per value: 4 read (again, after the norms) and bits / 8 written. A width of several components rounds each
    value once per component.
    """
    bucket, first, length, part = own_bucket(n, BUCKET, PARTS)
    norm = 1.0 if SYMBOLS else tl.load(norms_ptr + bucket)
    rule = rule_of(norm, key, bucket, levels_ptr)
    pack_bucket(
        v_ptr, memory_ptr, data_ptr + bucket * BUCKET_BYTES, first, length, rule, part, PARTS,
        ROUNDING, BITS, FEEDBACK, SYMBOLS, TILE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["n", "key"])
def _remember_kernel(
    v_ptr, memory_ptr, norms_ptr, levels_ptr, n, key, BUCKET, PARTS,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """memory = (v + memory) - sent for buckets no program can hold, after `_pack_kernel`. Bytes: 8 read, 4 written."""
    bucket, first, length, part = own_bucket(n, BUCKET, PARTS)
    norm = tl.load(norms_ptr + bucket)
    rule = rule_of(norm, key, bucket, levels_ptr)
    remember_bucket(v_ptr, memory_ptr, first, length, norm, rule, part, PARTS, ROUNDING, BITS, TILE)


@triton.jit(do_not_specialize=["n", "key"])
def _quantize_kernel(
    v_ptr, norms_ptr, symbols_ptr, levels_ptr, n, key, BUCKET, PARTS,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Symbols, a byte each, given any norms. Bytes per value: 4 read, 1 written."""
    bucket, first, length, part = own_bucket(n, BUCKET, PARTS)
    rule = rule_of(tl.load(norms_ptr + bucket), key, bucket, levels_ptr)
    for start in range(part * TILE, length, PARTS * TILE):
        i = start + tl.arange(0, TILE)
        mask = i < length
        found = round_tile(load(v_ptr, None, first + i, mask, False), i, mask, rule, ROUNDING, BITS, True)
        tl.store(symbols_ptr + first + i, found.to(tl.uint8), mask=mask)


@triton.jit(do_not_specialize=["n"])
def _dequantize_kernel(
    symbols_ptr, norms_ptr, levels_ptr, out_ptr, n, BUCKET, PARTS,
    ROUNDING: tl.constexpr, BITS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Values of symbols. Bytes per value: 1 read, 4 written."""
    bucket, first, length, part = own_bucket(n, BUCKET, PARTS)
    step = unit(tl.load(norms_ptr + bucket), ROUNDING, BITS)
    for start in range(part * TILE, length, PARTS * TILE):
        i = start + tl.arange(0, TILE)
        found = tl.load(symbols_ptr + first + i, mask=i < length, other=0).to(tl.uint32)
        tl.store(out_ptr + first + i, value(found, step, levels_ptr, ROUNDING, BITS), mask=i < length)


@triton.jit(do_not_specialize=["n"])
def _unpack_kernel(data_ptr, symbols_ptr, n, BUCKET, BUCKET_BYTES, PARTS, BITS: tl.constexpr, TILE: tl.constexpr):
    """Symbols of packed bytes. Bytes per value: bits / 8 read, 1 written."""
    bucket, first, length, part = own_bucket(n, BUCKET, PARTS)
    for start in range(part * TILE, length, PARTS * TILE):
        i = start + tl.arange(0, TILE)
        found = unpack_tile(data_ptr + bucket * BUCKET_BYTES, i, length, i < length, BITS)
        tl.store(symbols_ptr + first + i, found.to(tl.uint8), mask=i < length)


def pack_into(
    v: torch.Tensor,
    memory: torch.Tensor | None,
    norms: torch.Tensor | None,
    grid: Grid,
    bucket_size: int,
    key: int,
    data_out: torch.Tensor,
) -> None:
    """Pack values with these norms, or symbols where `norms` is None; then update the memory, if there is one."""
    n, levels = v.numel(), levels_on(grid, v.device)
    n_programs, sizes = tiles(n, bucket_size)
    rule, bucket_bytes = {**scheme(grid), **sizes}, packed_bucket_bytes(bucket_size, grid.bits)
    with on(v.device):
        _pack_kernel[(n_programs,)](
            v, memory, data_out, norms, levels, n, signed(key), BUCKET_BYTES=bucket_bytes,
            FEEDBACK=memory is not None, SYMBOLS=norms is None, **rule,
        )  # fmt: skip
        if memory is not None:
            _remember_kernel[(n_programs,)](v, memory, norms, levels, n, signed(key), **rule)


def quantize(v: torch.Tensor, norms: torch.Tensor, grid: Grid, bucket_size: int, key: int) -> torch.Tensor:
    """v (n,) and norms (n_buckets,) to symbols (n,) uint8."""
    n, out = v.numel(), torch.empty(v.numel(), dtype=torch.uint8, device=v.device)
    if n:
        n_programs, sizes = tiles(n, bucket_size)
        levels = levels_on(grid, v.device)
        with on(v.device):
            _quantize_kernel[(n_programs,)](
                v.contiguous(), norms.contiguous(), out, levels, n, signed(key), **scheme(grid), **sizes
            )
    return out


def dequantize(symbols: torch.Tensor, norms: torch.Tensor, grid: Grid, bucket_size: int) -> torch.Tensor:
    """Symbols (n,) to float32 values (n,): (+ or -) level * norm."""
    n, out = symbols.numel(), torch.empty(symbols.numel(), dtype=torch.float32, device=symbols.device)
    if n:
        n_programs, sizes = tiles(n, bucket_size)
        levels = levels_on(grid, out.device)
        with on(out.device):
            _dequantize_kernel[(n_programs,)](
                symbols.contiguous(), norms.contiguous(), levels, out, n, **scheme(grid), **sizes
            )
    return out


def pack(symbols: torch.Tensor, bits: int, bucket_size: int) -> torch.Tensor:
    """Symbols (n,) uint8 to packed bytes (layout.packed_bytes,) uint8."""
    out = torch.empty(packed_bytes(symbols.numel(), bits, bucket_size), dtype=torch.uint8, device=symbols.device)
    if symbols.numel():
        pack_into(symbols.contiguous(), None, None, Grid(Rounding.SIGN, bits, ()), bucket_size, 0, out)
    return out


def unpack(data: torch.Tensor, n: int, bits: int, bucket_size: int) -> torch.Tensor:
    """The inverse of `pack`; `data` has `layout.packed_bytes(n, bits, bucket_size)` bytes."""
    out = torch.empty(n, dtype=torch.uint8, device=data.device)
    if n:
        n_programs, sizes = tiles(n, bucket_size)
        bucket_bytes = packed_bucket_bytes(bucket_size, bits)
        with on(out.device):
            _unpack_kernel[(n_programs,)](data.contiguous(), out, n, BUCKET_BYTES=bucket_bytes, BITS=bits, **sizes)
    return out


@triton.jit(do_not_specialize=["n", "weight"])
def _scale_kernel(values_ptr, out_ptr, n, weight, ACCUMULATE: tl.constexpr, TILE: tl.constexpr):
    """Bytes per value: 4 or 2 read, 4 written, 4 more read to accumulate; 2 operations."""
    i = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    x = tl.load(values_ptr + i, mask=i < n, other=0.0).to(tl.float32) * weight
    if ACCUMULATE:
        x += tl.load(out_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, x, mask=i < n)


def scale(values: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool) -> None:
    """out = weight * values, or out += weight * values, each operation rounded to float32."""
    n, tile = out.numel(), TUNING["tile"]
    if n:
        with on(out.device):
            _scale_kernel[(-(-n // tile),)](
                values.contiguous(), out, n, float(weight),
                ACCUMULATE=accumulate, TILE=tile, num_warps=TUNING["tile_warps"], **FLAGS,
            )  # fmt: skip
