"""Bits in 32-bit words, most significant first, inside Numba kernels.

A prefix-coded block is decoded by looking up the next `width` bits in a table that says which *several* symbols they
stand for. An entry of that table is one 64-bit number:

    bits  0..47   up to 6 symbols, the first in the lowest byte
    bits 48..51   number of symbols
    bits 52..55   number of codewords (fewer than symbols where a codeword includes a run of zeros)
    bits 56..63   length of these codewords in bits; the whole entry is 0 where not even one fits
"""

import numpy as np
from numba import njit

u8, u32, u64 = np.uint8, np.uint32, np.uint64

MAX_SYMBOLS = 6
_PER_ROUND = u64(2 * MAX_SYMBOLS)


@njit(nogil=True, cache=True)
def put(code, length, acc, n_bits, p, words):
    """Append `length` <= 32 bits; `acc` holds n_bits < 32 bits that are not in `words` yet, p is the next free word.

    A word is stored every time, and counts only when it is full; so `words` needs one word to spare.
    """
    acc = u64(u64(acc << length) | code)
    n_bits = u64(n_bits + length)
    words[p] = u32(acc >> u64((n_bits - u64(32)) & u64(63)))
    return acc, u64(n_bits & u64(31)), u64(p + (n_bits >> u64(5)))


@njit(nogil=True, cache=True)
def flush(acc, n_bits, p, words):
    """Write the last word, padded with zeros; returns the number of words."""
    if n_bits:
        words[p] = u32(acc << u64(u64(32) - n_bits))
        p += u64(1)
    return np.int64(p)


@njit(nogil=True, cache=True)
def peek(words, start, stop, position):
    """The 32 bits from bit `position` of words[start:stop], with zeros after the end."""
    i = u64(start + (position >> u64(5)))
    high = u64(words[i]) if i < stop else u64(0)
    low = u64(words[i + u64(1)]) if i + u64(1) < stop else u64(0)
    window = u64(u64(high << u64(32)) | low)
    return u64(u64(window << u64(position & u64(31))) >> u64(32))


@njit(nogil=True, cache=True)
def is_end(words, start, stop, position):
    """Whether only the zeros that pad the last word are left."""
    size = u64((stop - start) << u64(5))
    return position <= size and size - position < u64(32) and peek(words, start, stop, position) == u64(0)


@njit(nogil=True, cache=True)
def take_many(words, start, position, table, width, symbols, i, n_codes):
    """Decode as long as many symbols, codewords and words are left, and leave at least one codeword to the caller.

    words, start, position  read from bit `position` after word `start`; may run past the block, not past `words`
    table, width            as above; width <= 15
    symbols, i              where the symbols go, and the first place still free
    n_codes                 codewords still to come

    Returns position, i and the number of codewords left.
    """
    n, n_words, p = u64(symbols.size), u64(words.size), u64(start + (position >> u64(5)))
    shift = u64(u64(64) - width)
    if p >= n_words:
        return position, i, n_codes
    skip = u64(position & u64(31))
    acc, n_bits, p = u64(u64(words[p]) << u64(u64(32) + skip)), u64(u64(32) - skip), u64(p + u64(1))
    while p < n_words and i + _PER_ROUND < n and n_codes > _PER_ROUND:
        acc |= u64(u64(u64(words[p]) << u64(32)) >> n_bits)
        fits = u64(n_bits <= u64(32))
        p, n_bits = u64(p + fits), u64(n_bits + u64(fits << u64(5)))
        entry = table[u64(acc >> shift)]
        _store(entry, symbols, i)
        i, n_codes = u64(i + (entry >> u64(48) & u64(15))), u64(n_codes - (entry >> u64(52) & u64(15)))
        acc, n_bits = u64(acc << u64(entry >> u64(56))), u64(n_bits - (entry >> u64(56)))
        entry = table[u64(acc >> shift)]
        _store(entry, symbols, i)
        i, n_codes = u64(i + (entry >> u64(48) & u64(15))), u64(n_codes - (entry >> u64(52) & u64(15)))
        acc, n_bits = u64(acc << u64(entry >> u64(56))), u64(n_bits - (entry >> u64(56)))
        if entry == u64(0):
            break
    return u64(u64(u64(p - start) << u64(5)) - n_bits), i, n_codes


@njit(nogil=True, cache=True)
def _store(entry, symbols, i):
    for j in range(MAX_SYMBOLS):
        symbols[u64(i + u64(j))] = u8(entry >> u64(8 * j))
