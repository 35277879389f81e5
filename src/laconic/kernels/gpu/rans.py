"""Interleaved rANS on a GPU; `reference/rans.py` is the specification.

Eight lanes of a warp code a block, lane s the state s, and a warp codes one block or, where there are many, four beside
each other. A unit's place follows from a ballot. The steps of a block depend on each other, so a block takes as long as
its 8192 steps, and a GPU is full with a thousand blocks.
"""

import torch
import triton
import triton.language as tl

from laconic.kernels.backend import Blocks
from laconic.kernels.gpu.launch import FLAGS, on
from laconic.kernels.gpu.ptx import ballot, count_ones
from laconic.kernels.layout import BLOCK_SIZE, n_blocks
from laconic.kernels.reference.rans import LOWEST_STATE, N_STATES, PRECISION, TOTAL

BLOCK, STATES = tl.constexpr(BLOCK_SIZE), tl.constexpr(N_STATES)
P, M, LOWEST = tl.constexpr(PRECISION), tl.constexpr(TOTAL), tl.constexpr(LOWEST_STATE)
IDENTITY = tl.constexpr(TOTAL << 16)
"""The row of a certain symbol, which leaves its state as it is."""
ROW = BLOCK_SIZE // 2
"""Words of scratch memory for the units of a block."""
MANY = 2048
"""Blocks from which on a warp codes four of them."""
_TILE, _PARTS, _UNROLL = 512, 4, 8


def _rows(frequencies: torch.Tensor, device: torch.device) -> torch.Tensor:
    """(256,) int32: frequency · 2¹⁶ + start of each symbol."""
    rows, f = torch.zeros(256, dtype=torch.int32), frequencies.cpu()
    rows[: f.numel()] = f << 16 | (f.cumsum(0) - f)
    return rows.to(device)


@triton.jit
def _own_blocks(n, n_blocks, BLOCKS: tl.constexpr):
    """What each lane works at: its block (int64), state, whether it works at all, and the block's symbols."""
    lane = tl.arange(0, 32)
    block = tl.program_id(0).to(tl.int64) * BLOCKS + lane // STATES
    live = (lane < BLOCKS * STATES) & (block < n_blocks)
    length = tl.where(live, tl.minimum(n - block * BLOCK, BLOCK), 0).to(tl.int32)
    return block, lane % STATES, live, length


@triton.jit
def _of_block(votes):
    """The votes of a lane's own block, in the lowest bits."""
    return (votes >> (tl.arange(0, 32) & 24).to(tl.uint32)) & 0xFF


@triton.jit(do_not_specialize=["n", "n_blocks"])
def _encode_kernel(
    symbols_ptr, rows_ptr, scratch_ptr, counts_ptr, n, n_blocks, ROW: tl.constexpr, BLOCKS: tl.constexpr,
    UNROLL: tl.constexpr,
):  # fmt: skip
    """Code blocks: units from the end of their rows of scratch downwards, (number of units, 8 states) in counts."""
    block, state, live, length = _own_blocks(n, n_blocks, BLOCKS)
    symbols_ptr += block * BLOCK + state
    units_ptr = (scratch_ptr + block * ROW).to(tl.pointer_type(tl.int16))
    x = tl.full((32,), LOWEST, tl.uint32)
    p = tl.full((32,), 2 * ROW, tl.int32)
    n_turns = tl.cdiv(tl.max(length, 0), STATES * UNROLL)
    for back in range(n_turns):
        for turn in tl.static_range(UNROLL - 1, -1, -1):
            i = ((n_turns - 1 - back) * UNROLL + turn) * STATES
            valid = i + state < length
            symbol = tl.load(symbols_ptr + i, mask=valid, other=0).to(tl.int32)
            row = tl.load(rows_ptr + symbol, mask=valid, other=IDENTITY).to(tl.uint32, bitcast=True)
            f, start = row >> 16, row & 0xFFFF
            over = (x >> (32 - P)) >= f
            votes = _of_block(ballot(over))
            tl.store(units_ptr + (p - 1 - count_ones((votes >> 1) >> state.to(tl.uint32))), x.to(tl.int16), mask=over)
            p -= count_ones(votes)
            x = tl.where(over, x >> 16, x)
            q = (x.to(tl.float32) * tl.div_rn(1.0 - 2.0**-22, f.to(tl.float32))).to(tl.uint32)
            rest = x - q * f
            y = (q << P) + rest + start
            x = tl.where(rest < f, y, y + M - f)
    counts_ptr += block * (STATES + 1)
    tl.store(counts_ptr, 2 * ROW - p, mask=live & (state == 0))
    tl.store(counts_ptr + 1 + state, x.to(tl.int32, bitcast=True), mask=live)


@triton.jit(do_not_specialize=["capacity"])
def _gather_kernel(
    scratch_ptr, counts_ptr, ends_ptr, out_ptr, capacity, ROW: tl.constexpr, TILE: tl.constexpr, PARTS: tl.constexpr
):
    """Bring the words of blocks together: block b ends before word ends[b]. What is past `capacity` is left out."""
    block = tl.program_id(0).to(tl.int64)
    counts_ptr += block * (STATES + 1)
    n_units = tl.load(counts_ptr)
    size = (n_units + 1) // 2 + STATES
    first = tl.load(ends_ptr + block) - size
    units_ptr = (scratch_ptr + block * ROW).to(tl.pointer_type(tl.int16)) + (2 * ROW - n_units)
    for start in range(tl.program_id(1) * TILE, size, PARTS * TILE):
        j = start + tl.arange(0, TILE)
        at = 2 * (j - STATES)
        state = tl.load(counts_ptr + 1 + j, mask=j < STATES, other=0)
        low = tl.load(units_ptr + at, mask=(at >= 0) & (at < n_units), other=0).to(tl.int32) & 0xFFFF
        high = tl.load(units_ptr + at + 1, mask=(at >= 0) & (at + 1 < n_units), other=0).to(tl.int32)
        tl.store(out_ptr + first + j, state | low | (high << 16), mask=(j < size) & (first + j < capacity))


