"""Interleaved rANS streams (Duda 2013, "Asymmetric numeral systems"; interleaving: Giesen 2014).

Symbol s has frequency f_s >= 1 and start c_s = f_0 + ... + f_(s-1); the frequencies sum to M = 2**14. A state x is a
number in [2**16, 2**32):

    encode    if x >= f_s * 2**18: emit x mod 2**16, x <- x div 2**16
              x <- (x div f_s) * M + x mod f_s + c_s
    decode    s is the symbol with c_s <= x mod M < c_s + f_s
              x <- f_s * (x div M) + x mod M - c_s
              if x < 2**16: x <- x * 2**16 + next unit

A block has 8 states, all 2**16 at first; symbol i uses state i mod 8. The encoder goes from the last symbol to the
first, so the decoder reads the 16-bit units in the reverse of the order in which they were emitted.

    words of a block    8 final states, then the units in the decoder's order, two per word: the earlier unit in the
                        low half; an odd last half is zero

The decoder accepts a block only if all states return to 2**16, all words are used and the padding is zero.

Why 14 bits: a symbol takes at least one slot, so 12 bits waste code space on the tails of 8-bit symbols (0.17 %
on Gaussian values quantised uniformly in buckets of 8192, 0.36 % on Laplacian ones); 14 bits lose 0.02 % and 0.04 %,
and the decoder's 16 KiB table of symbols still fits the first-level cache. Why 8 states: enough independent work to
hide the latency of a step, and about 20 bytes per block, a tenth of a percent.
"""

from itertools import accumulate

from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels.backend import Blocks
from laconic.kernels.reference.bitstream import decode_blocks, encode_blocks

PRECISION = 14
TOTAL = 2**PRECISION
N_STATES = 8
LOWEST_STATE = 2**16
UNIT_BITS = 16


def valid_frequencies(frequencies: Tensor) -> bool:
    """Whether the frequencies are non-negative and sum to TOTAL."""
    return bool((frequencies >= 0).all()) and int(frequencies.sum()) == TOTAL


def table(frequencies: Tensor) -> list[tuple[int, int]]:
    """(frequency, start) of each symbol."""
    if not valid_frequencies(frequencies):
        raise ValueError(f"expected frequencies from 0 that sum to {TOTAL}, got a sum of {int(frequencies.sum())}")
    f = frequencies.tolist()
    return list(zip(f, accumulate(f, initial=0), strict=False))


def rans_encode(symbols: Tensor, frequencies: Tensor) -> Blocks:
    """Symbols (n,) uint8 to blocks, by `frequencies` (int32, 2**bits); every symbol that occurs has one."""
    entries = table(frequencies)
    return encode_blocks(symbols, lambda block: _encode_block(block, entries))


def rans_decode(blocks: Blocks, n: int, frequencies: Tensor) -> tuple[Tensor, int]:
    """Symbols (n,) uint8, and the index of the first corrupt block or -1."""
    entries = table(frequencies)
    slots = [(s, f, c) for s, (f, c) in enumerate(entries) for _ in range(f)]
    return decode_blocks(blocks, n, lambda words, n_symbols: _decode_block(words, n_symbols, slots))


def _encode_block(symbols: list[int], entries: list[tuple[int, int]]) -> list[int]:
    states, units = [LOWEST_STATE] * N_STATES, []
    for i in reversed(range(len(symbols))):
        x, (f, c) = states[i % N_STATES], entries[symbols[i]]
        if x >= f << (32 - PRECISION):
            units.append(x % 2**UNIT_BITS)
            x >>= UNIT_BITS
        states[i % N_STATES] = x // f * TOTAL + x % f + c
    units.reverse()
    units += [0] * (len(units) % 2)
    return states + [low | high << UNIT_BITS for low, high in zip(units[::2], units[1::2], strict=True)]


def _decode_block(words: list[int], n: int, slots: list[tuple[int, int, int]]) -> list[int]:
    states, symbols = words[:N_STATES], []
    units = [half for word in words[N_STATES:] for half in (word % 2**UNIT_BITS, word >> UNIT_BITS)]
    if len(states) < N_STATES or min(states) < LOWEST_STATE:
        raise CorruptPayload("a block starts with 8 states of at least 2**16")
    used = 0
    for i in range(n):
        x = states[i % N_STATES]
        s, f, c = slots[x % TOTAL]
        x = f * (x // TOTAL) + x % TOTAL - c
        if x < LOWEST_STATE:
            if used == len(units):
                raise CorruptPayload("the block ends before its last symbol")
            x = x << UNIT_BITS | units[used]
            used += 1
        states[i % N_STATES] = x
        symbols.append(s)
    if states != [LOWEST_STATE] * N_STATES or any(units[used:]) or len(units) - used > 1:
        raise CorruptPayload("the block does not end where its symbols end")
    return symbols
