"""Norm of one bucket, rounding to a grid, and back; `reference/rounding.py` is the specification.

Each loop is one that LLVM turns into vector code: no branch, no call, every integer cut back to 32 bits. Symbols
pass through a tile of 32-bit words on their way from and to bytes, for a loop that mixes widths is slower.
Sums run in float64, in any order: `reassoc` lets them use vector registers.
"""

import numpy as np
from numba import njit

from laconic.kernels.cpu.bits import bits_float, bucket_key, float_bits, hash32, reciprocal, usable, widen
from laconic.kernels.cpu.packing import copy, fill
from laconic.kernels.grid import Norm, Rounding

u8, u32, f32 = np.uint8, np.uint32, np.float32
ZERO, ONE, MINUS = f32(0), f32(1), u32(0x80000000)
TILE = 1024
POWER, TABLE = int(Rounding.POWER), int(Rounding.TABLE)
SIGN, SUBTRACT = int(Rounding.SIGN), int(Rounding.SUBTRACT)
L2, LINF = np.int64(Norm.L2), np.int64(Norm.LINF)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _sum_of_squares(x):
    total = 0.0
    for i in range(x.size):
        value = np.float64(widen(x[i]))
        total += value * value
    return total


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _sum_of_magnitudes(x):
    total = 0.0
    for i in range(x.size):
        total += abs(np.float64(widen(x[i])))
    return total


@njit(nogil=True, cache=True)
def _largest_magnitude(x):
    """Magnitudes order as their bit patterns do, with infinity and then NaN on top."""
    largest = u32(0)
    for i in range(x.size):
        pattern = u32(float_bits(widen(x[i])) & u32(0x7FFFFFFF))
        largest = pattern if pattern > largest else largest
    return bits_float(largest)


@njit(nogil=True, cache=True, error_model="numpy")
def bucket_norm(x, norm):
    """The float32 norm of a non-empty bucket. Every NaN becomes the same NaN, so that it is the same on the wire."""
    if norm == L2:
        found = f32(np.sqrt(_sum_of_squares(x)))
    elif norm == LINF:
        found = _largest_magnitude(x)
    else:
        found = f32(_sum_of_magnitudes(x) / x.size)
    return found if found == found else f32(np.nan)


@njit(nogil=True, cache=True)
def _round_power(x, first, guard, inverse, bits, k0, k1, out):
    exponent = u32(127 - (2 ** (bits - 1) - 2))
    smallest = bits_float(u32(exponent << u32(23)))
    sign_bit = u32(1 << (bits - 1))
    for i in range(x.size):
        value = widen(x[i])
        r = (abs(value) * guard) * inverse
        r = r if r < ONE else ONE
        t = r + (r if r > smallest else smallest)
        random = u32(hash32(u32(first + u32(i)), k0, k1) >> u32(9))
        level = u32(u32(u32(float_bits(t) + random) >> u32(23)) - exponent)
        out[i] = u32(level | (sign_bit if value < ZERO and level != u32(0) else u32(0)))


@njit(nogil=True, cache=True)
def _round_uniform(x, first, guard, inverse, bits, k0, k1, out):
    top = f32((2 ** (bits - 1) - 1) * 2**23)
    factor = inverse * top
    sign_bit = u32(1 << (bits - 1))
    for i in range(x.size):
        value = widen(x[i])
        fixed = (abs(value) * guard) * factor
        fixed = fixed if fixed < top else top
        random = u32(hash32(u32(first + u32(i)), k0, k1) >> u32(9))
        level = u32(u32(u32(np.int32(fixed)) + random) >> u32(23))
        out[i] = u32(level | (sign_bit if value < ZERO and level != u32(0) else u32(0)))


