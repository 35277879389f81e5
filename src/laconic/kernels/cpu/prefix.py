"""A static prefix code over bytes, which dense Elias and Huffman streams are.

A code is an array `codes` (uint32, 256): codeword << 8 | length, and 0 for a symbol without a codeword. No codeword is
longer than 15 bits.
"""

import numpy as np
from numba import njit
from torch import Tensor

from laconic.kernels.backend import Blocks
from laconic.kernels.cpu.bits import trailing_zeros
from laconic.kernels.cpu.bitstream import MAX_SYMBOLS, flush, is_end, peek, put, take_many
from laconic.kernels.cpu.blocks import Array, decode_blocks, encode_blocks
from laconic.kernels.layout import BLOCK_SIZE
from laconic.kernels.reference.huffman import canonical_codes

u8, u32, u64 = np.uint8, np.uint32, np.uint64

MIN_WIDTH = 12
"""Tables have at least 2**12 entries, so that several short codewords fit; more where one codeword is longer."""
NO_RUNS = np.zeros(2, u32)
"""Every run is of one symbol, and has no codeword."""


def code_array(codewords: dict[int, str]) -> Array:
    """Codewords written as bits to the array the kernels use."""
    codes = np.zeros(256, u32)
    for symbol, codeword in codewords.items():
        codes[symbol] = int(codeword, 2) << 8 | len(codeword)
    return codes


def decode_tables(codes: Array, runs: Array = NO_RUNS) -> tuple[Array, Array]:
    """For each string of `width` bits its first codeword (run << 16 | symbol << 8 | length), and all that fit
    (`bitstream`); before each symbol comes the codeword runs[run] of a run, which counts the zeros and the symbol."""
    width = max(MIN_WIDTH, int((codes & 255).max() + (runs[1] & 255)))
    single, many = np.zeros(2**width, u32), np.zeros(2**width, u64)
    _fill_single(codes, runs, width, single)
    _fill_many(single, width, many)
    return single, many


def encode(symbols: Tensor, codes: Array) -> Blocks:
    """Symbols (n,) uint8 to blocks."""
    longest = int((codes & 255).max())
    return encode_blocks(symbols, lambda n: n * longest // 32 + 2, _encode_range, codes)


def decode(blocks: Blocks, n: int, tables: tuple[Array, Array]) -> tuple[Tensor, int]:
    """Symbols (n,) uint8, and the index of the first corrupt block or -1."""
    return decode_blocks(blocks, n, _decode_range, *tables)


def huffman_encode(symbols: Tensor, lengths: Tensor) -> Blocks:
    """Symbols (n,) uint8 to blocks, by code `lengths` (uint8, 2**bits); every symbol that occurs has a length."""
    return encode(symbols, code_array(canonical_codes(lengths)))


def huffman_decode(blocks: Blocks, n: int, lengths: Tensor) -> tuple[Tensor, int]:
    """Symbols (n,) uint8, and the index of the first corrupt block or -1."""
    return decode(blocks, n, decode_tables(code_array(canonical_codes(lengths))))


@njit(nogil=True, cache=True)
def _fill_single(codes, runs, width, single):
    for run in range(1, runs.size):
        for symbol in range(256):
            size = np.int64(codes[symbol] & u32(255))
            length = size + np.int64(runs[run] & u32(255))
            if size and length <= width:
                code = np.int64(runs[run] >> u32(8)) << size | np.int64(codes[symbol] >> u32(8))
                first = code << (width - length)
                single[first : first + (1 << (width - length))] = run << 16 | symbol << 8 | length


@njit(nogil=True, cache=True)
def _fill_many(single, width, many):
    for bits in range(single.size):
        n_symbols, n_codes, position, entry = np.int64(0), 0, np.int64(0), u64(0)
        while True:
            code = np.int64(single[(bits << position) & (single.size - 1)])
            length, run = code & 255, code >> 16
            if length == 0 or position + length > width or n_symbols + run > MAX_SYMBOLS:
                break
            n_symbols, n_codes, position = n_symbols + run, n_codes + 1, position + length
            entry |= u64(u64(code >> 8 & 255) << u64(8 * (n_symbols - 1)))
        many[bits] = entry | u64(n_symbols) << u64(48) | u64(n_codes) << u64(52) | u64(position) << u64(56)


@njit(nogil=True, cache=True)
def _encode_range(first, last, symbols, codes, scratch, sizes):
    for block in range(first, last):
        part = symbols[block * BLOCK_SIZE : min((block + 1) * BLOCK_SIZE, symbols.size)]
        sizes[block] = _encode_block(part, codes, scratch[block])


@njit(nogil=True, cache=True, inline="always")
def _encode_block(symbols, codes, words):
    """Two codewords at a time: together they are at most 30 bits."""
    n, i, acc, n_bits, p = u64(symbols.size), u64(0), u64(0), u64(0), u64(0)
    while i + u64(2) <= n:
        a, b = u64(codes[u64(symbols[i])]), u64(codes[u64(symbols[i + u64(1)])])
        length_a, length_b = u64(a & u64(255)), u64(b & u64(255))
        code = u64(u64(u64(a >> u64(8)) << length_b) | u64(b >> u64(8)))
        acc, n_bits, p = put(code, u64(length_a + length_b), acc, n_bits, p, words)
        i += u64(2)
    if i < n:
        a = u64(codes[u64(symbols[i])])
        acc, n_bits, p = put(u64(a >> u64(8)), u64(a & u64(255)), acc, n_bits, p, words)
    return flush(acc, n_bits, p, words)


@njit(nogil=True, cache=True)
def _decode_range(first, last, words, starts, single, many, symbols, good):
    for block in range(first, last):
        part = symbols[block * BLOCK_SIZE : min((block + 1) * BLOCK_SIZE, symbols.size)]
        good[block] = _decode_block(words, u64(starts[block]), u64(starts[block + 1]), single, many, part)


@njit(nogil=True, cache=True, inline="always")
def _decode_block(words, start, stop, single, many, symbols):
    n, i, position, width = u64(symbols.size), u64(0), u64(0), trailing_zeros(u64(single.size))
    while i < n:
        position, i, _ = take_many(words, start, position, many, width, symbols, i, u64(n - i))
        code = single[u64(peek(words, start, stop, position) >> u64(u64(32) - width))]
        if code == u32(0):
            return False
        symbols[i] = u8(code >> u32(8))
        i += u64(1)
        position += u64(code & u32(255))
    return is_end(words, start, stop, position)
