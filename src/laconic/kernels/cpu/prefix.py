"""A static prefix code over bytes, which dense Elias and Huffman streams are.

A code is an array `codes` (uint32, 256): codeword << 8 | length, and 0 for a symbol without a codeword. No codeword is
longer than 15 bits.
"""

import numpy as np
import torch
from numba import njit

from laconic.kernels.backend import Blocks
from laconic.kernels.cpu.bitstream import MAX_SYMBOLS, flush, is_end, log2, peek, put, take_many
from laconic.kernels.cpu.blocks import Array, decode_blocks, encode_blocks
from laconic.kernels.layout import BLOCK_SIZE
from laconic.kernels.reference.huffman import canonical_codes

u8, u32, u64 = np.uint8, np.uint32, np.uint64

MIN_WIDTH = 12
"""Tables have at least 2**12 entries, so that several short codewords fit; more where one codeword is longer."""


def code_array(codewords: dict[int, str]) -> Array:
    """Codewords written as bits to the array the kernels use."""
    codes = np.zeros(256, u32)
    for symbol, codeword in codewords.items():
        codes[symbol] = int(codeword, 2) << 8 | len(codeword)
    return codes


def decode_tables(codes: Array) -> tuple[Array, Array]:
    """For each string of `width` bits its first codeword (symbol << 8 | length), and all that fit (`bitstream`)."""
    width = max(MIN_WIDTH, int((codes & 255).max()))
    single = np.zeros(2**width, np.uint16)
    many = np.zeros(2**width, u64)
    _fill_single(codes, width, single)
    _fill_many(single, width, many)
    return single, many


def encode(symbols: torch.Tensor, codes: Array) -> Blocks:
    """Symbols (n,) uint8 to blocks."""
    longest = int((codes & 255).max())

    def kernel(first: int, last: int, values: Array, scratch: Array, sizes: Array) -> None:
        _encode_range(first, last, values, codes, scratch, sizes)

    return encode_blocks(symbols, lambda n: n * longest // 32 + 2, kernel)


def decode(blocks: Blocks, n: int, tables: tuple[Array, Array]) -> tuple[torch.Tensor, int]:
    """Symbols (n,) uint8, and the index of the first corrupt block or -1."""
    single, many = tables

    def kernel(first: int, last: int, words: Array, starts: Array, symbols: Array, good: Array) -> None:
        _decode_range(first, last, words, starts, single, many, symbols, good)

    return decode_blocks(blocks, n, kernel)


def huffman_encode(symbols: torch.Tensor, lengths: torch.Tensor) -> Blocks:
    """Symbols (n,) uint8 to blocks, by code `lengths` (uint8, 2**bits); every symbol that occurs has a length."""
    return encode(symbols, code_array(canonical_codes(lengths)))


def huffman_decode(blocks: Blocks, n: int, lengths: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Symbols (n,) uint8, and the index of the first corrupt block or -1."""
    return decode(blocks, n, decode_tables(code_array(canonical_codes(lengths))))


@njit(nogil=True, cache=True)
def _fill_single(codes, width, single):
    for symbol in range(256):
        length = np.int64(codes[symbol] & u32(255))
        if length:
            first = np.int64(codes[symbol] >> u32(8)) << (width - length)
            single[first : first + (1 << (width - length))] = symbol << 8 | length


@njit(nogil=True, cache=True)
def _fill_many(single, width, many):
    for bits in range(single.size):
        n_symbols, position, entry = 0, np.int64(0), u64(0)
        while n_symbols < MAX_SYMBOLS:
            code = np.int64(single[(bits << position) & (single.size - 1)])
            length = code & 255
            if length == 0 or position + length > width:
                break
            entry |= u64(u64(code >> 8) << u64(8 * n_symbols))
            n_symbols += 1
            position += length
        many[bits] = entry | u64(n_symbols) << u64(48) | u64(n_symbols) << u64(52) | u64(position) << u64(56)


@njit(nogil=True, cache=True)
def _encode_range(first, last, symbols, codes, scratch, sizes):
    for block in range(first, last):
        part = symbols[block * BLOCK_SIZE : min((block + 1) * BLOCK_SIZE, symbols.size)]
        sizes[block] = _encode_block(part, codes, scratch[block])


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def _decode_block(words, start, stop, single, many, symbols):
    n, i, position, width = u64(symbols.size), u64(0), u64(0), log2(single.size)
    while i < n:
        position, i, _ = take_many(words, start, position, many, width, symbols, i, u64(n - i))
        code = single[u64(peek(words, start, stop, position) >> u64(u64(32) - width))]
        if code == 0:
            return False
        symbols[i] = u8(code >> 8)
        i += u64(1)
        position += u64(code & 255)
    return is_end(words, start, stop, position)
