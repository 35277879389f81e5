"""Subtractive dither, rounded and entropy-coded in one pass per cell; `reference/dither.py` is the specification.

Loops over the 512 values of a cell are ones that LLVM turns into vector code. The coder's states live in an array: the
16 states of a block are independent, so that their steps overlap, and only the cursor goes from one to the next.
"""

from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit

from laconic.kernels.backend import Blocks
from laconic.kernels.cpu.bits import bits_float, bucket_key, float_bits, hash32, widen
from laconic.kernels.cpu.blocks import Array, encode_blocks
from laconic.kernels.cpu.fused import _stored
from laconic.kernels.cpu.threads import run
from laconic.kernels.dither import (
    CELL,
    FIXED_LIMIT,
    FIXED_POINT,
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
from laconic.kernels.reference.dither import BEYOND

u8, u16, u32, u64, i32, i64, f32 = np.uint8, np.uint16, np.uint32, np.uint64, np.int32, np.int64, np.float32
CELLS = BLOCK_SIZE // CELL
TAIL_LAWS, SCALE_LAW = N_SCALES * N_CLASSES, N_SCALES * N_CLASSES + N_SCALES
_P, _MASK, _LOWEST = u64(PRECISION), u64(TOTAL - 1), u64(LOWEST_STATE)
_ROUND = f32(1.5 * 2**23)
"""Adding and subtracting it rounds a float32 below 2²² to a whole number, halves to even."""


@cache
def _tables(shape: int) -> tuple[Any, ...]:
    """What the kernels take of a shape's laws: width per scale, and by law and symbol: frequency, start, reciprocal;
    by law and slot: symbol."""
    found = laws(shape)
    f = np.zeros((SCALE_LAW + 1, 256), np.int64)
    f[:TAIL_LAWS] = found.bytes_.reshape(-1, 256)
    f[TAIL_LAWS:SCALE_LAW] = found.tails
    f[SCALE_LAW, :N_SCALES] = found.scales
    start = np.cumsum(f, 1) - f
    reciprocal = (2 ** (32 + PRECISION) - 1) // np.maximum(f, 1)
    slots = np.stack([np.repeat(np.arange(256, dtype=u8), row) for row in f])
    packed = (f << 16 | start).astype(u32)
    return found.widths, packed.ravel(), reciprocal.astype(u64).ravel(), slots.ravel()


def cell_moments(v: torch.Tensor) -> torch.Tensor:
    """(2, n_cells) float64: Σ|x| and Σx² of each cell."""
    n, x = v.numel(), _stored(v)
    out = np.empty((2, -(-n // CELL)), np.float64)
    run(lambda first, last: _moments(first, last, x, out), out.shape[1], n)
    return torch.from_numpy(out)


def dither_encode(v: torch.Tensor, steps: torch.Tensor, step_size: int, key: int, shape: int) -> Blocks:
    """Values (n,) to blocks; value i has the step Δ = steps[i // step_size], step_size a whole number of cells."""
    widths, packed, reciprocal, _ = _tables(shape)
    marks = thresholds()
    x, deltas = _stored(v), steps.numpy()

    def kernel(first: int, last: int, values: Array, scratch: Array, sizes: Array) -> None:
        _encode_range(
            first, last, values, deltas, step_size, u64(key), widths, packed, reciprocal, marks, scratch, sizes
        )

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
    widths, packed, _, slots = _tables(shape)
    words = blocks[1].contiguous().numpy().view(u32)
    where, good, y = np.array(starts, i64), np.zeros(n_blocks(n), np.bool_), out.numpy()
    scales = (steps * weight).numpy()
    args = (words, where, scales, step_size, u64(key), widths, packed, slots, f32(weight), accumulate, y, good)
    run(lambda first, last: _decode_range(first, last, *args), len(good), n)
    return -1 if good.all() else int(good.argmin())


@njit(nogil=True, cache=True, inline="always")
def _dither(i, first, rotation, k0, k1):
    """The 24 random bits q of position first + i, of which u = (2 q + 1 − 2²⁴) / 2²⁵."""
    stratum = u32(u32(u32(i) + rotation) & u32(N_STRATA - 1))
    return u32(u32(stratum << u32(20)) | u32(hash32(u32(first + u32(i)), k0, k1) >> u32(12)))


@njit(nogil=True, cache=True, inline="always")
def _offset(q):
    return f32(i32(i32(u32(q << u32(1))) + i32(1) - i32(1 << 24))) * f32(2.0**-25)


@njit(nogil=True, cache=True)
def _moments(first, last, values, out):
    """Sums in four float64 each, which LLVM does not join by itself."""
    for cell in range(first, last):
        x = values[cell * CELL : (cell + 1) * CELL]
        a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
        b0, b1, b2, b3 = 0.0, 0.0, 0.0, 0.0
        whole = x.size // 4 * 4
        for i in range(0, whole, 4):
            x0, x1 = np.float64(widen(x[i])), np.float64(widen(x[i + 1]))
            x2, x3 = np.float64(widen(x[i + 2])), np.float64(widen(x[i + 3]))
            a0, a1, a2, a3 = a0 + abs(x0), a1 + abs(x1), a2 + abs(x2), a3 + abs(x3)
            b0, b1, b2, b3 = b0 + x0 * x0, b1 + x1 * x1, b2 + x2 * x2, b3 + x3 * x3
        for i in range(whole, x.size):
            x0 = np.float64(widen(x[i]))
            a0, b0 = a0 + abs(x0), b0 + x0 * x0
        out[0, cell], out[1, cell] = (a0 + a1) + (a2 + a3), (b0 + b1) + (b2 + b3)


@njit(nogil=True, cache=True)
def _symbols(x, guard, inverse, first, rotation, k0, k1, kappa):
    """κ of each value of a cell; returns the cell's magnitude in fixed point."""
    total = i32(0)
    for i in range(CELL):
        q = _dither(i, first, rotation, k0, k1)
        t = (x[i] * guard) * inverse
        a = abs(t)
        k = i32(((t + _offset(q)) + _ROUND) - _ROUND if a <= f32(RAW_ABOVE) else f32(BEYOND))
        kappa[i] = k if q >= u32(1 << 23) or k == i32(BEYOND) else i32(-k)
        a = a if a < f32(FIXED_LIMIT) else f32(FIXED_LIMIT)
        total = i32(total + i32(a * f32(FIXED_POINT)))
    return total


@njit(nogil=True, cache=True)
def _to_digits(kappa, width, digits):
    """Digits of w bits; returns how many are escapes."""
    limit, escape, count = i32((1 << (width - 1)) - 1), u32((1 << width) - 1), i32(0)
    for i in range(CELL):
        d = u32(kappa[i] + limit)
        d = d if d < escape else escape
        digits[i] = d
        count = i32(count + (i32(1) if d == escape else i32(0)))
    return count


@njit(nogil=True, cache=True)
def _join_digits(digits, width, out):
    """Digits to bytes in the coder's order: groups of 64 values, then bytes, then the 16 strata."""
    if width == 2:
        for g in range(CELL // 64):
            for s in range(N_STATES):
                i = g * 64 + s
                out[g * 16 + s] = u8(
                    digits[i] | digits[i + 16] << u32(2) | digits[i + 32] << u32(4) | digits[i + 48] << u32(6)
                )
    elif width == 4:
        for g in range(CELL // 32):
            for s in range(N_STATES):
                i = g * 32 + s
                out[g * 16 + s] = u8(digits[i] | digits[i + 16] << u32(4))
    else:
        for i in range(CELL):
            out[i] = u8(digits[i])


@njit(nogil=True, cache=True)
def _split_bytes(data, width, kappa):
    """The inverse of `_join_digits` and `_to_digits`; returns how many are escapes, whose κ is one past the limit."""
    escaped, count = i32(1 << (width - 1)), i32(0)
    if width == 2:
        for g in range(CELL // 64):
            part, out = data[g * 16 : g * 16 + 16], kappa[g * 64 : g * 64 + 64]
            for s in range(N_STATES):
                digits = u32(part[s])
                out[s] = i32(i32(digits & u32(3)) - i32(1))
                out[s + 16] = i32(i32(u32(digits >> u32(2)) & u32(3)) - i32(1))
                out[s + 32] = i32(i32(u32(digits >> u32(4)) & u32(3)) - i32(1))
                out[s + 48] = i32(i32(u32(digits >> u32(6)) & u32(3)) - i32(1))
    elif width == 4:
        for g in range(CELL // 32):
            part, out = data[g * 16 : g * 16 + 16], kappa[g * 32 : g * 32 + 32]
            for s in range(N_STATES):
                digits = u32(part[s])
                out[s] = i32(i32(digits & u32(15)) - i32(7))
                out[s + 16] = i32(i32(u32(digits >> u32(4)) & u32(15)) - i32(7))
    else:
        for i in range(CELL):
            kappa[i] = i32(i32(data[i]) - i32(127))
    for i in range(CELL):
        count = i32(count + (i32(1) if kappa[i] == escaped else i32(0)))
    return count


@njit(nogil=True, cache=True)
def _class_laws(scale, rotation, laws_):
    """The law of each state's bytes in a cell."""
    for s in range(N_STATES):
        stratum = (s + i64(rotation)) & (N_STRATA - 1)
        c = stratum - N_CLASSES if stratum >= N_CLASSES else N_CLASSES - 1 - stratum
        laws_[s] = u64(scale * N_CLASSES + c)


@njit(nogil=True, cache=True)
def _all_escapes(data, n, laws_, packed, width, digits):
    """Bytes that have no frequency become escapes; returns by how many the escapes have grown."""
    grown, escape, per_byte = i32(0), u32((1 << width) - 1), 8 // width
    for j in range(n):
        if packed[(laws_[j & (N_STATES - 1)] << u64(8)) + u64(data[j])] >> u32(16) == u32(0):
            data[j] = u8(255)
            first = (j // N_STATES) * N_STATES * per_byte + (j & (N_STATES - 1))
            for d in range(per_byte):
                i = first + d * N_STATES
                grown += i32(1) if digits[i] != escape else i32(0)
                digits[i] = escape
    return grown


@njit(nogil=True, cache=True)
def _find_tails(digits, width, kappa, x, tails, n_tails, raws, n_raws):
    """Tail symbols, and the values themselves where there is none for them."""
    escape = u32((1 << width) - 1)
    for i in range(CELL):
        if digits[i] == escape:
            inside = kappa[i] >= -TAIL_LIMIT and kappa[i] <= TAIL_LIMIT
            tails[n_tails] = u8(kappa[i] + TAIL_LIMIT) if inside else u8(RAW)
            n_tails += 1
            if not inside:
                raws[n_raws] = float_bits(x[i])
                n_raws += 1
    return n_tails, n_raws


@njit(nogil=True, cache=True, inline="always")
def _push(x, p, law, symbol, packed, reciprocal, units):
    """One step of the encoder: state x; units[p:] is written. At most one unit per symbol."""
    row = u64(u64(law << u64(8)) + u64(symbol))
    f, start = u64(packed[row] >> u32(16)), u64(packed[row] & u32(0xFFFF))
    units[u64(p - u64(1))] = u16(x)
    full = u64(x >= u64(f << u64(32 - PRECISION)))
    x = u64(x >> u64(full << u64(4)))
    quotient = u64(u64((x + u64(1)) * reciprocal[row]) >> u64(32 + PRECISION))
    return u64(x + quotient * u64(u64(TOTAL) - f) + start), u64(p - full)


@njit(nogil=True, cache=True)
def _load(values, start, usable, x):
    """A cell's values as float32; zeros past the end, and all of them where the step is not usable."""
    n = min(CELL, values.size - start) if usable else 0
    for i in range(n):
        x[i] = widen(values[start + i])
    for i in range(n, CELL):
        x[i] = f32(0)


@njit(nogil=True, cache=True, error_model="numpy")
def _prepare(step):
    """Whether a step is usable; a power of two that keeps its reciprocal within float32; and that reciprocal."""
    usable = step > f32(0) and step < f32(np.inf)
    guard = f32(2.0**64) if step < f32(2.0**-62) else (f32(2.0**-64) if step > f32(2.0**62) else f32(1))
    return usable, guard, f32(1) / (step * guard) if usable else f32(0)


@njit(nogil=True, cache=True, error_model="numpy")
def _encode_range(first, last, values, steps, step_size, key, widths, packed, reciprocal, marks, scratch, sizes):
    units = np.empty(2 * BLOCK_SIZE + 2 * CELLS, np.uint16)
    data, tails = np.empty(BLOCK_SIZE, np.uint8), np.empty(BLOCK_SIZE, np.uint8)
    raws, ends = np.empty(BLOCK_SIZE, np.uint32), np.empty(CELLS + 1, np.int64)
    scales, rotations = np.empty(CELLS, np.int64), np.empty(CELLS, np.uint32)
    x, kappa, digits = np.empty(CELL, np.float32), np.empty(CELL, np.int32), np.empty(CELL, np.uint32)
    states, laws_ = np.empty(N_STATES, np.uint64), np.empty(N_STATES, np.uint64)
    for block in range(first, last):
        halves = bucket_key(key, block)
        k0, k1 = u32(halves & u64(0xFFFFFFFF)), u32(halves >> u64(32))
        begin = block * BLOCK_SIZE
        n_cells = (min(BLOCK_SIZE, values.size - begin) + CELL - 1) // CELL
        n_tails, n_raws = 0, 0
        for cell in range(n_cells):
            at = cell * CELL
            usable, guard, inverse = _prepare(steps[(begin + at) // step_size])
            _load(values, begin + at, usable, x)
            rotation = u32(hash32(u32(BLOCK_SIZE + cell), k0, k1) & u32(N_STRATA - 1))
            magnitude = _symbols(x, guard, inverse, u32(at), rotation, k0, k1, kappa)
            scale = np.searchsorted(marks, i64(magnitude), "right")
            width = i64(widths[scale])
            part, n_bytes = data[at : at + CELL], CELL * width // 8
            count = _to_digits(kappa, width, digits)
            _join_digits(digits, width, part)
            _class_laws(scale, rotation, laws_)
            count += _all_escapes(part, n_bytes, laws_, packed, width, digits)
            ends[cell], scales[cell], rotations[cell] = n_tails, scale, rotation
            if count > 0:
                n_tails, n_raws = _find_tails(digits, width, kappa, x, tails, n_tails, raws, n_raws)
        ends[n_cells] = n_tails
        states[:] = _LOWEST
        p = u64(units.size)
        for cell in range(n_cells - 1, -1, -1):
            scale, n_bytes = scales[cell], CELL * i64(widths[scales[cell]]) // 8
            for e in range(ends[cell + 1] - 1, ends[cell] - 1, -1):
                s = (e - ends[cell]) & (N_STATES - 1)
                states[s], p = _push(states[s], p, u64(TAIL_LAWS + scale), tails[e], packed, reciprocal, units)
            _class_laws(scale, rotations[cell], laws_)
            for g in range(n_bytes // N_STATES - 1, -1, -1):
                at = cell * CELL + g * N_STATES
                for j in range(N_STATES):
                    s = N_STATES - 1 - j
                    states[s], p = _push(states[s], p, laws_[s], data[at + s], packed, reciprocal, units)
            before = scales[cell - 1] if cell > 0 else 0
            delta = scale - before if scale >= before else scale - before + N_SCALES
            s = cell & (N_STATES - 1)
            states[s], p = _push(states[s], p, u64(SCALE_LAW), delta, packed, reciprocal, units)
        sizes[block] = _write_block(states, units[i64(p) :], raws[:n_raws], scratch[block])


@njit(nogil=True, cache=True)
def _write_block(states, units, raws, words):
    """States, units two per word, then the raw values from the last to the first; returns the number of words."""
    for s in range(N_STATES):
        words[s] = u32(states[s])
    n_pairs = units.size // 2
    for j in range(n_pairs):
        words[N_STATES + j] = u32(u32(units[2 * j]) | u32(u32(units[2 * j + 1]) << u32(16)))
    n = N_STATES + n_pairs
    if units.size % 2:
        words[n] = u32(units[units.size - 1])
        n += 1
    for r in range(raws.size):
        words[n + r] = raws[raws.size - 1 - r]
    return n + raws.size


@njit(nogil=True, cache=True, inline="always")
def _pop(x, p, last_unit, law, units, packed, slots):
    """One step of the decoder: state, cursor and symbol."""
    slot = u64(x & _MASK)
    symbol = slots[u64(u64(law << _P) + slot)]
    entry = packed[u64(u64(law << u64(8)) + u64(symbol))]
    x = u64(u64(entry >> u32(16)) * u64(x >> _P) + slot - u64(entry & u32(0xFFFF)))
    unit = u64(units[p if p < last_unit else last_unit])
    low = x < _LOWEST
    return u64(u64(x << u64(16)) | unit) if low else x, u64(p + u64(low)), symbol


@njit(nogil=True, cache=True)
def _values(kappa, first, rotation, k0, k1, scale, out):
    """weight Δ (k − u), with scale = weight Δ."""
    for i in range(CELL):
        q = _dither(i, first, rotation, k0, k1)
        k = kappa[i] if q >= u32(1 << 23) else i32(-kappa[i])
        out[i] = (f32(k) - _offset(q)) * scale


@njit(nogil=True, cache=True)
def _store(values, accumulate, out):
    if accumulate:
        for i in range(out.size):
            out[i] += values[i]
    else:
        for i in range(out.size):
            out[i] = values[i]


@njit(nogil=True, cache=True)
def _decode_range(
    first, last, words, starts, scales, step_size, key, widths, packed, slots, weight, accumulate, out, good
):
    units = words.view(np.uint16)
    data, kappa, values = np.empty(CELL, np.uint8), np.empty(CELL, np.int32), np.empty(CELL, np.float32)
    raw_at, raw = np.empty(CELL, np.int64), np.empty(CELL, np.float32)
    states, laws_ = np.empty(N_STATES, np.uint64), np.empty(N_STATES, np.uint64)
    for block in range(first, last):
        start, stop = starts[block], starts[block + 1]
        if stop - start < N_STATES:
            continue
        for s in range(N_STATES):
            states[s] = words[start + s]
        if states.min() < _LOWEST:
            continue
        halves = bucket_key(key, block)
        k0, k1 = u32(halves & u64(0xFFFFFFFF)), u32(halves >> u64(32))
        begin = block * BLOCK_SIZE
        n = min(BLOCK_SIZE, out.size - begin)
        p, last_unit = u64(2 * (start + N_STATES)), u64(2 * words.size - 1)
        scale, next_raw, sound = i64(0), stop - 1, True
        for cell in range((n + CELL - 1) // CELL):
            at = cell * CELL
            s = cell & (N_STATES - 1)
            states[s], p, symbol = _pop(states[s], p, last_unit, u64(SCALE_LAW), units, packed, slots)
            scale = (scale + i64(symbol)) % N_SCALES
            width = i64(widths[scale])
            rotation = u32(hash32(u32(BLOCK_SIZE + cell), k0, k1) & u32(N_STRATA - 1))
            _class_laws(scale, rotation, laws_)
            for g in range(width * CELL // 8 // N_STATES):
                for s in range(N_STATES):
                    states[s], p, symbol = _pop(states[s], p, last_unit, laws_[s], units, packed, slots)
                    data[g * N_STATES + s] = symbol
            n_raws = 0
            if _split_bytes(data, width, kappa) > 0:
                e, escaped = 0, i32(1 << (width - 1))
                for i in range(CELL):
                    if kappa[i] == escaped:
                        s = e & (N_STATES - 1)
                        e += 1
                        law = u64(TAIL_LAWS + scale)
                        states[s], p, symbol = _pop(states[s], p, last_unit, law, units, packed, slots)
                        kappa[i] = i32(symbol) - i32(TAIL_LIMIT)
                        if symbol == u8(RAW):
                            sound = sound and next_raw >= start + N_STATES
                            raw_at[n_raws] = i
                            raw[n_raws] = bits_float(words[max(next_raw, start)]) * weight
                            n_raws += 1
                            next_raw -= 1
            _values(kappa, u32(at), rotation, k0, k1, scales[(begin + at) // step_size], values)
            for r in range(n_raws):
                values[raw_at[r]] = raw[r]
            _store(values, accumulate, out[begin + at : begin + min(at + CELL, n)])
        good[block] = sound and _ends_well(states, units, p, u64(2 * (next_raw + 1)))


@njit(nogil=True, cache=True)
def _ends_well(states, units, p, stop):
    """All states back at the start, all units used but for a zero that fills the last word."""
    if p + u64(1) == stop and units[p] == u16(0):
        p += u64(1)
    return states.min() == _LOWEST and states.max() == _LOWEST and p == stop
