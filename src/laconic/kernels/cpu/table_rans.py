"""The coder of dithered values: digits, rows of tables and 16 rANS states; `reference/dither.py` is the specification.

The encoder's step is one that LLVM turns into vector code. The decoder's is not, since it looks up tables, but no
branch depends on the data: the steps of 16 states overlap, and only the cursor goes from one to the next.

A *row* of a table, frequency · 2¹⁶ + start, is all that coding a symbol takes; a law is identified by its first row. A
*code* is the byte κ + 127, and 255 for a value to be sent raw, as in a tail symbol.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from laconic.kernels import dither
from laconic.kernels.cpu.bits import trailing_zeros
from laconic.kernels.dither import CELL, N_CLASSES, N_SCALES, N_STATES, N_STRATA, PRECISION, TAIL_LIMIT, TOTAL

u8, u16, u32, u64, i32, i64, f32 = np.uint8, np.uint16, np.uint32, np.uint64, np.int32, np.int64, np.float32
TAIL_LAWS, SCALE_LAW = N_SCALES * N_CLASSES, N_SCALES * N_CLASSES + N_SCALES
"""Numbers of the first law of tails and of the law of scales; the first row of a law is 256 times its number."""
IDENTITY = u32(TOTAL << 16)
"""The row of a symbol of probability 1, which leaves its state unchanged: pads the last group of 16."""
_P, _MASK, _LOWEST = u64(PRECISION), u64(TOTAL - 1), u64(dither.LOWEST_STATE)
_BYTES = 0x0101010101010101


@cache
def tables(shape: int) -> tuple[Any, ...]:
    """A shape's laws as kernels' arguments: width by scale; row by law and symbol, zero if it has no frequency; symbol
    by law and slot."""
    found = dither.laws(shape)
    f = np.zeros((SCALE_LAW + 1, 256), np.int64)
    f[:TAIL_LAWS] = found.bytes_.reshape(-1, 256)
    f[TAIL_LAWS:SCALE_LAW] = found.tails
    f[SCALE_LAW, : N_SCALES + 1] = found.scales
    start = np.cumsum(f, 1) - f
    slots = np.stack([np.repeat(np.arange(256, dtype=u8), row) for row in f])
    rows = np.where(f > 0, f << 16 | start, 0).astype(u32)
    return found.widths, rows.ravel(), slots.ravel()


@njit(nogil=True, cache=True)
def to_digits(codes, width, digits):
    """Digits of w bits, each in a byte."""
    least, escape = u8(TAIL_LIMIT + 1 - (1 << (width - 1))), u8((1 << width) - 1)
    for i in range(CELL):
        d = u8(codes[i] - least)
        digits[i] = d if d < escape else escape


@njit(nogil=True, cache=True)
def join_digits(digits, width, data):
    """Digits to bytes in the coder's order, eight bytes at a time: groups of 16, one of each stratum."""
    if width == 2:
        for j in range(CELL // 32):
            i = (j >> 1) * 8 + (j & 1)
            data[j] = digits[i] | digits[i + 2] << u64(2) | digits[i + 4] << u64(4) | digits[i + 6] << u64(6)
    elif width == 4:
        for j in range(CELL // 16):
            i = (j >> 1) * 4 + (j & 1)
            data[j] = digits[i] | digits[i + 2] << u64(4)
    else:
        for j in range(CELL // 8):
            data[j] = digits[j]


@njit(nogil=True, cache=True)
def split_bytes(data, width, codes):
    """The inverse of `join_digits`, and digits to codes."""
    mask, least = u64(((1 << width) - 1) * _BYTES), u64((TAIL_LIMIT + 1 - (1 << (width - 1))) * _BYTES)
    if width == 2:
        for j in range(CELL // 32):
            i, word = (j >> 1) * 8 + (j & 1), data[j]
            codes[i], codes[i + 2] = (word & mask) + least, (word >> u64(2) & mask) + least
            codes[i + 4], codes[i + 6] = (word >> u64(4) & mask) + least, (word >> u64(6) & mask) + least
    elif width == 4:
        for j in range(CELL // 16):
            i, word = (j >> 1) * 4 + (j & 1), data[j]
            codes[i], codes[i + 2] = (word & mask) + least, (word >> u64(4) & mask) + least
    else:
        for j in range(CELL // 8):
            codes[j] = data[j]


@njit(nogil=True, cache=True)
def find_escapes(data, width, positions):
    """Positions of the values whose digit is all ones, in the order of bytes and digits; returns how many."""
    count, per_byte, lowest_bits = 0, 8 // width, u64(2**64 - 1) // u64((1 << width) - 1)
    log_width = width // 4 + 1 if width < 8 else 3
    for j in range(CELL // 8 // per_byte):
        ones = data[j] & data[j] >> u64(1)
        if width > 2:
            ones &= ones >> u64(2)
        if width > 4:
            ones &= ones >> u64(4)
        ones &= lowest_bits
        while ones:
            bit = i64(trailing_zeros(ones))
            ones &= ones - u64(1)
            byte = 8 * j + (bit >> 3)
            positions[count] = ((byte >> 4) * per_byte + ((bit & 7) >> log_width)) * N_STATES + (byte & 15)
            count += 1
    return count


@njit(nogil=True, cache=True)
def class_laws(scale, rotation, laws_):
    """The first row of the law of each state's bytes in a cell."""
    for s in range(N_STATES):
        stratum = (s + rotation) & (N_STRATA - 1)
        c = stratum - N_CLASSES if stratum >= N_CLASSES else N_CLASSES - 1 - stratum
        laws_[s] = u64((scale * N_CLASSES + c) << 8)


@njit(nogil=True, cache=True)
def rows_of_bytes(data, n, laws_, table, rows):
    """The row of each byte; one that has no frequency becomes 255, all of whose digits are escapes."""
    for g in range(u64(0), u64(n), u64(N_STATES)):
        for s in range(u64(N_STATES)):
            rows[g + s] = table[laws_[s] + u64(data[g + s])]
    missing = u32(0)
    for j in range(n):
        missing |= u32(1) if rows[j] == u32(0) else u32(0)
    if missing:
        for j in range(n):
            if rows[j] == u32(0):
                data[j] = u8(255)
                rows[j] = table[laws_[j & (N_STATES - 1)] + u64(255)]


@njit(nogil=True, cache=True)
def rows_of_tails(codes, law, table, rows):
    """A row of the law for each tail symbol, and `IDENTITY` to pad the last group; returns how many."""
    first = u64(law << 8)
    for e in range(codes.size):
        rows[e] = table[first + u64(codes[e])]
    end = (codes.size + N_STATES - 1) // N_STATES * N_STATES
    rows[codes.size : end] = IDENTITY
    return end


@njit(nogil=True, cache=True, error_model="numpy")
def push(rows, states, units, p, unit, full):
    """Code a row from the last group of 16 to the first; units[p:] are written. At most one unit per symbol.

    The quotient by f, below 2¹⁹, is taken in float32: three roundings by at most 2⁻²⁴ and a reciprocal 2⁻²² too small
    make it right or one too small, and the remainder shows which. `unit` and `full` (16,) are scratch.
    """
    for g in range(rows.size - N_STATES, -1, -N_STATES):
        group = rows[g : g + N_STATES]
        for s in range(N_STATES):
            f, start, x = i32(group[s] >> u32(16)), i32(group[s] & u32(0xFFFF)), i32(states[s])
            over = i32(x >> i32(31 - PRECISION)) >= f
            unit[s], full[s] = u16(x), u8(1) if over else u8(0)
            x = i32(x >> i32(16)) if over else x
            quotient = i32(f32(x) * (f32(1 - 2.0**-22) / f32(f)))
            rest = i32(x - i32(quotient * f))
            y = i32(i32(rest + start) + i32(quotient << i32(PRECISION)))
            states[s] = u32(y if rest < f else i32(i32(y - f) + i32(TOTAL)))
        for j in range(u64(N_STATES)):
            units[u64(p - u64(1))] = unit[u64(N_STATES - 1) - j]
            p = u64(p - u64(full[u64(N_STATES - 1) - j]))
    return p


@njit(nogil=True, cache=True)
def write_block(units, raws, states, words):
    """Units two per word, the raw values from the last to the first, and the states; returns the number of words."""
    n, halves = (units.size + 1) // 2, words.view(np.uint16)
    halves[2 * n - 1] = u16(0)
    for j in range(units.size):
        halves[j] = units[j]
    for r in range(raws.size):
        words[n + r] = raws[r]
    n += raws.size
    for s in range(N_STATES):
        words[n + s] = states[s]
    return n + N_STATES


@njit(nogil=True, cache=True, inline="always")
def _pop(x, p, law, units, table, slots):
    """One step of the decoder: state, cursor and symbol. The unit is always loaded, so that nothing branches."""
    slot, unit = u64(x & _MASK), u64(units[p])
    symbol = slots[u64(u64(law << u64(PRECISION - 8)) + slot)]
    row = table[law + u64(symbol)]
    x = u64(u64(row >> u32(16)) * u64(x >> _P) + slot - u64(row & u32(0xFFFF)))
    low = x < _LOWEST
    return u64(u64(x << u64(16)) | unit) if low else x, u64(p + u64(low)), symbol


@njit(nogil=True, cache=True)
def pop_bytes(data, laws_, states, units, p, limit, table, slots):
    """Decode bytes, a group of 16 at a time; returns the cursor.

    A corrupt block may use more units than it has. The cursor stays in the block, and shows it in the end.
    """
    for g in range(u64(0), u64(data.size), u64(N_STATES)):
        p = p if p < limit else limit
        for s in range(u64(N_STATES)):
            states[s], p, data[g + s] = _pop(states[s], p, laws_[s], units, table, slots)
    return p


@njit(nogil=True, cache=True)
def pop_tails(tails, law, states, units, p, limit, table, slots):
    """Decode symbols of one law, the e-th from state e mod 16; returns the cursor."""
    first = u64(law << 8)
    for e in range(tails.size):
        s, p = e & (N_STATES - 1), p if p < limit else limit
        states[s], p, tails[e] = _pop(states[s], p, first, units, table, slots)
    return p
