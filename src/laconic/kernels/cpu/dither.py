"""Subtractive dither, rounded and entropy-coded cell by cell; `reference/dither.py` is the specification.

Loops over the 512 values of a cell and over the 16 states of a block are ones that LLVM turns into vector code. The
encoder goes from the last cell to the first and codes each while it lies in the first-level cache. A *code* is the byte
κ + 127, and 255 for a value to be sent raw: what a tail symbol is.
"""

from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit

from laconic.kernels.backend import Blocks
from laconic.kernels.cpu.bits import bits_float, bucket_key, float_bits, hash32, prefetch, trailing_zeros, widen
from laconic.kernels.cpu.blocks import Array, encode_blocks
from laconic.kernels.cpu.fused import _stored
from laconic.kernels.cpu.threads import run
from laconic.kernels.dither import (
    CELL,
    DITHER_BITS,
    FIXED_LIMIT,
    FIXED_POINT,
    HALF,
    LOWEST_STATE,
    N_CLASSES,
    N_SCALES,
    N_STATES,
    N_STRATA,
    PRECISION,
    RAW,
    RAW_ABOVE,
    TAIL_LIMIT,
    TOTAL,
    laws,
    max_words,
    thresholds,
)
from laconic.kernels.layout import BLOCK_SIZE, n_blocks
from laconic.kernels.reference.bitstream import block_starts

u8, u16, u32, u64, i32, i64, f32 = np.uint8, np.uint16, np.uint32, np.uint64, np.int32, np.int64, np.float32
CELLS = BLOCK_SIZE // CELL
TAIL_LAWS, SCALE_LAW = N_SCALES * N_CLASSES, N_SCALES * N_CLASSES + N_SCALES
"""Numbers of laws. Kernels know a law by its first row, 256 times that."""
IDENTITY = u32(TOTAL << 16)
"""The row of a symbol that is certain, which leaves its state as it is: fills up the last group of 16."""
_P, _MASK, _LOWEST = u64(PRECISION), u64(TOTAL - 1), u64(LOWEST_STATE)
_ROUND, _ROUND_BITS = f32(1.5 * 2**23), i32(0x4B400000)
"""Added to a float32 below 2²², it leaves the whole number next to it, halves to even, in the lowest bits."""
_BYTES = 0x0101010101010101
_UNIT, _TWICE = f32(2.0 ** -(DITHER_BITS + 1)), u32(2 * (2**16 - 1))
_CENTRES = ((np.arange(N_STRATA + HALF) % N_STRATA << 17) + 1 - (1 << DITHER_BITS)).astype(np.int32)
"""2 q + 1 − 2²⁰ where the 16 random bits of q are zero; cells start at their rotation. Negative where u is."""


@cache
def _tables(shape: int) -> tuple[Any, ...]:
    """What the kernels take of a shape's laws: width per scale; by law and symbol a row, frequency · 2¹⁶ + start (zero
    if it has no frequency); by law and slot the symbol."""
    found = laws(shape)
    f = np.zeros((SCALE_LAW + 1, 256), np.int64)
    f[:TAIL_LAWS] = found.bytes_.reshape(-1, 256)
    f[TAIL_LAWS:SCALE_LAW] = found.tails
    f[SCALE_LAW, :N_SCALES] = found.scales
    start = np.cumsum(f, 1) - f
    slots = np.stack([np.repeat(np.arange(256, dtype=u8), row) for row in f])
    rows = np.where(f > 0, f << 16 | start, 0).astype(u32)
    return found.widths, rows.ravel(), slots.ravel()


