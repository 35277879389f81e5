"""Random bits, rounding to a grid and back inside Triton kernels; `reference/{random,rounding}.py` specify them.

Every float operation is one IEEE operation of the specification, so kernels that call these are launched with
`enable_fp_fusion=False`: a multiply-add in one rounding would be another number.

A value leaves `shift_in` as level + bias. For POWER the bias is that of the float's exponent, and it is subtracted from
a whole word of symbols at once.
"""

import triton
import triton.language as tl

from laconic.kernels import stream
from laconic.kernels.gpu.ptx import carry, lookup, saturate
from laconic.kernels.grid import Rounding

POWER, UNIFORM = tl.constexpr(int(Rounding.POWER)), tl.constexpr(int(Rounding.UNIFORM))
TABLE, SIGN = tl.constexpr(int(Rounding.TABLE)), tl.constexpr(int(Rounding.SIGN))
CELLS, LOADED_CELLS = tl.constexpr(len(Rounding)), tl.constexpr(len(Rounding) + 1)
"""TABLE in a held bucket, by tables of cells (`launch.cells_on`): in a warp's registers if small, or in memory."""
MOST_LEVELS = tl.constexpr(128)
INFINITY = tl.constexpr(float("inf"))
GOLDEN, MIX_1, MIX_2 = tl.constexpr(stream.GOLDEN), tl.constexpr(stream.MIX_1), tl.constexpr(stream.MIX_2)
HASH_1, HASH_2 = tl.constexpr(stream.HASH_1), tl.constexpr(stream.HASH_2)


@triton.jit
def bucket_key(key, bucket):
    """Halves (k0, k1) of a bucket's key, uint32: once per program."""
    z = key.to(tl.uint64) + (bucket + 1).to(tl.uint64) * GOLDEN
    z = (z ^ (z >> 30)) * MIX_1
    z = (z ^ (z >> 27)) * MIX_2
    z = z ^ (z >> 31)
    return (z & 0xFFFFFFFF).to(tl.uint32), (z >> 32).to(tl.uint32)


@triton.jit
def hash32(offset, k0, k1):
    """32 random bits (uint32) for each offset (uint32): 1 add, 3 shifts, 3 logical operations, 2 multiplications."""
    x = offset + k0
    x = (x ^ (x >> 16)) * HASH_1
    x = (x ^ (x >> 15) ^ k1) * HASH_2
    return x ^ (x >> 15)


@triton.jit
def reciprocal(norm):
    """What the values of a bucket share: (keep, guard, inverse).

    keep     all ones, or 0 where the norm is zero or not finite and so every symbol is 0
    guard    a power of two that brings the norm near 1 where its reciprocal would leave the range of float32
    inverse  1 / (norm * guard)
    """
    usable = (norm > 0.0) & (norm < INFINITY)
    guard = tl.where(norm < 2.0**-62, 2.0**64, tl.where(norm > 2.0**62, 2.0**-64, 1.0))
    keep = tl.where(usable, 0xFFFFFFFF, 0).to(tl.uint32)
    return keep, guard, tl.div_rn(1.0, tl.where(usable, norm * guard, 1.0))


@triton.jit
def _fixed_power(r, BITS: tl.constexpr):
    smallest: tl.constexpr = 2.0 ** (2 - (1 << (BITS - 1)))
    return (r + tl.maximum(r, smallest)).to(tl.uint32, bitcast=True)


@triton.jit
def _fixed_uniform(a, inverse, BITS: tl.constexpr):
    top: tl.constexpr = ((1 << (BITS - 1)) - 1) * 2.0**23
    return tl.minimum(a * (inverse * top), top).to(tl.int32).to(tl.uint32)


@triton.jit
def _search(r, levels_ptr, BITS: tl.constexpr):
    """Index of the largest level that is not above r, the top one excepted."""
    low = tl.zeros_like(r).to(tl.int32)
    for i in tl.static_range(BITS - 1):
        higher = low + (1 << (BITS - 2 - i))
        low = tl.where(tl.load(levels_ptr + higher) <= r, higher, low)
    return tl.minimum(low, (1 << (BITS - 1)) - 2)


