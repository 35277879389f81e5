"""Subtractive dither, rounded and entropy-coded cell by cell; `reference/dither.py` is the specification.

Loops over the 512 values of a cell are ones that LLVM turns into vector code. The encoder rounds a block from the first
cell to the last, as memory is read fastest, and codes it from the last to the first (`cpu/table_rans.py`). Between the
two a value is its *code*, the byte κ + 127, or 255 if it is to be sent raw.
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from laconic.kernels import dither
from laconic.kernels.backend import Blocks
from laconic.kernels.cpu import bits
from laconic.kernels.cpu import table_rans as coder
from laconic.kernels.cpu.bits import bits_float, borrowed, bucket_key, float_bits, hash32, prefetch, reciprocal, widen
from laconic.kernels.cpu.blocks import decode_into, encode_blocks, ends_well, load_states
from laconic.kernels.cpu.fused import stored
from laconic.kernels.cpu.packing import copy
from laconic.kernels.cpu.scaling import DIVIDE, MULTIPLY, scale_span, spans
from laconic.kernels.dither import CELL, HALF, N_SCALES, N_STATES, N_STRATA, RAW, TAIL_LIMIT, ZEROS
from laconic.kernels.layout import BLOCK_SIZE
from laconic.kernels.scaling import ONES, Scale
from laconic.kernels.threads import run

u8, u16, u32, u64, i32, i64, f32 = np.uint8, np.uint16, np.uint32, np.uint64, np.int32, np.int64, np.float32
CELLS = BLOCK_SIZE // CELL
_LOWEST = u64(dither.LOWEST_STATE)
_ROUND, _ROUND_BITS = f32(1.5 * 2**23), i32(0x4B400000)
"""Added to a float32 below 2²², it leaves the nearest integer, halves to even, in the lowest bits."""
_UNIT, _TWICE = f32(2.0 ** -(dither.DITHER_BITS + 1)), u32(2 * (2**16 - 1))
_CENTRES = ((np.arange(N_STRATA + HALF) % N_STRATA << 17) + 1 - (1 << dither.DITHER_BITS)).astype(np.int32)
"""2 q + 1 − 2²⁰ where the 16 random bits of q are zero; cells start at their rotation. Negative where u is."""


def cell_moments(v: Tensor, scale: Scale = ONES) -> Tensor:
    """(2, n_cells) float64: Σ|x| and Σx² of each cell; v is divided by m first, in place."""
    n, x = v.numel(), stored(v)
    out, m = np.empty((2, -(-n // CELL)), np.float64), spans(scale)
    run(lambda first, last: _moments(first, last, x, m, out), out.shape[1], n)
    return torch.from_numpy(out)


def dither_encode(v: Tensor, steps: Tensor, step_size: int, key: int, shape: int) -> Blocks:
    """Values (n,) to blocks; value i has the step Δ = steps[i // step_size], step_size a whole number of cells."""
    rule = (steps.numpy(), step_size, u64(key), *coder.tables(shape)[:2], dither.thresholds())
    return encode_blocks(torch.from_numpy(stored(v)), dither.max_words, _encode_range, *rule)


def dither_decode(
    blocks: Blocks,
    steps: Tensor,
    step_size: int,
    key: int,
    shape: int,
    out: Tensor,
    weight: float,
    accumulate: bool,
    scale: Scale = ONES,
) -> int:
    """out = weight * values, or out += the same, and then out *= m; returns the first corrupt block or -1, and `out` is
    undefined then."""
    rule = ((steps * weight).numpy(), step_size, u64(key), coder.tables(shape))
    return decode_into(blocks, out.numel(), _decode_range, *rule, f32(weight), accumulate, spans(scale), out.numpy())


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def _moments(first, last, values, m, out):
    """Sums in the fastest order: receivers need not repeat them, since the resulting step is sent."""
    for cell in range(first, last):
        x = values[cell * CELL : (cell + 1) * CELL]
        if m[0].size:
            scale_span(x, cell * CELL, m, DIVIDE)
        magnitude, square = 0.0, 0.0
        for i in range(x.size):
            value = np.float64(widen(x[i]))
            magnitude += abs(value)
            square += value * value
        out[0, cell], out[1, cell] = magnitude, square


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
    fixed = i32((a if a < f32(dither.FIXED_LIMIT) else f32(dither.FIXED_LIMIT)) * f32(dither.FIXED_POINT))
    return u8(code if a <= f32(dither.RAW_ABOVE) else i32(RAW)), fixed


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
    for i in range(HALF):
        low, high = _random(u32(first + u32(i)), k0, k1)
        a, b = _value(codes[i], centres[i], low, scale), _value(codes[i + HALF], centres[i], high, scale)
        out[i] = out[i] + a if accumulate else a
        out[i + HALF] = out[i + HALF] + b if accumulate else b


@njit(nogil=True, cache=True)
def _add_zeros(scale, accumulate, out):
    """0 · scale for each value of a cell."""
    zero = f32(0) * scale
    for i in range(out.size):
        out[i] = out[i] + zero if accumulate else zero


@njit(nogil=True, cache=True)
def _load(values, usable, x):
    """Values as float32; zeros up to a whole cell, and only zeros where the step is not usable."""
    n = values.size if usable else 0
    for i in range(n):
        x[i] = widen(values[i])
    for i in range(n, CELL):
        x[i] = f32(0)


@njit(nogil=True, cache=True)
def _all_zero(x):
    """Whether all values of a cell are zero, by their bits, since processors may be set to treat subnormals as zero."""
    bits = u32(0)
    for i in range(CELL):
        bits |= float_bits(x[i])
    return u32(bits << u32(1)) == u32(0)


@njit(nogil=True, cache=True, inline="always")
def _round_block(values, begin, steps, step_size, k0, k1, marks, x, codes, scales):
    """Codes of all values of a block and the scale of each cell."""
    for cell in range(codes.shape[0]):
        at = begin + cell * CELL
        step = steps[at // step_size]
        guard, inverse = reciprocal(step if bits.usable(step) else f32(np.inf))
        _load(values[at : min(at + CELL, values.size)], bits.usable(step), x)
        rotation = _rotation(cell, k0, k1)
        centres = _CENTRES[rotation : rotation + HALF]
        magnitude = _to_codes(x, guard, inverse, u32(cell * HALF), centres, k0, k1, codes[cell])
        scale = i32(ZEROS) if magnitude == i32(0) and _all_zero(x) else i32(0)
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
        k0, k1 = bucket_key(key, block)
        begin = block * BLOCK_SIZE
        n_cells = (min(BLOCK_SIZE, values.size - begin) + CELL - 1) // CELL
        _round_block(values, begin, steps, step_size, k0, k1, marks, x, codes[:n_cells], scales)
        n_raws, p = 0, u64(units.size)
        states[:] = u32(dither.LOWEST_STATE)
        for cell in range(n_cells - 1, -1, -1):
            if scales[cell] == ZEROS:
                continue
            scale, width = scales[cell], i64(widths[scales[cell]])
            n_bytes = CELL * width // 8
            coder.to_digits(codes[cell], width, digits)
            coder.join_digits(digits_8, width, data_8)
            coder.class_laws(scale, _rotation(cell, k0, k1), laws_)
            coder.rows_of_bytes(data, n_bytes, laws_, table, rows)
            n_tails = coder.find_escapes(data_8, width, positions)
            for e in range(n_tails - 1, -1, -1):
                tails[e] = codes[cell, positions[e]]
                if tails[e] == u8(RAW):
                    raws[n_raws] = float_bits(widen(values[begin + cell * CELL + positions[e]]))
                    n_raws += 1
            n_rows = n_bytes + coder.rows_of_tails(tails[:n_tails], coder.TAIL_LAWS + scale, table, rows[n_bytes:])
            p = coder.push(rows[:n_rows], states, units, p, unit, full)
        before = i64(0)
        for cell in range(n_cells):
            tails[cell] = u8(ZEROS)
            if scales[cell] != ZEROS:
                tails[cell] = u8((scales[cell] - before + N_SCALES) % N_SCALES)
                before = scales[cell]
        n_rows = coder.rows_of_tails(tails[:n_cells], coder.SCALE_LAW, table, rows)
        p = coder.push(rows[:n_rows], states, units, p, unit, full)
        sizes[block] = coder.write_block(units[i64(p) :], raws[:n_raws], states, scratch[block])


@njit(nogil=True, cache=True)
def _decode_range(first, last, words, starts, scales, step_size, key, code, weight, accumulate, m, out, good):
    rows, floats, positions = np.empty((4, CELL), np.uint8), np.empty((2, CELL), np.float32), np.empty(CELL, np.int64)
    room = (rows, floats, positions, np.empty(N_STATES, np.uint64), np.empty(N_STATES, np.uint64))
    for block in range(first, last):
        where = (starts[block], starts[block + 1] - N_STATES)
        good[block] = _decode_block(block, words, where, scales, step_size, key, code, weight, accumulate, m, out, room)


@njit(nogil=True, cache=True, inline="always")
def _decode_block(block, words, where, scales, step_size, key, code, weight, accumulate, m, out, room):
    """Decode a block, from word where[0] to its states at where[1]; returns whether it is valid. `room` is scratch."""
    words, out, widths = borrowed(words), borrowed(out), borrowed(code[0])
    table, slots = borrowed(code[1]), borrowed(code[2])
    rows, floats, positions = borrowed(room[0]), borrowed(room[1]), borrowed(room[2])
    states, laws_, units = borrowed(room[3]), borrowed(room[4]), words.view(np.uint16)
    data, codes, tails, deltas, values, before = rows[0], rows[1], rows[2], rows[3], floats[0], floats[1]
    data_8, codes_8 = data.view(np.uint64), codes.view(np.uint64)
    start, end = where
    if end < start or not load_states(words, end, _LOWEST, states):
        return False
    k0, k1 = bucket_key(key, block)
    begin = block * BLOCK_SIZE
    n = min(BLOCK_SIZE, out.size - begin)
    n_cells, p, limit = (n + CELL - 1) // CELL, u64(2 * start), u64(2 * end + 1)
    p = coder.pop_tails(deltas[:n_cells], coder.SCALE_LAW, states, units, p, limit, table, slots)
    scale, next_raw = i64(0), end - 1
    for cell in range(n_cells):
        at = begin + cell * CELL
        rest = out[at : at + CELL]
        if deltas[cell] == u8(ZEROS):
            _add_zeros(scales[at // step_size], accumulate, rest)
            if m[0].size:
                scale_span(rest, at, m, MULTIPLY)
            continue
        scale = (scale + i64(deltas[cell])) % N_SCALES
        width, rotation = i64(widths[scale]), _rotation(cell, k0, k1)
        coder.class_laws(scale, rotation, laws_)
        for i in range(0, CELL, 16):
            prefetch(out, at + i)
        p = coder.pop_bytes(data[: CELL * width // 8], laws_, states, units, p, limit, table, slots)
        coder.split_bytes(data_8, width, codes_8)
        n_tails = coder.find_escapes(data_8, width, positions)
        p = coder.pop_tails(tails[:n_tails], coder.TAIL_LAWS + scale, states, units, p, limit, table, slots)
        whole = at + CELL <= out.size
        target = rest if whole else values
        if not whole:
            copy(rest, values[: rest.size])
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
            copy(values, rest)
        if m[0].size:
            scale_span(rest, at, m, MULTIPLY)
    return next_raw >= start - 1 and ends_well(states, _LOWEST, units, p, u64(2 * (next_raw + 1)))
