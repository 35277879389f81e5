"""Counting symbols. Four tables side by side, so that a run of equal symbols does not wait for its own last store."""

import numpy as np
import torch
from numba import njit

from laconic.kernels.cpu.threads import run
from laconic.kernels.layout import BLOCK_SIZE, n_blocks

u64 = np.uint64


def histogram(symbols: torch.Tensor, bits: int) -> torch.Tensor:
    """Counts of the 2**bits symbols (int64). A symbol outside the alphabet is an error."""
    values, count = symbols.contiguous().numpy(), n_blocks(symbols.numel())
    parts = np.empty((count, 256), np.uint32)
    run(lambda first, last: _count(first, last, values, parts), count, symbols.numel())
    counts = parts.sum(axis=0, dtype=np.int64)
    if counts[2**bits :].any():
        raise ValueError(f"expected symbols of {bits} bits, below {2**bits}; got {counts.nonzero()[0].max()}")
    return torch.from_numpy(counts[: 2**bits])


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
