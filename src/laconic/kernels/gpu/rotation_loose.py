"""Rotation of buckets of any length, one program per bucket, and helpers of all rotations; `rotation` has fast kernels.

The stages of the transform exchange values through shared memory, the rounds through scratch memory, since they rotate
the first and the last p of m values. For the short last bucket, and for sizes that are not a power of two.
"""

from functools import cache

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.launch import FLAGS, on, signed
from laconic.kernels.gpu.norms import L2, add, finish, term
from laconic.kernels.gpu.rounding import bucket_key, hash32, reciprocal
from laconic.kernels.reference.rotation import LEVELS, order, root, thresholds


@triton.jit
def load_key(ptr):
    """The 64-bit key whose halves lie at ptr, the lower one first."""
    low, high = tl.load(ptr).to(tl.uint32, bitcast=True), tl.load(ptr + 1).to(tl.uint32, bitcast=True)
    return low.to(tl.uint64) | (high.to(tl.uint64) << 32)


@triton.jit
def nearest(z, MARKS: tl.constexpr, SIZES: tl.constexpr):
    """The level nearest to z ≥ 0, whose last three bits are its index."""
    level = tl.full(z.shape, SIZES[0], tl.float32)
    for i in tl.static_range(len(MARKS)):
        level = tl.where(z >= MARKS[i], SIZES[i + 1], level)
    return level


@triton.jit
def symbol_of(y, level, BITS: tl.constexpr):
    """Sign bit of a rotated value, then the index of its level."""
    number = level.to(tl.uint32, bitcast=True) & ((1 << (BITS - 1)) - 1)
    return tl.where(y < 0.0, number | (1 << (BITS - 1)), number)


