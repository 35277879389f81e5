"""Interleaved rANS on a GPU; `reference/rans.py` is the specification.

A warp codes a block; eight of its lanes have a state each (`gpu/blocks.py`). A block takes as long as its 8192
dependent steps, so a GPU is full with a thousand blocks.
"""

import numpy as np
import torch
import triton
import triton.language as tl

from laconic.kernels.backend import Blocks
from laconic.kernels.gpu.blocks import (
    advance,
    block_ends,
    first_corrupt,
    gather,
    identity,
    open_units,
    push,
    refill,
    rows_of,
    units_used,
)
from laconic.kernels.gpu.launch import FLAGS, on
from laconic.kernels.layout import BLOCK_SIZE, n_blocks
from laconic.kernels.reference.rans import LOWEST_STATE, N_STATES, PRECISION, TOTAL

BLOCK, STATES = tl.constexpr(BLOCK_SIZE), tl.constexpr(N_STATES)
P, M, LOWEST = tl.constexpr(PRECISION), tl.constexpr(TOTAL), tl.constexpr(LOWEST_STATE)
NONE = tl.constexpr(256)
"""Replaces a missing symbol; its row is the last."""
ROW = BLOCK_SIZE // 2
"""Words of scratch memory for the units of a block."""


@triton.jit
def _symbol(symbols_ptr, i, length):
    """Symbols i of a block, int32; NONE in idle lanes and outside the block."""
    there = (i >= 0) & (i < length) & (tl.arange(0, 32) < STATES)
    return tl.where(there, tl.load(symbols_ptr + i, mask=there, other=0).to(tl.int32), NONE)


@triton.jit
def _load_eight(symbols_ptr, i, length):
    """Symbols i, i + 8, …, i + 56."""
    s0, s1 = _symbol(symbols_ptr, i, length), _symbol(symbols_ptr, i + 8, length)
    s2, s3 = _symbol(symbols_ptr, i + 16, length), _symbol(symbols_ptr, i + 24, length)
    s4, s5 = _symbol(symbols_ptr, i + 32, length), _symbol(symbols_ptr, i + 40, length)
    s6, s7 = _symbol(symbols_ptr, i + 48, length), _symbol(symbols_ptr, i + 56, length)
    return s0, s1, s2, s3, s4, s5, s6, s7


@triton.jit(do_not_specialize=["n"])
def _encode_kernel(symbols_ptr, rows_ptr, scratch_ptr, counts_ptr, n, ROW: tl.constexpr):
    """Code a block: its units go to the end of its row of scratch; (number of units, 0, 8 states) to counts."""
    block = tl.program_id(0).to(tl.int64)
    length = tl.minimum(n - block * BLOCK, BLOCK).to(tl.int32)
    symbols_ptr += block * BLOCK
    units_ptr = (scratch_ptr + block * ROW).to(tl.pointer_type(tl.int16))
    lane = tl.arange(0, 32)
    live = lane < STATES
    x = tl.full((32,), LOWEST, tl.uint32)
    p = tl.full((32,), 2 * ROW, tl.int32)
    n_turns = tl.cdiv(length, 64)
    i = (n_turns - 1) * 64 + lane
    s0, s1, s2, s3, s4, s5, s6, s7 = _load_eight(symbols_ptr, i, length)
    for _ in range(n_turns):
        r0, r1, r2, r3 = tl.load(rows_ptr + s0), tl.load(rows_ptr + s1), tl.load(rows_ptr + s2), tl.load(rows_ptr + s3)
        r4, r5, r6, r7 = tl.load(rows_ptr + s4), tl.load(rows_ptr + s5), tl.load(rows_ptr + s6), tl.load(rows_ptr + s7)
        i -= 64
        s0, s1, s2, s3, s4, s5, s6, s7 = _load_eight(symbols_ptr, i, length)
        x, p = push(x, p, r7, units_ptr, lane, 32, M)
        x, p = push(x, p, r6, units_ptr, lane, 32, M)
        x, p = push(x, p, r5, units_ptr, lane, 32, M)
        x, p = push(x, p, r4, units_ptr, lane, 32, M)
        x, p = push(x, p, r3, units_ptr, lane, 32, M)
        x, p = push(x, p, r2, units_ptr, lane, 32, M)
        x, p = push(x, p, r1, units_ptr, lane, 32, M)
        x, p = push(x, p, r0, units_ptr, lane, 32, M)
    counts_ptr += block * (STATES + 2)
    tl.store(counts_ptr + lane, tl.where(lane == 0, 2 * ROW - p, 0), mask=lane < 2)
    tl.store(counts_ptr + 2 + lane, x.to(tl.int32, bitcast=True), mask=live)