@njit(nogil=True, cache=True)
def _round_subtract(x, first, guard, inverse, bits, k0, k1, out):
    top, middle = f32((2**bits - 1) * 2**22), u32((2**bits - 1) * 2**22)
    factor = inverse * top
    for i in range(x.size):
        fixed = (widen(x[i]) * guard) * factor
        fixed = fixed if fixed < top else top
        fixed = fixed if fixed > -top else -top
        random = u32(hash32(u32(first + u32(i)), k0, k1) >> u32(9))
        out[i] = u32(u32(u32(u32(np.int32(fixed)) + middle) + random) >> u32(23))


@njit(nogil=True, cache=True)
def _count_levels(ratios, levels, words):
    """words = index of the largest level that is not above the ratio, the top one excepted."""
    fill(words, u32(0))
    for j in range(1, levels.size - 1):
        level = levels[j]
        for i in range(ratios.size):
            words[i] += u32(1) if level <= ratios[i] else u32(0)


@njit(nogil=True, cache=True)
def _round_table(x, first, guard, inverse, bits, levels, k0, k1, out):
    sign_bit = u32(1 << (bits - 1))
    ratios = np.empty(x.size, np.float32)
    for i in range(x.size):
        r = (abs(widen(x[i])) * guard) * inverse
        ratios[i] = r if r < ONE else ONE
    _count_levels(ratios, levels, out[: x.size])
    for i in range(x.size):
        low = levels[out[i]]
        gap = levels[out[i] + u32(1)] - low
        uniform = f32(u32(hash32(u32(first + u32(i)), k0, k1) >> u32(8))) * f32(2.0**-24)
        level = u32(out[i] + (u32(1) if uniform * gap < ratios[i] - low else u32(0)))
        out[i] = u32(level | (sign_bit if widen(x[i]) < ZERO and level != u32(0) else u32(0)))


@njit(nogil=True, cache=True)
def _round_sign(x, out):
    for i in range(x.size):
        out[i] = u32(1) if widen(x[i]) < ZERO else u32(0)


@njit(nogil=True, cache=True)
def _round(x, first, guard, inverse, rounding, bits, levels, k0, k1, out):
    if rounding == POWER:
        _round_power(x, first, guard, inverse, bits, k0, k1, out)
    elif rounding == TABLE:
        _round_table(x, first, guard, inverse, bits, levels, k0, k1, out)
    elif rounding == SIGN:
        _round_sign(x, out)
    elif rounding == SUBTRACT:
        _round_subtract(x, first, guard, inverse, bits, k0, k1, out)
    else:
        _round_uniform(x, first, guard, inverse, bits, k0, k1, out)


@njit(nogil=True, cache=True)
def round_bucket(x, norm, rounding, bits, levels, key, bucket, words, out):
    """Symbols of one bucket, written to `out` (x.size,) uint8; `words` (TILE,) uint32 is scratch."""
    if not usable(norm):
        fill(out, u8(0))
        return
    (guard, inverse), (k0, k1) = reciprocal(norm), bucket_key(key, bucket)
    for first in range(0, x.size, TILE):
        _round(x[first : first + TILE], u32(first), guard, inverse, rounding, bits, levels, k0, k1, words)
        copy(words, out[first : first + TILE])


@njit(nogil=True, cache=True)
def round_pack_4(x, norm, rounding, bits, levels, key, bucket, low, high, out):
    """`round_bucket` and the packing of 4-bit symbols in one: byte j holds symbols j and j + out.size.

    `low` and `high` (TILE,) uint32 are scratch.
    """
    if not usable(norm):
        fill(out, u8(0))
        return
    (guard, inverse), (k0, k1) = reciprocal(norm), bucket_key(key, bucket)
    half = out.size
    for first in range(0, half, TILE):
        target = out[first : first + TILE]
        upper = x[half + first : half + first + target.size]
        fill(high[upper.size : target.size], u32(0))
        _round(x[first : first + target.size], u32(first), guard, inverse, rounding, bits, levels, k0, k1, low)
        _round(upper, u32(half + first), guard, inverse, rounding, bits, levels, k0, k1, high)
        for i in range(target.size):
            target[i] = u8(u32(low[i] | u32(high[i] << u32(4))))