@triton.jit
def _loose_signs(x, k0, k1, TURN: tl.constexpr, P: tl.constexpr):
    i = tl.arange(0, P)
    bits = hash32(((2 * (i // 512) + TURN) * 16 + i % 16).to(tl.uint32), k0, k1)
    sign = (bits << (i // 16 % 32).to(tl.uint32)) & 0x80000000
    return (x.to(tl.uint32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)


@triton.jit
def _loose_hadamard(x, P: tl.constexpr, LOG_P: tl.constexpr):
    for i in tl.static_range(LOG_P):
        pairs = tl.permute(tl.reshape(x, (P >> (i + 1), 2, 1 << i)), (0, 2, 1))
        a, b = tl.split(pairs)
        x = tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 2, 1)), (P,))
    return x


@triton.jit(do_not_specialize=["first", "m", "key"])
def _loose_quantize_kernel(
    v_ptr, symbols_ptr, scales_ptr, scratch_ptr, first, m, key, factor, root_m,
    MARKS: tl.constexpr, SIZES: tl.constexpr, BITS: tl.constexpr, P: tl.constexpr, LOG_P: tl.constexpr,
):  # fmt: skip
    """Symbols and scale of one bucket of P ≤ m < 2 P values; bucket `first` is the first of the launch."""
    start = tl.program_id(0).to(tl.int64) * m
    i = tl.arange(0, P)
    x = tl.load(v_ptr + start + i).to(tl.float32)
    rest = tl.load(v_ptr + start + P + i, mask=P + i < m, other=0.0).to(tl.float32)
    norm = finish(tl.sum(add(term(x, L2), rest, L2), 0), m, L2)
    keep, guard, inverse = reciprocal(norm)
    k0, k1 = bucket_key(key, first + tl.program_id(0))
    scratch_ptr += start
    y = _loose_hadamard(_loose_signs(x * guard * inverse, k0, k1, 0, P), P, LOG_P) * factor
    tl.store(scratch_ptr + i, y)
    tl.store(scratch_ptr + P + i, rest * guard * inverse, mask=P + i < m)
    tl.debug_barrier()
    y = tl.load(scratch_ptr + m - P + i)
    tl.debug_barrier()
    y = _loose_hadamard(_loose_signs(y, k0, k1, 1, P), P, LOG_P) * factor
    tl.store(scratch_ptr + m - P + i, y)
    tl.debug_barrier()
    dot = tl.zeros((P,), tl.float64)
    for part in tl.static_range(2):
        mask = part * P + i < m
        y = tl.load(scratch_ptr + part * P + i, mask=mask, other=0.0)
        z = tl.abs(y) * root_m
        level = nearest(z, MARKS, SIZES)
        dot += tl.where(mask, (z * level).to(tl.float64), 0.0)
        tl.store(symbols_ptr + start + part * P + i, (symbol_of(y, level, BITS) & keep).to(tl.uint8), mask=mask)
    scale = (norm.to(tl.float64) * tl.sqrt(m.to(tl.float64)) / tl.sum(dot, 0)).to(tl.float32)
    tl.store(scales_ptr + tl.program_id(0), tl.where(keep != 0, scale, norm))


@triton.jit(do_not_specialize=["first", "m", "weight"])
def _loose_values_kernel(
    symbols_ptr, scales_ptr, key_ptr, scratch_ptr, out_ptr, first, m, weight, factor,
    SIZES: tl.constexpr, P: tl.constexpr, LOG_P: tl.constexpr, ACCUMULATE: tl.constexpr,
):  # fmt: skip
    """out = R⁻¹(± level · scale · weight) of one bucket, or out += the same."""
    start = tl.program_id(0).to(tl.int64) * m
    i = tl.arange(0, P)
    scale = tl.load(scales_ptr + tl.program_id(0)) * weight
    k0, k1 = bucket_key(load_key(key_ptr), first + tl.program_id(0))
    scratch_ptr += start
    for part in tl.static_range(2):
        symbol = tl.load(symbols_ptr + start + part * P + i, mask=part * P + i < m, other=0).to(tl.int32)
        level = tl.full((P,), SIZES[0], tl.float32)
        for k in tl.static_range(1, len(SIZES)):
            level = tl.where(symbol % len(SIZES) == k, SIZES[k], level)
        level = tl.where(symbol < len(SIZES), level, -level)
        tl.store(scratch_ptr + part * P + i, level * scale, mask=part * P + i < m)
    tl.debug_barrier()
    x = tl.load(scratch_ptr + m - P + i)
    tl.debug_barrier()
    x = _loose_signs(_loose_hadamard(x * factor, P, LOG_P), k0, k1, 1, P)
    tl.store(scratch_ptr + m - P + i, x)
    tl.debug_barrier()
    x = _loose_signs(_loose_hadamard(tl.load(scratch_ptr + i) * factor, P, LOG_P), k0, k1, 0, P)
    rest = tl.load(scratch_ptr + P + i, mask=P + i < m, other=0.0)
    out_ptr += start
    if ACCUMULATE:
        x = tl.load(out_ptr + i) + x
        rest = tl.load(out_ptr + P + i, mask=P + i < m, other=0.0) + rest
    tl.store(out_ptr + i, x)
    tl.store(out_ptr + P + i, rest, mask=P + i < m)


@cache
def _float32(numbers: tuple[float, ...]) -> tuple[float, ...]:
    """The numbers rounded to float32, which is what a kernel compares with."""
    return tuple(torch.tensor(numbers, dtype=torch.float32, device="cpu").tolist())


def level_sizes(bits: int) -> dict[str, object]:
    """The thresholds between levels and the levels, as kernels' arguments."""
    return {"MARKS": _float32(thresholds(bits)), "SIZES": _float32(LEVELS[bits])}


def _loose_sizes(m: int) -> dict[str, object]:
    p = order(m)
    return {"P": p, "LOG_P": p.bit_length() - 1, "num_warps": max(1, min(32, p // 256)), **FLAGS}


def loose_symbols(v: torch.Tensor, bits: int, first: int, m: int, key: int, scales_out: torch.Tensor) -> torch.Tensor:
    """Symbols of buckets of m values each, from bucket `first` on; their scales are written to scales_out."""
    symbols = torch.empty(v.numel(), dtype=torch.uint8, device=v.device)
    scratch = torch.empty(v.numel(), dtype=torch.float32, device=v.device)
    with on(v.device):
        _loose_quantize_kernel[(v.numel() // m,)](
            v, symbols, scales_out, scratch, first, m, signed(key), 1 / root(order(m)), root(m), BITS=bits,
            **level_sizes(bits), **_loose_sizes(m),
        )  # fmt: skip
    return symbols


def loose_values(
    symbols: torch.Tensor,
    scales: torch.Tensor,
    key: torch.Tensor,
    bits: int,
    first: int,
    m: int,
    out: torch.Tensor,
    weight: float,
    accumulate: bool,
) -> None:
    """out = values of buckets of m values each, from bucket `first` on, or out += the same."""
    scratch = torch.empty(symbols.numel(), dtype=torch.float32, device=out.device)
    with on(out.device):
        _loose_values_kernel[(symbols.numel() // m,)](
            symbols, scales, key, scratch, out, first, m, float(weight), 1 / root(order(m)),
            SIZES=level_sizes(bits)["SIZES"], ACCUMULATE=accumulate, **_loose_sizes(m),
        )  # fmt: skip
