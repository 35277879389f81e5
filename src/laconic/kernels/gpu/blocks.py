"""What coders of blocks share: steps of rANS in the lanes of a warp, gathering the blocks, stamping a header.

A warp codes a block, lane s the state s. A step of the encoder takes from memory only what was loaded before it, and a
step of the decoder has the units to come in registers, 64 in each of three windows: a step waits for the one before and
for little else.

A row of scratch has raw values (32 bits) from its start upwards and units (16 bits) from its end downwards; `counts`
has the number of units, the number of raw values, and the states.
"""

import struct
from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl

from laconic.kernels.backend import Blocks
from laconic.kernels.gpu.launch import on
from laconic.kernels.gpu.ptx import ballot, count_ones, from_lane

_TILE, _PARTS = 512, 4
WINDOW = tl.constexpr(64)
"""Units that the lanes of a warp hold in a register each."""


@triton.jit
def push(x, p, row, units_ptr, lane, BITS: tl.constexpr, TOTAL: tl.constexpr):
    """One step of the encoder in every lane: states below 2**BITS (uint32) and cursor; units[p:] are written.

    row  (int64) of a symbol: start, frequency f · 2¹⁶, and 2³² / f rounded down · 2³², with which the quotient is right
         or one too small
    """
    low = row.to(tl.uint32)
    f, start = low >> 16, low & 0xFFFF
    over = x // (2**BITS // TOTAL) >= f
    votes = ballot(over)
    above = count_ones((votes >> 1) >> lane.to(tl.uint32))
    tl.store(units_ptr + (p - 1 - above), x.to(tl.int16), mask=over)
    x = tl.where(over, x >> 16, x)
    q = tl.umulhi(x, (row >> 32).to(tl.uint32))
    rest = x - q * f
    y = q * TOTAL + rest + start
    return tl.where(rest < f, y, y + TOTAL - f), p - count_ones(votes)


@triton.jit
def open_units(words_ptr, n_words, lane):
    """A cursor over a block's units: three windows, how many units of the first are used, and where the next begins."""
    first = tl.load(words_ptr + lane, mask=lane < n_words, other=0)
    second = tl.load(words_ptr + 32 + lane, mask=lane + 32 < n_words, other=0)
    third = tl.load(words_ptr + 64 + lane, mask=lane + 64 < n_words, other=0)
    return first, second, third, lane * 0, lane * 0 + 96


@triton.jit
def refill(x, low, cursor, lane):
    """x · 2¹⁶ + a unit where `low`, one lane after another; and the cursor, which must `advance` once per 64 units."""
    first, second, third, used, following = cursor
    votes = ballot(low)
    at = used + count_ones(votes & ((tl.full((32,), 1, tl.uint32) << lane.to(tl.uint32)) - 1))
    a, b = from_lane(first, (at >> 1) & 31), from_lane(second, (at >> 1) & 31)
    word = tl.where(at < WINDOW, a, b).to(tl.uint32, bitcast=True)
    unit = (word >> ((at & 1) << 4).to(tl.uint32)) & 0xFFFF
    return tl.where(low, (x << 16) | unit, x), (first, second, third, used + count_ones(votes), following)


@triton.jit
def advance(words_ptr, n_words, cursor, lane):
    """The cursor, moved past the first window if that is used up. Units past the end of the words are undefined."""
    first, second, third, used, following = cursor
    over = used >= WINDOW
    first, second = tl.where(over, second, first), tl.where(over, third, second)
    third = tl.load(words_ptr + following + lane, mask=over & (following + lane < n_words), other=third)
    return first, second, third, tl.where(over, used - WINDOW, used), tl.where(over, following + 32, following)


@triton.jit
def units_used(cursor):
    """Number of units that were read, whether they exist or not."""
    return cursor[3] + 2 * (cursor[4] - 96)


