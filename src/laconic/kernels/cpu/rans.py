"""Interleaved rANS; `reference/rans.py` is the specification.

No branch depends on the data: a unit is always stored, or loaded, and the cursor moves or not. The division by the
frequency f is a multiplication: for x < f 2**(32 - P), which renormalisation ensures,

    x div f == (x + 1) r >> (32 + P)    with r = (2**(32 + P) - 1) div f,

and the product stays below 2**64. (Let e = 2**(32 + P) - r f, so 1 <= e <= f <= 2**P. The right side before the shift
down is ((x + 1) - e (x + 1) / 2**(32 + P)) / f, and 0 < e (x + 1) / 2**(32 + P) <= 1.)
"""

import numpy as np
from numba import njit
from torch import Tensor

from laconic.kernels.backend import Blocks
from laconic.kernels.cpu.blocks import Array, decode_blocks, encode_blocks, ends_well, load_states
from laconic.kernels.layout import BLOCK_SIZE
from laconic.kernels.reference.rans import LOWEST_STATE, N_STATES, PRECISION, TOTAL, table

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64

_P, _M, _LOWEST = u64(PRECISION), u64(TOTAL), u64(LOWEST_STATE)
_PRODUCT_SHIFT = u64(32 + PRECISION)


def rans_encode(symbols: Tensor, frequencies: Tensor) -> Blocks:
    """Symbols (n,) uint8 to blocks, by `frequencies` (int32, 2**bits); every symbol that occurs has one."""
    return encode_blocks(symbols, lambda n: N_STATES + (n + 1) // 2, _encode_range, _encoder_columns(frequencies))


def rans_decode(blocks: Blocks, n: int, frequencies: Tensor) -> tuple[Tensor, int]:
    """Symbols (n,) uint8, and the index of the first corrupt block or -1."""
    slots = np.repeat(np.arange(frequencies.numel(), dtype=u8), frequencies.numpy())
    return decode_blocks(blocks, n, _decode_range, slots, _decoder_columns(frequencies))


def _encoder_columns(frequencies: Tensor) -> Array:
    """Four columns of 256, one after another: f 2**(32 - P), reciprocal of f, M - f, start.

    There is a row for every byte, so that no look-up leaves the table whatever the symbols are.
    """
    columns = np.zeros((4, 256), u64)
    f, start = np.array(table(frequencies), u64).T
    columns[:, : f.size] = (
        f << u64(32 - PRECISION),
        u64(2 ** (32 + PRECISION) - 1) // np.maximum(f, 1),
        TOTAL - f,
        start,
    )
    return columns.ravel()


def _decoder_columns(frequencies: Tensor) -> Array:
    """Two columns of 256, one after another: f, start."""
    columns = np.zeros((2, 256), u64)
    columns[:, : frequencies.numel()] = np.array(table(frequencies)).T
    return columns.ravel()


@njit(nogil=True, cache=True)
def _encode_range(first, last, symbols, columns, scratch, sizes):
    units = np.empty(BLOCK_SIZE, np.uint16)
    states = np.empty(N_STATES, np.uint64)
    for block in range(first, last):
        part = symbols[block * BLOCK_SIZE : min((block + 1) * BLOCK_SIZE, symbols.size)]
        p = np.int64(_encode_block(part, columns, units, states))
        sizes[block] = _write_block(states, units[p:], scratch[block])


@njit(nogil=True, cache=True)
def _push(x, p, symbol, columns, units):
    """One step of the encoder: state x; units[p:] is written. At most one unit per symbol."""
    s = u64(symbol)
    units[u64(p - u64(1))] = u16(x)
    full = x >= columns[s]
    x = u64(x >> u64(16)) if full else x
    q = u64(u64((x + u64(1)) * columns[s + u64(256)]) >> _PRODUCT_SHIFT)
    return u64(x + q * columns[s + u64(512)] + columns[s + u64(768)]), u64(p - u64(full))


@njit(nogil=True, cache=True)
def _encode_block(symbols, columns, units, states):
    """Fill `units` from its end; returns where they start."""
    i, p = u64(symbols.size), u64(units.size)
    states[:] = _LOWEST
    while i & u64(7):
        i -= u64(1)
        s = i & u64(7)
        states[s], p = _push(states[s], p, symbols[i], columns, units)
    x0, x1, x2, x3 = states[0], states[1], states[2], states[3]
    x4, x5, x6, x7 = states[4], states[5], states[6], states[7]
    while i > u64(0):
        i -= u64(8)
        x7, p = _push(x7, p, symbols[i + u64(7)], columns, units)
        x6, p = _push(x6, p, symbols[i + u64(6)], columns, units)
        x5, p = _push(x5, p, symbols[i + u64(5)], columns, units)
        x4, p = _push(x4, p, symbols[i + u64(4)], columns, units)
        x3, p = _push(x3, p, symbols[i + u64(3)], columns, units)
        x2, p = _push(x2, p, symbols[i + u64(2)], columns, units)
        x1, p = _push(x1, p, symbols[i + u64(1)], columns, units)
        x0, p = _push(x0, p, symbols[i], columns, units)
    states[0], states[1], states[2], states[3] = x0, x1, x2, x3
    states[4], states[5], states[6], states[7] = x4, x5, x6, x7
    return p


@njit(nogil=True, cache=True)
def _write_block(states, units, words):
    """States, then two units per word; returns the number of words."""
    n, halves = N_STATES + (units.size + 1) // 2, words.view(np.uint16)
    halves[2 * n - 1] = u16(0)
    for s in range(N_STATES):
        words[s] = u32(states[s])
    for j in range(units.size):
        halves[2 * N_STATES + j] = units[j]
    return n


@njit(nogil=True, cache=True)
def _decode_range(first, last, words, starts, slots, columns, symbols, good):
    units = words.view(np.uint16)
    states = np.empty(N_STATES, np.uint64)
    for block in range(first, last):
        start, stop = starts[block], starts[block + 1]
        if stop - start < N_STATES or not load_states(words, start, _LOWEST, states):
            continue
        part = symbols[block * BLOCK_SIZE : min((block + 1) * BLOCK_SIZE, symbols.size)]
        p = _decode_block(units, u64(2 * (start + N_STATES)), slots, columns, states, part)
        good[block] = ends_well(states, _LOWEST, units, p, u64(2 * stop))


@njit(nogil=True, cache=True)
def _pop(x, p, unit, slots, columns, symbols, i):
    """One step of the decoder: state x; `unit` is the next, number p."""
    slot = x & u64(_M - u64(1))
    symbols[i] = slots[slot]
    s = u64(slots[slot])
    x = u64(columns[s] * (x >> _P) + slot - columns[s + u64(256)])
    refilled = u64(u64(x << u64(16)) | u64(unit))
    low = x < _LOWEST
    return refilled if low else x, u64(p + u64(low))


@njit(nogil=True, cache=True)
def _decode_block(units, p, slots, columns, states, symbols):
    """Decode all symbols from units[p:]; returns the first unit not used.

    A corrupt block may run into the units of the next; past the last unit it reads zeros. Either shows at the end.
    """
    n, n_units, i = u64(symbols.size), u64(units.size), u64(0)
    x0, x1, x2, x3 = states[0], states[1], states[2], states[3]
    x4, x5, x6, x7 = states[4], states[5], states[6], states[7]
    while i + u64(8) <= n and p + u64(8) <= n_units:
        x0, p = _pop(x0, p, units[p], slots, columns, symbols, i)
        x1, p = _pop(x1, p, units[p], slots, columns, symbols, i + u64(1))
        x2, p = _pop(x2, p, units[p], slots, columns, symbols, i + u64(2))
        x3, p = _pop(x3, p, units[p], slots, columns, symbols, i + u64(3))
        x4, p = _pop(x4, p, units[p], slots, columns, symbols, i + u64(4))
        x5, p = _pop(x5, p, units[p], slots, columns, symbols, i + u64(5))
        x6, p = _pop(x6, p, units[p], slots, columns, symbols, i + u64(6))
        x7, p = _pop(x7, p, units[p], slots, columns, symbols, i + u64(7))
        i += u64(8)
    states[0], states[1], states[2], states[3] = x0, x1, x2, x3
    states[4], states[5], states[6], states[7] = x4, x5, x6, x7
    while i < n:
        s = i & u64(7)
        unit = units[p] if p < n_units else u16(0)
        states[s], p = _pop(states[s], p, unit, slots, columns, symbols, i)
        i += u64(1)
    return p
