"""Elias omega streams; `reference/elias.py` is the specification.

A dense block is a static prefix code (`prefix.py`). A sparse block is written in two passes, the positions of the
non-zeros and then their codes, so that no branch depends on the data; it is read like a prefix code whose codewords
include the zeros before a symbol, and a rare long codeword is decoded bit group by bit group.
"""

from functools import cache

import numpy as np
import torch
from numba import njit

from laconic.kernels.backend import Blocks
from laconic.kernels.cpu import prefix
from laconic.kernels.cpu.bits import trailing_zeros
from laconic.kernels.cpu.bitstream import MAX_SYMBOLS, flush, is_end, peek, put, take_many
from laconic.kernels.cpu.blocks import Array, decode_blocks, encode_blocks
from laconic.kernels.layout import BLOCK_SIZE
from laconic.kernels.reference.elias import dense_codeword, omega_encode, sparse_codeword

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64

SHORT_RUN = 127
"""Omega codes up to this number have at most 13 bits: with sign and magnitude they fit one `put`."""


def elias_encode(symbols: torch.Tensor, bits: int, dense: bool) -> Blocks:
    """Symbols (n,) uint8 below 2**bits to blocks."""
    codes = _codes(bits, dense)
    if dense:
        return prefix.encode(symbols, codes)
    longest = max(1 + int((codes & 255).max()), 2)
    return encode_blocks(symbols, lambda n: (28 + n * longest) // 32 + 2, _encode_range, codes, _run_codes())


def elias_decode(blocks: Blocks, n: int, bits: int, dense: bool) -> tuple[torch.Tensor, int]:
    """Symbols (n,) uint8, and the index of the first corrupt block or -1."""
    tables = _tables(bits, dense)
    return prefix.decode(blocks, n, tables) if dense else decode_blocks(blocks, n, _decode_range, tables[1], bits)


@cache
def _codes(bits: int, dense: bool) -> Array:
    codeword, symbols = dense_codeword if dense else sparse_codeword, range(0 if dense else 1, 2**bits)
    return prefix.code_array({symbol: codeword(symbol, bits) for symbol in symbols})


@cache
def _run_codes() -> Array:
    return prefix.code_array({n: omega_encode(n) for n in range(1, SHORT_RUN + 1)})


@cache
def _tables(bits: int, dense: bool) -> tuple[Array, Array]:
    """Tables of codewords; sparse ones are wide enough for any level with no zeros before it, and include the zeros."""
    return prefix.decode_tables(_codes(bits, dense), prefix.NO_RUNS if dense else _run_codes()[: MAX_SYMBOLS + 1])


@njit(nogil=True, cache=True)
def _omega_code(n):
    """Codeword and length of the omega code of n < 2**32, by groups of bits from the last."""
    code, length = u64(0), u64(1)
    while n > u64(1):
        size = u64(0)
        while n >> size:
            size += u64(1)
        code |= u64(n << length)
        length += size
        n = u64(size - u64(1))
    return code, length


@njit(nogil=True, cache=True)
def _take_omega(window):
    """Number and code length at the head of a 32-bit window; number 0 if its code is longer than the window.

    Codes up to that of BLOCK_SIZE + 1 have 28 bits or fewer, so no legal number is missed.
    """
    n, used = u64(1), u64(0)
    while u64(window >> u64(u64(31) - used)) & u64(1):
        if used + n + u64(1) > u64(31):
            return u64(0), u64(0)
        used, size = u64(used + n + u64(1)), u64(n + u64(1))
        n = u64(u64(window >> u64(u64(32) - used)) & u64(u64(u64(1) << size) - u64(1)))
    return n, u64(used + u64(1))


@njit(nogil=True, cache=True)
def _take_symbol(window, bits):
    """Symbol and code length of sign bit and magnitude at the head of a 32-bit window; length 0 if there is none."""
    signed = u64(bits > 1)
    sign = u64(u64(window >> u64(31)) & signed)
    magnitude, length = _take_omega(u64(u64(window << signed) & u64(0xFFFFFFFF)))
    zero = u64(u64(1) << u64(bits - 1))
    largest = zero if sign or bits == 1 else u64(zero - u64(1))
    if magnitude == u64(0) or magnitude > largest:
        return u64(0), u64(0)
    if bits == 1:
        return magnitude, length
    return u64(u64(sign * zero) | u64(magnitude & u64(zero - u64(1)))), u64(length + u64(1))


@njit(nogil=True, cache=True)
def _encode_range(first, last, symbols, codes, runs, scratch, sizes):
    places = np.empty(BLOCK_SIZE + 1, np.uint16)
    for block in range(first, last):
        part = symbols[block * BLOCK_SIZE : min((block + 1) * BLOCK_SIZE, symbols.size)]
        sizes[block] = _encode_block(part, codes, runs, places, scratch[block])


@njit(nogil=True, cache=True, inline="always")
def _encode_block(symbols, codes, runs, places, words):
    n, n_nonzero = u64(symbols.size), u64(0)
    for i in range(n):
        places[n_nonzero] = u16(i)
        n_nonzero += u64(symbols[i] != u8(0))
    head, length = _omega_code(u64(n_nonzero + u64(1)))
    acc, n_bits, p = put(head, length, u64(0), u64(0), u64(0), words)
    next_place = u64(0)
    for j in range(n_nonzero):
        place = u64(places[j])
        run = u64(place + u64(1) - next_place)
        next_place = u64(place + u64(1))
        if run <= u64(SHORT_RUN):
            head, length = u64(runs[run] >> u32(8)), u64(runs[run] & u32(255))
        else:
            long_code, long_length = _omega_code(run)
            acc, n_bits, p = put(long_code, long_length, acc, n_bits, p, words)
            head, length = u64(0), u64(0)
        code = u64(codes[u64(symbols[place])])
        size = u64(code & u64(255))
        acc, n_bits, p = put(u64(u64(head << size) | u64(code >> u64(8))), u64(length + size), acc, n_bits, p, words)
    return flush(acc, n_bits, p, words)


@njit(nogil=True, cache=True)
def _decode_range(first, last, words, starts, table, bits, symbols, good):
    for block in range(first, last):
        part = symbols[block * BLOCK_SIZE : min((block + 1) * BLOCK_SIZE, symbols.size)]
        good[block] = _decode_block(words, u64(starts[block]), u64(starts[block + 1]), table, bits, part)


@njit(nogil=True, cache=True, inline="always")
def _decode_block(words, start, stop, table, bits, symbols):
    n, i, width = u64(symbols.size), u64(0), trailing_zeros(u64(table.size))
    n_codes, position = _take_omega(peek(words, start, stop, u64(0)))
    if n_codes == u64(0):
        return False
    n_codes -= u64(1)
    while n_codes:
        position, i, n_codes = take_many(words, start, position, table, width, symbols, i, n_codes)
        run, length = _take_omega(peek(words, start, stop, position))
        position += length
        symbol, length = _take_symbol(peek(words, start, stop, position), bits)
        if run == u64(0) or length == u64(0) or run > n - i:
            return False
        symbols[i : u64(i + run - u64(1))] = u8(0)
        symbols[u64(i + run - u64(1))] = u8(symbol)
        i, n_codes, position = u64(i + run), u64(n_codes - u64(1)), u64(position + length)
    symbols[i:] = u8(0)
    return is_end(words, start, stop, position)