@njit(nogil=True, cache=True)
def _values_power(words, scale, bits, out):
    exponent = u32(127 - (2 ** (bits - 1) - 2) - 1)
    sign_bit = u32(1 << (bits - 1))
    level_bits = u32(sign_bit - u32(1))
    for i in range(out.size):
        symbol = words[i]
        level = u32(symbol & level_bits)
        pattern = u32(u32(level + exponent) << u32(23)) if level != u32(0) else u32(0)
        sign = MINUS if u32(symbol & sign_bit) != u32(0) else u32(0)
        out[i] = bits_float(u32(pattern | sign)) * scale


@njit(nogil=True, cache=True, error_model="numpy")
def _values_uniform(words, scale, bits, out):
    step = scale / f32(2 ** (bits - 1) - 1)
    sign_bit = u32(1 << (bits - 1))
    level_bits = u32(sign_bit - u32(1))
    for i in range(out.size):
        symbol = words[i]
        value = f32(np.int32(symbol & level_bits)) * step
        sign = MINUS if u32(symbol & sign_bit) != u32(0) else u32(0)
        out[i] = bits_float(u32(float_bits(value) ^ sign))


@njit(nogil=True, cache=True, error_model="numpy")
def _values_subtract(words, scale, bits, first, k0, k1, out):
    step, least = scale / f32(2 ** (bits - 1) - 0.5), u32(2 ** (bits - 1) - 1)
    for i in range(out.size):
        random = u32(hash32(u32(first + u32(i)), k0, k1) >> u32(9))
        shifted = u32(u32(u32(words[i] - least) << u32(24)) - u32(u32(random << u32(1)) + u32(1)))
        out[i] = (f32(np.int32(shifted)) * f32(2.0**-24)) * step


@njit(nogil=True, cache=True)
def _values_table(words, scale, bits, levels, out):
    sign_bit = u32(1 << (bits - 1))
    level_bits = u32(sign_bit - u32(1))
    for i in range(out.size):
        value = levels[words[i] & level_bits] * scale
        sign = MINUS if u32(words[i] & sign_bit) != u32(0) else u32(0)
        out[i] = bits_float(u32(float_bits(value) ^ sign))


@njit(nogil=True, cache=True)
def _values_sign(words, scale, out):
    for i in range(out.size):
        out[i] = scale if words[i] == u32(0) else -scale


@njit(nogil=True, cache=True)
def _values(words, scale, rounding, bits, levels, first, k0, k1, out):
    if rounding == POWER:
        _values_power(words, scale, bits, out)
    elif rounding == TABLE:
        _values_table(words, scale, bits, levels, out)
    elif rounding == SIGN:
        _values_sign(words, scale, out)
    elif rounding == SUBTRACT:
        _values_subtract(words, scale, bits, first, k0, k1, out)
    else:
        _values_uniform(words, scale, bits, out)


@njit(nogil=True, cache=True)
def _add(values, out):
    for i in range(out.size):
        out[i] += values[i]


@njit(nogil=True, cache=True)
def bucket_values(symbols, scale, rounding, bits, levels, key, bucket, accumulate, words, values, out):
    """(+ or -) level * scale for one bucket, written or added to `out` (symbols.size,) float32.

    key  of the encoder's random numbers, for SUBTRACT
    `words` (TILE,) uint32 and `values` (TILE,) float32 are scratch.
    """
    k0, k1 = bucket_key(key, bucket)
    for first in range(0, symbols.size, TILE):
        target = out[first : first + TILE]
        copy(symbols[first : first + TILE], words[: target.size])
        if accumulate:
            _values(words, scale, rounding, bits, levels, u32(first), k0, k1, values[: target.size])
            _add(values, target)
        else:
            _values(words, scale, rounding, bits, levels, u32(first), k0, k1, target)