@triton.jit
def _halve(s, low, below, above, pivot, STEP: tl.constexpr):
    """One step of a search: to the upper half of the levels if `pivot` is not above s."""
    higher = pivot <= s
    return tl.where(higher, low + STEP, low), tl.where(higher, pivot, below), tl.where(higher, above, pivot)


@triton.jit
def _search_few(r, levels_ptr, BITS: tl.constexpr):
    """(index, level, next level) of r among at most 8 levels, all of them in registers: no load depends on a value.

    The first level is 0 and the last 1, which the search takes to be above every r.
    """
    s = tl.minimum(r, 1.0 - 2.0**-24)
    low = tl.zeros_like(r).to(tl.int32)
    below = tl.zeros_like(r)
    above = below + 1.0
    if BITS == 3:
        low, below, above = _halve(s, low, below, above, tl.load(levels_ptr + 2) + below, 2)
        pivot = tl.where(low > 0, 1.0, tl.load(levels_ptr + 1))
        low, below, above = _halve(s, low, below, above, pivot, 1)
    elif BITS == 4:
        low, below, above = _halve(s, low, below, above, tl.load(levels_ptr + 4) + below, 4)
        upper = low > 0
        pivot = tl.where(upper, tl.load(levels_ptr + 6), tl.load(levels_ptr + 2))
        first = tl.where(upper, tl.load(levels_ptr + 5), tl.load(levels_ptr + 1))
        third = tl.where(upper, 1.0, tl.load(levels_ptr + 3))
        last = tl.where(pivot <= s, third, first)
        low, below, above = _halve(s, low, below, above, pivot, 2)
        low, below, above = _halve(s, low, below, above, last, 1)
    return low, below, above


@triton.jit
def _level_table(r, random, levels_ptr, BITS: tl.constexpr):
    if BITS <= 4:
        low, below, above = _search_few(r, levels_ptr, BITS)
    else:
        low = _search(r, levels_ptr, BITS)
        below = tl.load(levels_ptr + low)
        above = tl.load(levels_ptr + low + 1)
    uniform = (random >> 8).to(tl.int32).to(tl.float32) * (2.0**-24)
    return tl.where(uniform * (above - below) < r - below, low + 1, low).to(tl.uint32)


@triton.jit
def _level_cells(r, random, tables):
    """`_level_table` by tables in a warp's registers, made by `launch.cells_on`.

    The highest bits of r are its cell; a cell has at most one level. Products with powers of two are in the tables
    already, and are exact.
    """
    marks, firsts, levels, gaps, shift, base = tables
    cell = tl.maximum(r.to(tl.uint32, bitcast=True) >> shift.to(tl.uint32), base.to(tl.uint32))
    low = lookup(firsts, cell, 32, 1).to(tl.uint32, bitcast=True) + (r >= lookup(marks, cell, 32, 1)).to(tl.uint32)
    drawn = (random >> 8).to(tl.int32).to(tl.float32) * lookup(gaps, low, 32, 1)
    return low + (drawn < r - lookup(levels, low, 32, 1)).to(tl.uint32)


@triton.jit
def _halves_of(pair):
    """The float32 numbers in the lower and the upper half of int64 words."""
    low, high = (pair & 0xFFFFFFFF).to(tl.uint32), (pair >> 32).to(tl.uint32)
    return low.to(tl.float32, bitcast=True), high.to(tl.float32, bitcast=True)


@triton.jit
def _level_loaded(r, random, tables):
    """`_level_table` by tables of cells in memory: two loads of 8 bytes, whatever the number of levels."""
    pairs_ptr, shift, base = tables
    cell = tl.maximum(r.to(tl.int32, bitcast=True) >> shift, base)
    mark, first = _halves_of(tl.load(pairs_ptr + (MOST_LEVELS - base) + cell))
    low = first.to(tl.int32, bitcast=True) + (r >= mark).to(tl.int32)
    level, gap = _halves_of(tl.load(pairs_ptr + low))
    drawn = (random >> 8).to(tl.int32).to(tl.float32) * gap
    return (low + (drawn < r - level).to(tl.int32)).to(tl.uint32)


