"""Blocks in parallel: each thread codes a range of blocks, each block into its own stretch of scratch memory.

Symbols are also counted block by block, into four tables side by side, so that a run of equal symbols does not wait for
its own last store.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from laconic.kernels.backend import Blocks
from laconic.kernels.layout import BLOCK_SIZE, n_blocks
from laconic.kernels.reference.bitstream import block_starts
from laconic.kernels.threads import run

Array = np.ndarray
u64 = np.uint64


def encode_blocks(
    symbols: Tensor, max_words: Callable[[int], int], kernel: Callable[..., object], *tables: Any
) -> Blocks:
    """Code every block, then bring the blocks together.

    max_words  most words that a block of so many symbols can take
    kernel     (first, last, symbols, *tables, scratch, sizes): codes these blocks, each into its row of scratch
               (uint32), and notes its size in words
    """
    n, count = symbols.numel(), n_blocks(symbols.numel())
    values = symbols.contiguous().numpy()
    # torch's memory: NumPy asks for huge pages, which the kernel would clear whole, and rows are hardly ever full
    scratch = torch.empty(count, max_words(min(n, BLOCK_SIZE)), dtype=torch.int32, device="cpu").numpy().view(np.uint32)
    sizes = np.empty(count, np.int32)
    run(lambda first, last: kernel(first, last, values, *tables, scratch, sizes), count, n)
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    words = np.empty(starts[-1], np.int32)
    run(lambda first, last: _gather(first, last, scratch, starts, words), count, n)
    return torch.from_numpy(sizes), torch.from_numpy(words)


def decode_blocks(blocks: Blocks, n: int, kernel: Callable[..., object], *tables: Any) -> tuple[Tensor, int]:
    """Decode every block; symbols and the first corrupt block, or -1.

    kernel  as `decode_into` takes it, with the symbols (n,) uint8 after the tables
    """
    symbols = np.empty(n, np.uint8)
    bad = decode_into(blocks, n, kernel, *tables, symbols)
    return torch.from_numpy(symbols), bad


def decode_into(blocks: Blocks, n: int, kernel: Callable[..., object], *given: Any) -> int:
    """Decode every block of n symbols; the first corrupt block, or -1.

    kernel  (first, last, words, starts, *given, good): decodes these blocks, block b from words (uint32) starts[b] to
            starts[b + 1], and notes which were valid; must not trust the words
    """
    starts, bad = block_starts(blocks, n)
    if bad >= 0:
        return bad
    words = blocks[1].contiguous().numpy().view(np.uint32)
    where, good = np.array(starts, np.int64), np.zeros(n_blocks(n), np.bool_)
    run(lambda first, last: kernel(first, last, words, where, *given, good), len(good), n)
    return -1 if good.all() else int(good.argmin())


def histogram(symbols: Tensor, bits: int) -> Tensor:
    """Counts of the 2**bits symbols (int64). A symbol outside the alphabet is an error."""
    values, count = symbols.contiguous().numpy(), n_blocks(symbols.numel())
    parts = np.empty((count, 256), np.uint32)
    run(lambda first, last: _count(first, last, values, parts), count, symbols.numel())
    counts = parts.sum(axis=0, dtype=np.int64)
    if counts[2**bits :].any():
        raise ValueError(f"expected symbols of {bits} bits, below {2**bits}; got {counts.nonzero()[0].max()}")
    return torch.from_numpy(counts[: 2**bits])


@njit(nogil=True, cache=True)
def load_states(words, start, lowest, states):
    """Read the states of a block of rANS from words[start:]; returns whether all lie in [lowest, 2**16 lowest)."""
    good = True
    for s in range(states.size):
        states[s] = words[start + s]
        good &= lowest <= states[s] < lowest << u64(16)
    return good


@njit(nogil=True, cache=True)
def ends_well(states, lowest, units, p, stop):
    """Whether a block of rANS is valid: all states are back at the lowest and all units up to `stop` used, but for a
    zero that pads the last word."""
    if p + u64(1) == stop and units[p] == np.uint16(0):
        p += u64(1)
    good = p == stop
    for s in range(states.size):
        good &= states[s] == lowest
    return good


@njit(nogil=True, cache=True)
def _gather(first, last, scratch, starts, words):
    for block in range(first, last):
        start, stop = starts[block], starts[block + 1]
        for j in range(stop - start):
            words[start + j] = np.int32(scratch[block, j])


@njit(nogil=True, cache=True)
def _count(first, last, symbols, counts):
    tables = np.empty(4 * 256, np.uint32)
    for block in range(first, last):
        part = symbols[block * BLOCK_SIZE : min((block + 1) * BLOCK_SIZE, symbols.size)]
        tables[:] = 0
        _count_block(part, tables)
        for s in range(256):
            counts[block, s] = tables[s] + tables[256 + s] + tables[512 + s] + tables[768 + s]


@njit(nogil=True, cache=True)
def _count_block(symbols, tables):
    n, i = u64(symbols.size), u64(0)
    while i + u64(4) <= n:
        tables[u64(symbols[i])] += np.uint32(1)
        tables[u64(symbols[i + u64(1)]) + u64(256)] += np.uint32(1)
        tables[u64(symbols[i + u64(2)]) + u64(512)] += np.uint32(1)
        tables[u64(symbols[i + u64(3)]) + u64(768)] += np.uint32(1)
        i += u64(4)
    while i < n:
        tables[u64(symbols[i])] += np.uint32(1)
        i += u64(1)