@triton.jit(do_not_specialize=["n", "n_blocks", "n_words"])
def _decode_kernel(
    words_ptr, sizes_ptr, ends_ptr, rows_ptr, slots_ptr, symbols_ptr, good_ptr, n, n_blocks, n_words,
    BLOCKS: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Decode blocks; good says which of them an encoder makes. Sizes may be anything."""
    block, state, live, length = _own_blocks(n, n_blocks, BLOCKS)
    size = tl.load(sizes_ptr + block, mask=live, other=0)
    end = tl.load(ends_ptr + block, mask=live, other=0)
    first = end - size
    fits = live & (size >= STATES) & (first >= 0) & (end <= n_words) & ((block < n_blocks - 1) | (end == n_words))
    length = tl.where(fits, length, 0)
    given = tl.load(words_ptr + first + state, mask=fits, other=LOWEST).to(tl.uint32, bitcast=True)
    x = tl.where(given >= LOWEST, given, LOWEST)
    units_ptr = (words_ptr + first + STATES).to(tl.pointer_type(tl.int16))
    n_units = 2 * (size - STATES)
    symbols_ptr += block * BLOCK + state
    p = tl.zeros((32,), tl.int32)
    before = (tl.full((32,), 1, tl.uint32) << state.to(tl.uint32)) - 1
    for turns in range(tl.cdiv(tl.max(length, 0), STATES * UNROLL)):
        for turn in tl.static_range(UNROLL):
            i = (turns * UNROLL + turn) * STATES
            valid = i + state < length
            slot = (x & (M - 1)).to(tl.int32)
            symbol = tl.load(slots_ptr + slot)
            row = tl.load(rows_ptr + symbol.to(tl.int32)).to(tl.uint32, bitcast=True)
            tl.store(symbols_ptr + i, symbol, mask=valid)
            x = tl.where(valid, (row >> 16) * (x >> P) + slot.to(tl.uint32) - (row & 0xFFFF), x)
            low = x < LOWEST
            votes = _of_block(ballot(low))
            at = p + count_ones(votes & before)
            unit = tl.load(units_ptr + at, mask=low & (at < n_units), other=0).to(tl.uint16, bitcast=True).to(tl.uint32)
            x = tl.where(low, (x << 16) | unit, x)
            p += count_ones(votes)
    left = n_units - p
    filling = tl.load(units_ptr + p, mask=fits & (left == 1), other=0)
    ended = fits & (left >= 0) & (left <= 1) & (filling == 0) & (x == LOWEST) & (given >= LOWEST)
    all_ended = _of_block(ballot(ended)) == 0xFF
    tl.store(good_ptr + block, all_ended.to(tl.int32), mask=live & (state == 0))


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


def _launch(n: int) -> tuple[tuple[int], dict[str, int]]:
    """Number of programs for n symbols, and what they are compiled for."""
    count = n_blocks(n)
    per_warp = 4 if count >= MANY else 1
    return (-(-count // per_warp),), {"BLOCKS": per_warp, "UNROLL": _UNROLL, "num_warps": 1}


def rans_encode(symbols: torch.Tensor, frequencies: torch.Tensor) -> Blocks:
    """Symbols (n,) uint8 to blocks, by `frequencies` (int32, 2**bits); every symbol that occurs has one."""
    n, device, count = symbols.numel(), symbols.device, n_blocks(symbols.numel())
    grid, sizes = _launch(n)
    scratch = torch.empty(count, ROW, dtype=torch.int32, device=device)
    counts = torch.empty(count, N_STATES + 1, dtype=torch.int32, device=device)
    with on(device):
        _encode_kernel[grid](
            symbols.contiguous(), _rows(frequencies, device), scratch, counts, n, count, ROW=ROW, **sizes, **FLAGS
        )
        block_words = (counts[:, 0] + 1) // 2 + N_STATES
        ends = block_words.cumsum(0)
        words = torch.empty(int(ends[-1]), dtype=torch.int32, device=device)
        _gather_kernel[(count, _PARTS)](scratch, counts, ends, words, words.numel(), ROW=ROW, TILE=_TILE, PARTS=_PARTS)
    return block_words.int(), words


def rans_decode(blocks: Blocks, n: int, frequencies: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Symbols (n,) uint8, and the index of the first corrupt block or -1."""
    block_words, words = blocks
    device, count = words.device, n_blocks(n)
    symbols = torch.zeros(n, dtype=torch.uint8, device=device)
    if block_words.numel() != count:
        return symbols, 0
    grid, sizes = _launch(n)
    slots = torch.arange(frequencies.numel(), dtype=torch.uint8).repeat_interleave(frequencies.cpu()).to(device)
    good = torch.empty(count, dtype=torch.int32, device=device)
    with on(device):
        _decode_kernel[grid](
            words.contiguous(), block_words.contiguous(), block_words.cumsum(0), _rows(frequencies, device), slots,
            symbols, good, n, count, words.numel(), **sizes,
        )  # fmt: skip
    return symbols, -1 if bool(good.all()) else int(good.argmin())