def rows_of(frequencies: np.ndarray) -> np.ndarray:
    """Frequencies (…, 256) to the rows of `push`, (…, 256) int64, 0 for a symbol that has none."""
    f = frequencies.astype(np.int64)
    start, most = np.cumsum(f, -1) - f, np.int64(2**32 - 1)
    return np.where(f > 0, np.minimum(2**32 // np.maximum(f, 1), most) << 32 | f << 16 | start, 0)


def identity(precision: int) -> int:
    """The row of a symbol of probability 1, which leaves its state unchanged."""
    return 1 << (64 - precision) | 1 << (16 + precision)


@triton.jit(do_not_specialize=["capacity", "n_blocks"])
def _gather_kernel(
    scratch_ptr, counts_ptr, ends_ptr, sizes_ptr, out_ptr, capacity, n_blocks, ROW, STATES: tl.constexpr,
    STATES_LAST: tl.constexpr, TILE: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Block b goes to the words before ends[b]. What is past `capacity` words is left out."""
    block = tl.program_id(0).to(tl.int64)
    counts_ptr += block * (STATES + 2)
    n_units, n_raws = tl.load(counts_ptr), tl.load(counts_ptr + 1)
    n_words = (n_units + 1) // 2
    size = n_words + n_raws + STATES
    tl.store(sizes_ptr + block, size, mask=tl.program_id(1) == 0)
    first = tl.load(ends_ptr + block) - size
    raws_ptr = scratch_ptr + block * ROW
    units_ptr = raws_ptr.to(tl.pointer_type(tl.int16)) + (2 * ROW - n_units)
    for start in range(tl.program_id(1) * TILE, size, PARTS * TILE):
        j = start + tl.arange(0, TILE)
        s = j - (n_words + n_raws) if STATES_LAST else j
        w = j if STATES_LAST else j - STATES
        low = tl.load(units_ptr + 2 * w, mask=(w >= 0) & (w < n_words), other=0).to(tl.int32) & 0xFFFF
        high = tl.load(units_ptr + 2 * w + 1, mask=(w >= 0) & (2 * w + 1 < n_units), other=0).to(tl.int32)
        raw = tl.load(raws_ptr + (w - n_words), mask=(w >= n_words) & (w < n_words + n_raws), other=0)
        state = tl.load(counts_ptr + 2 + s, mask=(s >= 0) & (s < STATES), other=0)
        tl.store(out_ptr + first + j, low | (high << 16) | raw | state, mask=(j < size) & (first + j < capacity))


@triton.jit(do_not_specialize=[f"w{i}" for i in range(16)])
def _stamp_kernel(
    out_ptr, size_ptr, checks_ptr, w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15,
    SIZE_AT: tl.constexpr, CHECK_AT: tl.constexpr,
):  # fmt: skip
    words = (w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15)
    size, bit = tl.load(size_ptr), tl.arange(0, 64)
    turned = tl.where((size >> bit) & 1 == 1, tl.load(checks_ptr + bit), 0)
    for i in tl.static_range(16):
        tl.store(out_ptr + i, words[i])
    tl.store(out_ptr + SIZE_AT, (size & 0xFFFFFFFF).to(tl.int32))
    tl.store(out_ptr + SIZE_AT + 1, (size >> 32).to(tl.int32))
    tl.store(out_ptr + CHECK_AT, words[CHECK_AT].to(tl.int32) ^ tl.xor_sum(turned, 0))


@lru_cache(maxsize=8)
def _checks_on(checks: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(checks, dtype=torch.int64).to(torch.int32).to(device)


def stamp(
    out: torch.Tensor, header: bytes, size: torch.Tensor, checks: tuple[int, ...], size_at: int, check_at: int
) -> None:
    """Write a header of 64 bytes to `out` (int32 words), with a size (1,) int64 that only the device knows.

    checks   the bits of the checksum at byte `check_at` that each bit of the size flips
    size_at  the byte of the size; the header given has 0 there
    """
    words = struct.unpack("<16i", header)
    with on(out.device):
        _stamp_kernel[(1,)](
            out, size, _checks_on(checks, out.device), *words, SIZE_AT=size_at // 4, CHECK_AT=check_at // 4, num_warps=1
        )


def block_ends(counts: torch.Tensor) -> torch.Tensor:
    """(n_blocks,) int64: where each block ends, in words."""
    return ((counts[:, 0] + 1) // 2 + counts[:, 1] + (counts.shape[1] - 2)).cumsum(0)


def first_corrupt(blocks: Blocks, good: torch.Tensor) -> int:
    """The first block that is corrupt by its size, or else by its contents; or -1. The host waits for the answer."""
    sizes, n_words = blocks[0], blocks[1].numel()
    ends = sizes.cumsum(0)
    possible = (sizes >= 0) & (ends <= n_words)
    possible[-1] &= ends[-1] == n_words
    whole = torch.where(possible.all(), good != 0, possible)
    return -1 if bool(whole.all()) else int(whole.int().argmin())


def gather(
    scratch: torch.Tensor,
    counts: torch.Tensor,
    ends: torch.Tensor,
    sizes: torch.Tensor,
    words: torch.Tensor,
    states_last: bool,
) -> None:
    """Write the blocks' sizes (n_blocks,) and their words, as many of these as there is room for; both int32."""
    count, n_states = counts.shape
    with on(words.device):
        _gather_kernel[(count, _PARTS)](
            scratch, counts, ends, sizes, words, words.numel(), count, scratch.shape[1], STATES=n_states - 2,
            STATES_LAST=states_last, TILE=_TILE, PARTS=_PARTS,
        )  # fmt: skip