def cell_moments(v: torch.Tensor) -> torch.Tensor:
    """(2, n_cells) float64: Σ|x| and Σx² of each cell."""
    n, x = v.numel(), _stored(v)
    out = np.empty((2, -(-n // CELL)), np.float64)
    run(lambda first, last: _moments(first, last, x, out), out.shape[1], n)
    return torch.from_numpy(out)


def dither_encode(v: torch.Tensor, steps: torch.Tensor, step_size: int, key: int, shape: int) -> Blocks:
    """Values (n,) to blocks; value i has the step Δ = steps[i // step_size], step_size a whole number of cells."""
    widths, rows, _ = _tables(shape)
    x, deltas, marks = _stored(v), steps.numpy(), thresholds()

    def kernel(first: int, last: int, values: Array, scratch: Array, sizes: Array) -> None:
        _encode_range(first, last, values, deltas, step_size, u64(key), widths, rows, marks, scratch, sizes)

    return encode_blocks(torch.from_numpy(x), max_words, kernel)


def dither_decode(
    blocks: Blocks,
    steps: torch.Tensor,
    step_size: int,
    key: int,
    shape: int,
    out: torch.Tensor,
    weight: float,
    accumulate: bool,
) -> int:
    """out = weight * values, or out += the same; returns the first corrupt block or -1, and `out` is undefined then."""
    n = out.numel()
    starts, bad = block_starts(blocks, n)
    if bad >= 0:
        return bad
    widths, rows, slots = _tables(shape)
    words = blocks[1].contiguous().numpy().view(u32)
    where, good, y = np.array(starts, i64), np.zeros(n_blocks(n), np.bool_), out.numpy()
    scales = (steps * weight).numpy()
    args = (words, where, scales, step_size, u64(key), widths, rows, slots, f32(weight), accumulate, y, good)
    run(lambda first, last: _decode_range(first, last, *args), len(good), n)
    return -1 if good.all() else int(good.argmin())


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def _moments(first, last, values, out):
    """Sums in the order that is fastest; the step that follows from them travels."""
    for cell in range(first, last):
        x = values[cell * CELL : (cell + 1) * CELL]
        magnitude, square = 0.0, 0.0
        for i in range(x.size):
            value = np.float64(widen(x[i]))
            magnitude += abs(value)
            square += value * value
        out[0, cell], out[1, cell] = magnitude, square


@njit(nogil=True, cache=True, inline="always")
def _block_key(key, block):
    halves = bucket_key(key, block)
    return u32(halves & u64(0xFFFFFFFF)), u32(halves >> u64(32))


@njit(nogil=True, cache=True, inline="always")
def _rotation(cell, k0, k1):
    return i64(hash32(u32(BLOCK_SIZE + cell), k0, k1) & u32(N_STRATA - 1))


@njit(nogil=True, cache=True, inline="always")
def _random(i, k0, k1):
    """Twice the 16 random bits of the values i and i + HALF of a cell."""
    h = hash32(i, k0, k1)
    return i32(u32(h << u32(1)) & _TWICE), i32(u32(h >> u32(15)) & _TWICE)


@njit(nogil=True, cache=True, inline="always")
def _code(t, centre, random):
    """The code of t = x/Δ, and its magnitude in fixed point."""
    negative, a = i32(centre >> i32(31)), abs(t)
    k = i32(i32(float_bits((t + f32(i32(centre + random)) * _UNIT) + _ROUND)) - _ROUND_BITS)
    code = i32(i32(i32(k ^ negative) - negative) + i32(TAIL_LIMIT))
    fixed = i32((a if a < f32(FIXED_LIMIT) else f32(FIXED_LIMIT)) * f32(FIXED_POINT))
    return u8(code if a <= f32(RAW_ABOVE) else i32(RAW)), fixed


@njit(nogil=True, cache=True)
def _to_codes(x, guard, inverse, first, centres, k0, k1, codes):
    """The code of each value of a cell; returns the cell's magnitude in fixed point."""
    total = i32(0)
    for i in range(HALF):
        low, high = _random(u32(first + u32(i)), k0, k1)
        codes[i], fixed = _code((x[i] * guard) * inverse, centres[i], low)
        total = i32(total + fixed)
        codes[i + HALF], fixed = _code((x[i + HALF] * guard) * inverse, centres[i], high)
        total = i32(total + fixed)
    return total


@njit(nogil=True, cache=True, inline="always")
def _value(code, centre, random, scale):
    """weight Δ (k − u), with scale = weight Δ."""
    negative = i32(centre >> i32(31))
    k = i32(i32(i32(i32(code) - i32(TAIL_LIMIT)) ^ negative) - negative)
    return (f32(k) - f32(i32(centre + random)) * _UNIT) * scale


@njit(nogil=True, cache=True)
def _to_values(codes, first, centres, k0, k1, scale, accumulate, out):
    """The inverse of `_to_codes`; `out` takes the values, or adds them."""
    if accumulate:
        for i in range(HALF):
            low, high = _random(u32(first + u32(i)), k0, k1)
            out[i] += _value(codes[i], centres[i], low, scale)
            out[i + HALF] += _value(codes[i + HALF], centres[i], high, scale)
    else:
        for i in range(HALF):
            low, high = _random(u32(first + u32(i)), k0, k1)
            out[i] = _value(codes[i], centres[i], low, scale)
            out[i + HALF] = _value(codes[i + HALF], centres[i], high, scale)


@njit(nogil=True, cache=True)
def _to_digits(codes, width, digits):
    """Digits of w bits, each in a byte."""
    least, escape = u8(TAIL_LIMIT + 1 - (1 << (width - 1))), u8((1 << width) - 1)
    for i in range(CELL):
        d = u8(codes[i] - least)
        digits[i] = d if d < escape else escape


@njit(nogil=True, cache=True)
def _join_digits(digits, width, data):
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
def _split_bytes(data, width, codes):
    """The inverse of `_join_digits`, and digits to codes."""
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
def _find_escapes(data, width, positions):
    """Which values have a digit of ones only, in the order of bytes and digits; returns how many."""
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
def _class_laws(scale, rotation, laws_):
    """The first row of the law of each state's bytes in a cell."""
    for s in range(N_STATES):
        stratum = (s + rotation) & (N_STRATA - 1)
        c = stratum - N_CLASSES if stratum >= N_CLASSES else N_CLASSES - 1 - stratum
        laws_[s] = u64((scale * N_CLASSES + c) << 8)


@njit(nogil=True, cache=True)
def _rows_of_bytes(data, n, laws_, table, rows):
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
def _rows_of_tails(codes, law, table, rows):
    """A row for each tail symbol, and certain ones to fill up the last group; returns how many."""
    for e in range(codes.size):
        rows[e] = table[law + u64(codes[e])]
    end = (codes.size + N_STATES - 1) // N_STATES * N_STATES
    rows[codes.size : end] = IDENTITY
    return end


@njit(nogil=True, cache=True, error_model="numpy")
def _push(rows, states, units, p, unit, full):
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
def _load(values, usable, x):
    """Values as float32; zeros up to a whole cell, and only zeros where the step is not usable."""
    n = values.size if usable else 0
    for i in range(n):
        x[i] = widen(values[i])
    for i in range(n, CELL):
        x[i] = f32(0)


@njit(nogil=True, cache=True, error_model="numpy")
def _prepare(step):
    """Whether a step is usable; a power of two that keeps its reciprocal within float32; and that reciprocal."""
    usable = step > f32(0) and step < f32(np.inf)
    guard = f32(2.0**64) if step < f32(2.0**-62) else (f32(2.0**-64) if step > f32(2.0**62) else f32(1))
    return usable, guard, f32(1) / (step * guard) if usable else f32(0)


@njit(nogil=True, cache=True)
def _round_block(values, begin, steps, step_size, k0, k1, marks, x, codes, scales):
    """Codes of all values of a block and the scale of each cell."""
    for cell in range(codes.shape[0]):
        at = begin + cell * CELL
        usable, guard, inverse = _prepare(steps[at // step_size])
        _load(values[at : min(at + CELL, values.size)], usable, x)
        rotation = _rotation(cell, k0, k1)
        centres = _CENTRES[rotation : rotation + HALF]
        magnitude = _to_codes(x, guard, inverse, u32(cell * HALF), centres, k0, k1, codes[cell])
        scale = i32(0)
        for i in range(marks.size):
            scale += i32(1) if marks[i] <= magnitude else i32(0)
        scales[cell] = scale


@njit(nogil=True, cache=True)
def _encode_range(first, last, values, steps, step_size, key, widths, table, marks, scratch, sizes):
    units, raws = np.empty(2 * BLOCK_SIZE + 2 * CELLS, np.uint16), np.empty(BLOCK_SIZE, np.uint32)
    x, codes, scales = np.empty(CELL, np.float32), np.empty((CELLS, CELL), np.uint8), np.empty(CELLS, np.int64)
    digits, data, tails = np.empty(CELL, np.uint8), np.empty(CELL, np.uint8), np.empty(CELL, np.uint8)
    digits_8, data_8 = digits.view(np.uint64), data.view(np.uint64)
    rows, positions = np.empty(2 * CELL, np.uint32), np.empty(CELL, np.int64)
    states, laws_ = np.empty(N_STATES, np.uint32), np.empty(N_STATES, np.uint64)
    unit, full = np.empty(N_STATES, np.uint16), np.empty(N_STATES, np.uint8)
    for block in range(first, last):
        k0, k1 = _block_key(key, block)
        begin = block * BLOCK_SIZE
        n_cells = (min(BLOCK_SIZE, values.size - begin) + CELL - 1) // CELL
        _round_block(values, begin, steps, step_size, k0, k1, marks, x, codes[:n_cells], scales)
        n_raws, p = 0, u64(units.size)
        states[:] = u32(LOWEST_STATE)
        for cell in range(n_cells - 1, -1, -1):
            scale, width = scales[cell], i64(widths[scales[cell]])
            n_bytes = CELL * width // 8
            _to_digits(codes[cell], width, digits)
            _join_digits(digits_8, width, data_8)
            _class_laws(scale, _rotation(cell, k0, k1), laws_)
            _rows_of_bytes(data, n_bytes, laws_, table, rows)
            n_tails = _find_escapes(data_8, width, positions)
            for e in range(n_tails - 1, -1, -1):
                tails[e] = codes[cell, positions[e]]
                if tails[e] == u8(RAW):
                    raws[n_raws] = float_bits(widen(values[begin + cell * CELL + positions[e]]))
                    n_raws += 1
            n_rows = n_bytes + _rows_of_tails(tails[:n_tails], u64((TAIL_LAWS + scale) << 8), table, rows[n_bytes:])
            p = _push(rows[:n_rows], states, units, p, unit, full)
        for cell in range(n_cells):
            before = scales[cell - 1] if cell > 0 else 0
            tails[cell] = u8(scales[cell] - before if scales[cell] >= before else scales[cell] - before + N_SCALES)
        n_rows = _rows_of_tails(tails[:n_cells], u64(SCALE_LAW << 8), table, rows)
        p = _push(rows[:n_rows], states, units, p, unit, full)
        sizes[block] = _write_block(units[i64(p) :], raws[:n_raws], states, scratch[block])


@njit(nogil=True, cache=True)
def _write_block(units, raws, states, words):
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
def _pop_bytes(data, laws_, states, units, p, limit, table, slots):
    """Decode bytes, a group of 16 at a time; returns the cursor.

    A corrupt block may use more units than it has. The cursor stays in the block, and shows it in the end.
    """
    for g in range(u64(0), u64(data.size), u64(N_STATES)):
        p = p if p < limit else limit
        for s in range(u64(N_STATES)):
            states[s], p, data[g + s] = _pop(states[s], p, laws_[s], units, table, slots)
    return p


@njit(nogil=True, cache=True)
def _pop_tails(tails, law, states, units, p, limit, table, slots):
    """Decode symbols of one law, the e-th from state e mod 16; returns the cursor."""
    for e in range(tails.size):
        s, p = e & (N_STATES - 1), p if p < limit else limit
        states[s], p, tails[e] = _pop(states[s], p, law, units, table, slots)
    return p


@njit(nogil=True, cache=True)
def _decode_range(
    first, last, words, starts, scales, step_size, key, widths, table, slots, weight, accumulate, out, good
):
    units = words.view(np.uint16)
    data, codes, values = np.empty(CELL, np.uint8), np.empty(CELL, np.uint8), np.empty(CELL, np.float32)
    data_8, codes_8, tails = data.view(np.uint64), codes.view(np.uint64), np.empty(CELL, np.uint8)
    positions, deltas = np.empty(CELL, np.int64), np.empty(CELLS, np.uint8)
    before = np.empty(CELL, np.float32)
    states, laws_ = np.empty(N_STATES, np.uint64), np.empty(N_STATES, np.uint64)
    for block in range(first, last):
        start, end = starts[block], starts[block + 1] - N_STATES
        if end < start:
            continue
        for s in range(N_STATES):
            states[s] = words[end + s]
        if states.min() < _LOWEST or states.max() >= _LOWEST << u64(16):
            continue
        k0, k1 = _block_key(key, block)
        begin = block * BLOCK_SIZE
        n = min(BLOCK_SIZE, out.size - begin)
        n_cells, p, limit = (n + CELL - 1) // CELL, u64(2 * start), u64(2 * end + 1)
        p = _pop_tails(deltas[:n_cells], u64(SCALE_LAW << 8), states, units, p, limit, table, slots)
        scale, next_raw = i64(0), end - 1
        for cell in range(n_cells):
            at = begin + cell * CELL
            scale = (scale + i64(deltas[cell])) % N_SCALES
            width, rotation = i64(widths[scale]), _rotation(cell, k0, k1)
            _class_laws(scale, rotation, laws_)
            for i in range(0, CELL, 16):
                prefetch(out, at + i)
            p = _pop_bytes(data[: CELL * width // 8], laws_, states, units, p, limit, table, slots)
            _split_bytes(data_8, width, codes_8)
            n_tails = _find_escapes(data_8, width, positions)
            p = _pop_tails(tails[:n_tails], u64((TAIL_LAWS + scale) << 8), states, units, p, limit, table, slots)
            whole, rest = at + CELL <= out.size, out[at : at + CELL]
            target = rest if whole else values
            if not whole:
                values[: rest.size] = rest
            for e in range(n_tails):
                codes[positions[e]], before[e] = tails[e], target[positions[e]]
            centres = _CENTRES[rotation : rotation + HALF]
            _to_values(codes, u32(cell * HALF), centres, k0, k1, scales[at // step_size], accumulate, target)
            for e in range(n_tails):
                if tails[e] == u8(RAW):
                    value = bits_float(words[max(next_raw, start)]) * weight
                    target[positions[e]] = before[e] + value if accumulate else value
                    next_raw -= 1
            if not whole:
                rest[:] = values[: rest.size]
        good[block] = next_raw >= start - 1 and _ends_well(states, units, p, u64(2 * (next_raw + 1)))


@njit(nogil=True, cache=True)
def _ends_well(states, units, p, stop):
    """All states back at the start, all units used but for a zero that fills the last word."""
    if p + u64(1) == stop and units[p] == u16(0):
        p += u64(1)
    return states.min() == _LOWEST and states.max() == _LOWEST and p == stop