@triton.jit
def draw(x, offset, rule, ROUNDING: tl.constexpr, BITS: tl.constexpr, CHECKED: tl.constexpr):
    """(fixed, random), uint32, of values x (float32) at offsets (uint32) in a bucket, for `shift_in`.

    CHECKED  whether a value may exceed the norm by far, as in `quantize` with any norms; not if the norm is x's own
    """
    _, guard, inverse, k0, k1, levels_ptr = rule
    if ROUNDING == SIGN:
        fixed = (x < 0.0).to(tl.uint32)
        random = fixed
    else:
        a = tl.abs(x) * guard
        if CHECKED:
            a = tl.where(a < INFINITY, a, 0.0)
        random = hash32(offset, k0, k1)
        if ROUNDING == UNIFORM:
            fixed = _fixed_uniform(a, inverse, BITS)
        elif ROUNDING == POWER:
            fixed = _fixed_power(saturate(a, inverse), BITS)
        else:
            r = saturate(a, inverse)
            if ROUNDING == CELLS:
                fixed = _level_cells(r, random, levels_ptr)
            elif ROUNDING == LOADED_CELLS:
                fixed = _level_loaded(r, random, levels_ptr)
            else:
                fixed = _level_table(r, random, levels_ptr, BITS)
    return fixed, random


@triton.jit
def shift_in(above, drawn, ROUNDING: tl.constexpr):
    """above + level + bias of what was drawn: by `carry`, where rounding is a sum; else `fixed` is the level."""
    return carry(above, drawn[0], drawn[1]) if (ROUNDING == POWER) | (ROUNDING == UNIFORM) else above + drawn[0]


@triton.jit
def bias(ROUNDING: tl.constexpr, BITS: tl.constexpr):
    """What `shift_in` adds to a level: the exponent of the smallest one."""
    found: tl.constexpr = 129 - (1 << (BITS - 1)) if ROUNDING == POWER else 0
    return tl.full((), found, tl.uint32)


@triton.jit
def symbol(x, drawn, rule, ROUNDING: tl.constexpr, BITS: tl.constexpr):
    """Symbols (uint32) of values x, given what was drawn for them: sign bit, then level; zero has no sign."""
    level = shift_in(drawn[0] * 0, drawn, ROUNDING)
    if ROUNDING != SIGN:
        level -= bias(ROUNDING, BITS)
        level = tl.where((x < 0.0) & (level > 0), level + (1 << (BITS - 1)), level)
    return level & rule[0]


@triton.jit
def unit(scale, ROUNDING: tl.constexpr, BITS: tl.constexpr):
    """The factor of a level in a bucket with this scale, which is the norm or a multiple of it."""
    if ROUNDING == UNIFORM:
        scale = tl.div_rn(scale, ((1 << (BITS - 1)) - 1) * 1.0)
    return scale


@triton.jit
def flip(word, x, POSITION: tl.constexpr):
    """x or -x, by the bit at POSITION of words (uint32). In some versions, Triton's minus is 0 - x: 0 for x = 0."""
    flipped = ((word << (31 - POSITION)) & 0x80000000) ^ x.to(tl.uint32, bitcast=True)
    return flipped.to(tl.float32, bitcast=True)


@triton.jit
def value(symbol, unit, levels_ptr, ROUNDING: tl.constexpr, BITS: tl.constexpr):
    """(+ or -) level * unit, float32, of symbols (uint32).

    POWER: level << 23 is the bit pattern of 2**(level - 127), and of 0 for level 0; two exact powers of two away from
    the level's own value.
    """
    if ROUNDING == SIGN:
        found = flip(symbol, unit, 0)
    else:
        level = symbol & ((1 << (BITS - 1)) - 1)
        if ROUNDING == POWER:
            magnitude = (level << 23).to(tl.float32, bitcast=True) * (2.0 ** (128 - (1 << (BITS - 1)))) * unit
        elif ROUNDING == UNIFORM:
            magnitude = level.to(tl.int32).to(tl.float32) * unit
        else:
            magnitude = tl.load(levels_ptr + level) * unit
        found = flip(symbol, magnitude, BITS - 1)
    return found