@triton.jit(do_not_specialize=["n", "n_blocks", "n_words"])
def _decode_kernel(words_ptr, sizes_ptr, ends_ptr, steps_ptr, slots_ptr, symbols_ptr, good_ptr, n, n_blocks, n_words):
    """Decode a block; `good` tells whether an encoder makes it. Sizes are not trusted.

    steps  (2¹⁴,) int32: (f − 1) · 2¹⁴ + distance from the start of its symbol, for each slot
    """
    block = tl.program_id(0).to(tl.int64)
    size, end = tl.load(sizes_ptr + block), tl.load(ends_ptr + block)
    first = end - size
    fits = (size >= STATES) & (first >= 0) & (end <= n_words) & ((block < n_blocks - 1) | (end == n_words))
    tl.store(good_ptr + block, 0)
    if fits:
        lane = tl.arange(0, 32)
        live = lane < STATES
        length = tl.minimum(n - block * BLOCK, BLOCK).to(tl.int32)
        out_ptr = symbols_ptr + block * BLOCK + lane
        given = tl.load(words_ptr + first + lane, mask=live, other=LOWEST).to(tl.uint32, bitcast=True)
        x = tl.where(given >= LOWEST, given, LOWEST)
        units_ptr = words_ptr + first + STATES
        n_unit_words = size - STATES
        cursor = open_units(units_ptr, n_unit_words, lane)
        for turns in range(tl.cdiv(length, 64)):
            for turn in tl.static_range(8):
                i = turns * 64 + turn * 8
                valid = live & (i + lane < length)
                slot = (x & (M - 1)).to(tl.int32)
                step = tl.load(steps_ptr + slot).to(tl.uint32, bitcast=True)
                tl.store(out_ptr + i, tl.load(slots_ptr + slot), mask=valid)
                x = tl.where(valid, ((step >> P) + 1) * (x >> P) + (step & (M - 1)), x)
                x, cursor = refill(x, x < LOWEST, cursor, lane)
            cursor = advance(units_ptr, n_unit_words, cursor, lane)
        used = units_used(cursor)
        left = 2 * n_unit_words - used
        filling = tl.load(units_ptr + (used >> 1), mask=left == 1, other=0) >> 16
        ended = (left >= 0) & (left <= 1) & (filling == 0) & (x == LOWEST) & (given >= LOWEST)
        tl.store(good_ptr + block, tl.min(ended.to(tl.int32), 0))


@triton.jit(do_not_specialize=["n"])
def _count_kernel(symbols_ptr, counts_ptr, n, STEPS: tl.constexpr, TILE: tl.constexpr):
    counts = tl.zeros((256,), tl.int32)
    first = tl.program_id(0).to(tl.int64) * (STEPS * TILE)
    for step in range(STEPS):
        i = first + step * TILE + tl.arange(0, TILE)
        counts += tl.histogram(tl.load(symbols_ptr + i, mask=i < n, other=0).to(tl.int32), 256)
        counts -= tl.where(tl.arange(0, 256) == 0, tl.sum((i >= n).to(tl.int32), 0), 0)
    tl.atomic_add(counts_ptr + tl.arange(0, 256), counts.to(tl.int64))


def histogram(symbols: torch.Tensor, bits: int) -> torch.Tensor:
    """Counts of the 2**bits symbols (int64), all of which are below 2**bits."""
    n, counts = symbols.numel(), torch.zeros(256, dtype=torch.int64, device=symbols.device)
    if n:
        with on(symbols.device):
            _count_kernel[(-(-n // (16 * 2048)),)](symbols.contiguous(), counts, n, STEPS=16, TILE=2048)
    return counts[: 2**bits]


def encoder_rows(frequencies: torch.Tensor, device: torch.device) -> torch.Tensor:
    """(257,) int64: the row of each symbol, and of NONE."""
    rows = np.zeros(NONE.value + 1, np.int64)
    rows[: frequencies.numel()] = rows_of(frequencies.cpu().numpy())
    rows[NONE.value] = identity(PRECISION)
    return torch.from_numpy(rows).to(device)


def code(symbols: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks in rows of scratch memory, and their counts (`gpu/blocks.py`); no host synchronisation."""
    n, device, count = symbols.numel(), symbols.device, n_blocks(symbols.numel())
    scratch = torch.empty(count, ROW, dtype=torch.int32, device=device)
    counts = torch.empty(count, N_STATES + 2, dtype=torch.int32, device=device)
    with on(device):
        _encode_kernel[(count,)](symbols.contiguous(), rows, scratch, counts, n, ROW=ROW, num_warps=1, **FLAGS)
    return scratch, counts


def rans_encode(symbols: torch.Tensor, frequencies: torch.Tensor) -> Blocks:
    """Symbols (n,) uint8 to blocks, by `frequencies` (int32, 2**bits); every symbol that occurs has one."""
    device = symbols.device
    scratch, counts = code(symbols, encoder_rows(frequencies, device))
    ends, block_words = block_ends(counts), torch.empty(len(counts), dtype=torch.int32, device=device)
    words = torch.empty(int(ends[-1]), dtype=torch.int32, device=device)
    gather(scratch, counts, ends, block_words, words, states_last=False)
    return block_words, words


def decoder_tables(frequencies: torch.Tensor, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """(2¹⁴,) each: the step of the decoder and the symbol, for every slot."""
    f = frequencies.cpu().numpy().astype(np.int64)
    slots = np.repeat(np.arange(f.size), f)
    steps = (f[slots] - 1 << PRECISION) + np.arange(TOTAL) - (np.cumsum(f) - f)[slots]
    return torch.from_numpy(steps.astype(np.int32)).to(device), torch.from_numpy(slots.astype(np.uint8)).to(device)


def decode(blocks: Blocks, tables: tuple[torch.Tensor, torch.Tensor], symbols: torch.Tensor) -> torch.Tensor:
    """Blocks to symbols (n,) uint8; returns which blocks were valid, int32. No host synchronisation."""
    block_words, words = blocks[0].contiguous(), blocks[1].contiguous()
    good = torch.empty_like(block_words)
    with on(words.device):
        _decode_kernel[(len(good),)](
            words, block_words, block_words.cumsum(0), *tables, symbols, good, symbols.numel(), len(good),
            words.numel(), num_warps=1,
        )  # fmt: skip
    return good


def rans_decode(blocks: Blocks, n: int, frequencies: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Symbols (n,) uint8, and the index of the first corrupt block or -1."""
    device = blocks[1].device
    symbols = torch.zeros(n, dtype=torch.uint8, device=device)
    if blocks[0].numel() != n_blocks(n):
        return symbols, 0
    good = decode(blocks, decoder_tables(frequencies, device), symbols)
    return symbols, first_corrupt(blocks, good)
