"""Rounding of one bucket to a grid, and back; `reference/rounding.py` is the specification.

Each loop is one that LLVM turns into vector code: no branch, no call, every integer cut back to 32 bits. Symbols
pass through a tile of 32-bit words on their way from and to bytes, for a loop that mixes widths runs at half the speed.
"""

import numpy as np
from numba import njit

from laconic.kernels.cpu.bits import bits_float, bucket_key, float_bits, hash32, widen
from laconic.kernels.cpu.packing import copy, fill
from laconic.kernels.grid import Rounding

u8, u32, u64, f32 = np.uint8, np.uint32, np.uint64, np.float32
ZERO, ONE, MINUS = f32(0), f32(1), u32(0x80000000)
TILE = 1024
POWER, TABLE = int(Rounding.POWER), int(Rounding.TABLE)
SIGN, SUBTRACT = int(Rounding.SIGN), int(Rounding.SUBTRACT)


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


@njit(nogil=True, cache=True, inline="always")
def _usable(norm):
    return norm > ZERO and norm < f32(np.inf)


@njit(nogil=True, cache=True, error_model="numpy")
def _prepare(norm, key, bucket):
    """What the values of a bucket share: range guard, 1 / (norm * guard), and the halves of the random key."""
    guard = f32(2.0**64) if norm < f32(2.0**-62) else (f32(2.0**-64) if norm > f32(2.0**62) else ONE)
    halves = bucket_key(key, bucket)
    return guard, ONE / (norm * guard), u32(halves & u64(0xFFFFFFFF)), u32(halves >> u64(32))


@njit(nogil=True, cache=True)
def round_bucket(x, norm, rounding, bits, levels, key, bucket, words, out):
    """Symbols of one bucket, written to `out` (x.size,) uint8; `words` (TILE,) uint32 is scratch."""
    if not _usable(norm):
        fill(out, u8(0))
        return
    guard, inverse, k0, k1 = _prepare(norm, key, bucket)
    for first in range(0, x.size, TILE):
        _round(x[first : first + TILE], u32(first), guard, inverse, rounding, bits, levels, k0, k1, words)
        copy(words, out[first : first + TILE])


@njit(nogil=True, cache=True)
def round_pack_4(x, norm, rounding, levels, key, bucket, low, high, out):
    """`round_bucket` and the packing of 4-bit symbols in one: byte j holds symbols j and j + out.size.

    `low` and `high` (TILE,) uint32 are scratch.
    """
    if not _usable(norm):
        fill(out, u8(0))
        return
    guard, inverse, k0, k1 = _prepare(norm, key, bucket)
    half = out.size
    for first in range(0, half, TILE):
        target = out[first : first + TILE]
        upper = x[half + first : half + first + target.size]
        fill(high[upper.size : target.size], u32(0))
        _round(x[first : first + target.size], u32(first), guard, inverse, rounding, 4, levels, k0, k1, low)
        _round(upper, u32(half + first), guard, inverse, rounding, 4, levels, k0, k1, high)
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
def _values(words, scale, rounding, bits, levels, first, halves, out):
    if rounding == POWER:
        _values_power(words, scale, bits, out)
    elif rounding == TABLE:
        _values_table(words, scale, bits, levels, out)
    elif rounding == SIGN:
        _values_sign(words, scale, out)
    elif rounding == SUBTRACT:
        _values_subtract(words, scale, bits, first, u32(halves & u64(0xFFFFFFFF)), u32(halves >> u64(32)), out)
    else:
        _values_uniform(words, scale, bits, out)


@njit(nogil=True, cache=True)
def _add(values, out):
    for i in range(out.size):
        out[i] += values[i]


@njit(nogil=True, cache=True)
def bucket_values(symbols, scale, rounding, bits, levels, key, bucket, accumulate, words, values, out):
    """(+ or -) level * scale for one bucket, written or added to `out` (symbols.size,) float32.

    key  of the encoder's random numbers, where they are taken off again
    `words` (TILE,) uint32 and `values` (TILE,) float32 are scratch.
    """
    halves = bucket_key(key, bucket)
    for first in range(0, symbols.size, TILE):
        target = out[first : first + TILE]
        copy(symbols[first : first + TILE], words[: target.size])
        if accumulate:
            _values(words, scale, rounding, bits, levels, u32(first), halves, values[: target.size])
            _add(values, target)
        else:
            _values(words, scale, rounding, bits, levels, u32(first), halves, target)
