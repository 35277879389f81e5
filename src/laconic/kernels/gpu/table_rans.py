"""The coder of dithered values on a GPU: a warp codes a block, lane s the state s; `reference/dither.py` specifies it.

A block's steps depend on each other, 16 states at a time, so a block takes as long as its chain of steps; many blocks
run beside each other. What does not depend on the states is done by `gpu/dither.py`, a program per cell.

Between the two a cell is

    words    (128,) uint32: word 16 h + s holds the bytes of state s in groups 4 h … 4 h + 3, the first lowest
    tails    (512,) int16: the tail symbols, fewer than 256; a raw value is RAW_ENTRY + its place in the cell (encoder),
             or + how many raw values the cell has before it (decoder)
    meta     int32: scale, or ZEROS, + 2⁸ · number of tails + 2²⁰ · rotation + 2²⁴ · width (encoder);
             or + 2²⁰ if it has raw values (decoder)
"""

import triton
import triton.language as tl

from laconic.kernels.dither import (
    CELL,
    LOWEST_STATE,
    N_CLASSES,
    N_SCALES,
    N_STATES,
    N_STRATA,
    PRECISION,
    RAW,
    TOTAL,
    ZEROS,
)
from laconic.kernels.gpu.blocks import advance, identity, open_units, push, refill, units_used
from laconic.kernels.gpu.ptx import ballot, count_ones
from laconic.kernels.gpu.rounding import bucket_key, hash32
from laconic.kernels.layout import BLOCK_SIZE

CELLS, WORDS = tl.constexpr(BLOCK_SIZE // CELL), tl.constexpr(CELL // 4)
CELL_, BLOCK_ = tl.constexpr(CELL), tl.constexpr(BLOCK_SIZE)
STATES, SCALES, CLASSES, STRATA = (
    tl.constexpr(N_STATES),
    tl.constexpr(N_SCALES),
    tl.constexpr(N_CLASSES),
    tl.constexpr(N_STRATA),
)
P, M, LOWEST = tl.constexpr(PRECISION), tl.constexpr(TOTAL), tl.constexpr(LOWEST_STATE)
RAW_, RAW_ENTRY = tl.constexpr(RAW), tl.constexpr(256)
TAIL_LAWS = tl.constexpr(N_SCALES * N_CLASSES)
SCALE_LAW = tl.constexpr(N_SCALES * N_CLASSES + N_SCALES)
ZEROS_ = tl.constexpr(ZEROS)
IDENTITY, CERTAIN = tl.constexpr(TOTAL << 16), tl.constexpr(identity(PRECISION))
"""The row of a symbol of probability 1, which leaves its state unchanged: for the decoder, and for the encoder."""


@triton.jit
def rotation_of(cell, k0, k1):
    """The stratum of the first value of cell number `cell`, in a block with this key."""
    return (hash32(tl.full((), BLOCK_, tl.uint32) + cell, k0, k1) & (STRATA - 1)).to(tl.int32)


@triton.jit
def class_of(stratum):
    """The class of |u| in a stratum, counted from the middle."""
    return tl.where(stratum >= CLASSES, stratum, -stratum + (2 * CLASSES - 1)) - CLASSES


@triton.jit
def _pop(x, law, valid, cursor, table_ptr, slots_ptr, lane):
    """One step of the decoder in the valid lanes: states, symbols and cursor."""
    slot = (x & (M - 1)).to(tl.int32)
    symbol = tl.load(slots_ptr + (law << P) + slot, mask=valid, other=0).to(tl.int32)
    row = tl.load(table_ptr + (law << 8) + symbol, mask=valid, other=IDENTITY)
    ahead = (slot - (row & 0xFFFF)).to(tl.uint32)
    x = tl.where(valid, (row >> 16).to(tl.uint32) * (x >> P) + ahead, x)
    x, cursor = refill(x, x < LOWEST, cursor, lane)
    return x, symbol, cursor


@triton.jit
def escapes(word, W: tl.constexpr):
    """The lowest bit of each digit of W bits that is all ones, in uint32 words."""
    ones = word & (word >> 1)
    if W > 2:
        ones = ones & (ones >> 2)
    if W > 4:
        ones = ones & (ones >> 4)
    mask: tl.constexpr = 0x55555555 if W == 2 else 0x11111111 if W == 4 else 0x01010101
    return ones & mask


@triton.jit
def _store_difference(meta_ptr, later, later_scale, scale):
    """Replace the meta of cell later − 1, if there is one, by the symbol of its scale."""
    difference = later_scale - scale
    tl.store(meta_ptr + later - 1, tl.where(difference < 0, difference + SCALES, difference), mask=later > 0)


@triton.jit
def _word_rows(table_ptr, law, word, live):
    """The rows of a word's four bytes."""
    r0 = tl.load(table_ptr + law + (word & 0xFF), mask=live, other=CERTAIN)
    r1 = tl.load(table_ptr + law + ((word >> 8) & 0xFF), mask=live, other=CERTAIN)
    r2 = tl.load(table_ptr + law + ((word >> 16) & 0xFF), mask=live, other=CERTAIN)
    r3 = tl.load(table_ptr + law + ((word >> 24) & 0xFF), mask=live, other=CERTAIN)
    return r0, r1, r2, r3


@triton.jit
def _push_four(x, p, rows, units_ptr, lane):
    r0, r1, r2, r3 = rows
    x, p = push(x, p, r3, units_ptr, lane, 31, M)
    x, p = push(x, p, r2, units_ptr, lane, 31, M)
    x, p = push(x, p, r1, units_ptr, lane, 31, M)
    return push(x, p, r0, units_ptr, lane, 31, M)


@triton.jit
def _store_raws(raws_ptr, n_raws, v_ptr, tail, lane):
    """Store the raw values among a group's tails, the last first; returns how many there are now."""
    raw = tail >= RAW_ENTRY
    votes = ballot(raw)
    above = count_ones((votes >> 1) >> lane.to(tl.uint32))
    value = tl.load(v_ptr + (tail - RAW_ENTRY), mask=raw, other=0.0).to(tl.float32)
    tl.store(raws_ptr + n_raws + above, value.to(tl.int32, bitcast=True), mask=raw)
    return n_raws + count_ones(votes)


@triton.jit
def _load_tails(tails_ptr, cell, n_tails, group, lane):
    e = group * STATES + lane
    there = (lane < STATES) & (e >= 0) & (e < n_tails)
    return tl.load(tails_ptr + cell * CELL_ + e, mask=there, other=-1).to(tl.int32)


@triton.jit
def _tail_row(table_ptr, scale, tail):
    symbol = tl.where(tail >= RAW_ENTRY, RAW_, tail)
    return tl.load(table_ptr + ((scale + TAIL_LAWS) << 8) + symbol, mask=tail >= 0, other=CERTAIN)


@triton.jit
def _top_words(words_ptr, cell, meta, lane):
    """A cell's last two words of each state; it has none if its width is 0."""
    at = cell * WORDS + ((meta >> 24) - 2) * STATES + lane
    there = (lane < STATES) & (at >= cell * WORDS)
    return tl.load(words_ptr + at, mask=there, other=0), tl.load(words_ptr + at + STATES, mask=there, other=0)


@triton.jit(do_not_specialize=["n"])
def push_kernel(
    v_ptr, words_ptr, tails_ptr, meta_ptr, shape_ptr, table_ptr, scratch_ptr, counts_ptr, n, ROW: tl.constexpr
):
    """Code a block: units from the end of its row of scratch downwards, raw values from its start upwards, and
    (number of units, number of raw values, 16 states) in counts.

    What the next cell needs is loaded while this one is coded.
    """
    block = tl.program_id(0).to(tl.int64)
    table_ptr += tl.load(shape_ptr) * ((SCALE_LAW + 1) * 256)
    words_ptr += block * (CELLS * WORDS)
    tails_ptr += block * BLOCK_
    v_ptr += block * BLOCK_
    raws_ptr = scratch_ptr + block * ROW
    units_ptr = raws_ptr.to(tl.pointer_type(tl.int16))
    n_cells = (tl.minimum(n - block * BLOCK_, BLOCK_).to(tl.int32) + CELL_ - 1) // CELL_
    meta_ptr += block * CELLS
    lane = tl.arange(0, 32)
    live = lane < STATES
    x = tl.full((32,), LOWEST, tl.uint32)
    p = tl.full((32,), 2 * ROW, tl.int32)
    n_raws = tl.zeros((32,), tl.int32)
    cell = n_cells - 1
    meta, coming = tl.load(meta_ptr + cell), tl.load(meta_ptr + tl.maximum(cell - 1, 0))
    later, later_scale = n_cells * 0, n_cells * 0
    word_0, word_1 = _top_words(words_ptr, cell, meta, lane)
    n_tails = (meta >> 8) & 0xFFF
    tail = _load_tails(tails_ptr, cell, n_tails, (n_tails + STATES - 1) // STATES - 1, lane)
    tail_row = _tail_row(table_ptr, meta & 0xFF, tail)
    for _ in range(n_cells):
        scale, n_tails, width = meta & 0xFF, (meta >> 8) & 0xFFF, meta >> 24
        if width > 0:
            _store_difference(meta_ptr, later, later_scale, scale)
            later, later_scale = cell + 1, scale
        law = (scale * CLASSES + class_of((lane + (meta >> 20)) & (STRATA - 1))) << 8
        coded = live & (lane * 0 + width > 0)
        rows_1 = _word_rows(table_ptr, law, word_1, coded)
        rows_0 = _word_rows(table_ptr, law, word_0, coded)
        before = tl.maximum(cell - 1, 0)
        word_0, word_1 = _top_words(words_ptr, before, coming, lane)
        n_coming = (coming >> 8) & 0xFFF
        tail_coming = _load_tails(tails_ptr, before, n_coming, (n_coming + STATES - 1) // STATES - 1, lane)
        following = tl.load(meta_ptr + tl.maximum(cell - 2, 0))
        if n_tails > 0:
            n_raws = _store_raws(raws_ptr, n_raws, v_ptr + cell * CELL_, tail, lane)
            x, p = push(x, p, tail_row, units_ptr, lane, 31, M)
            for g in range(1, (n_tails + STATES - 1) // STATES):
                tail = _load_tails(tails_ptr, cell, n_tails, (n_tails + STATES - 1) // STATES - 1 - g, lane)
                n_raws = _store_raws(raws_ptr, n_raws, v_ptr + cell * CELL_, tail, lane)
                x, p = push(x, p, _tail_row(table_ptr, scale, tail), units_ptr, lane, 31, M)
        tail = tail_coming
        x, p = _push_four(x, p, rows_1, units_ptr, lane)
        tail_row = _tail_row(table_ptr, coming & 0xFF, tail)
        x, p = _push_four(x, p, rows_0, units_ptr, lane)
        for h in range(2, width):
            word = tl.load(words_ptr + cell * WORDS + (width - 1 - h) * STATES + lane, mask=live, other=0)
            x, p = _push_four(x, p, _word_rows(table_ptr, law, word, live), units_ptr, lane)
        meta, coming = coming, following
        cell -= 1
    _store_difference(meta_ptr, later, later_scale, 0)
    tl.debug_barrier()
    for group in tl.static_range(CELLS // STATES):
        ours = (CELLS // STATES - 1 - group) * STATES + lane
        valid = live & (ours < n_cells)
        symbol = tl.load(meta_ptr + ours, mask=valid, other=0) & 0xFF
        row = tl.load(table_ptr + (SCALE_LAW << 8) + symbol, mask=valid, other=CERTAIN)
        x, p = push(x, p, row, units_ptr, lane, 31, M)
    counts_ptr += block * (STATES + 2)
    tl.store(counts_ptr + lane, tl.where(lane == 0, 2 * ROW - p, n_raws), mask=lane < 2)
    tl.store(counts_ptr + 2 + lane, x.to(tl.int32, bitcast=True), mask=live)


@triton.jit
def load_long(ptr):
    """A 64-bit integer at an address that is a multiple of 4 bytes."""
    high = tl.load(ptr + 1).to(tl.int64) << 32
    return high | tl.load(ptr).to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit(do_not_specialize=["n", "n_blocks", "capacity"])
def pop_kernel(
    data_ptr, lengths_ptr, ends_ptr, keys_ptr, widths_ptr, table_ptr, slots_ptr, words_ptr, tails_ptr, meta_ptr,
    raws_ptr, good_ptr, n, n_blocks, capacity, STRIDE, LENGTH_STRIDE, KEY_STRIDE, N_SHAPES: tl.constexpr,
):  # fmt: skip
    """Decode a block of a row of coded bytes, as 32-bit words: shape of the laws, sizes of the blocks, blocks.

    ends   (rows, blocks) int64: cumulative sums of the sizes, which are not trusted
    raws   (rows, cells) int32: in which word of the row a cell's first raw value is; the others lie before it
    good   (rows, blocks) int32: whether the block is one that an encoder makes
    """
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    data_ptr += row * STRIDE
    shape = tl.load(data_ptr)
    n_bytes = load_long(lengths_ptr + row * LENGTH_STRIDE)
    end = tl.load(ends_ptr + row * n_blocks + block)
    size = tl.load(data_ptr + 1 + block)
    first = end - size
    n_all = n_bytes // 4 - 1 - n_blocks
    fits = (
        (n_bytes % 4 == 0)
        & (n_bytes <= capacity)
        & (shape >= 0)
        & (shape < N_SHAPES)
        & (size >= STATES)
        & (first >= 0)
        & (end <= n_all)
    )
    fits = fits & ((block < n_blocks - 1) | (end == n_all))
    tl.store(good_ptr + row * n_blocks + block, 0)
    first_cell = (row * n_blocks + block) * CELLS
    words_ptr += first_cell * WORDS
    tails_ptr += first_cell * CELL_
    meta_ptr += first_cell
    raws_ptr += first_cell
    if fits:
        lane = tl.arange(0, 32)
        live = lane < STATES
        start = first.to(tl.int32) + 1 + n_blocks
        last = start + size - STATES
        x = tl.load(data_ptr + last + lane, mask=live, other=LOWEST)
        usable = tl.min((x >= LOWEST).to(tl.int32), 0) > 0
        x = tl.where(x >= LOWEST, x, LOWEST).to(tl.uint32)
        widths_ptr += shape * (SCALES + 1)
        table_ptr += shape * ((SCALE_LAW + 1) * 256)
        slots_ptr += shape * ((SCALE_LAW + 1) * M)
        units_ptr = data_ptr + start
        n_words = size - STATES
        cursor = open_units(units_ptr, n_words, lane)
        k0, k1 = bucket_key(load_long(keys_ptr + row * KEY_STRIDE), block)
        n_cells = (tl.minimum(n - block.to(tl.int64) * BLOCK_, BLOCK_).to(tl.int32) + CELL_ - 1) // CELL_
        scale_before = 0
        for group in tl.static_range(CELLS // STATES):
            ours = group * STATES + lane
            valid = live & (ours < n_cells)
            scale_law = tl.full((32,), SCALE_LAW, tl.int32)
            x, delta, cursor = _pop(x, scale_law, valid, cursor, table_ptr, slots_ptr, lane)
            cursor = advance(units_ptr, n_words, cursor, lane)
            zeros = delta == ZEROS_
            sums = (scale_before + tl.cumsum(tl.where(valid & (delta < SCALES), delta, 0), 0)) % SCALES
            tl.store(meta_ptr + ours, tl.where(zeros, ZEROS_, sums), mask=valid)
            scale_before = tl.sum(tl.where(lane == STATES - 1, sums, 0), 0)
        tl.debug_barrier()
        n_raws = tl.zeros((32,), tl.int32)
        following = tl.load(meta_ptr)
        for cell in range(n_cells):
            scale = following
            following = tl.load(meta_ptr + tl.minimum(cell + 1, n_cells - 1))
            width = tl.load(widths_ptr + scale)
            rotation = rotation_of(cell, k0, k1)
            law = scale * CLASSES + class_of((lane + rotation) & (STRATA - 1))
            n_escapes = tl.zeros((32,), tl.int32)
            for h in range(width):
                word = tl.zeros((32,), tl.uint32)
                for b in tl.static_range(4):
                    x, symbol, cursor = _pop(x, law, live, cursor, table_ptr, slots_ptr, lane)
                    word |= symbol.to(tl.uint32) << (8 * b)
                cursor = advance(units_ptr, n_words, cursor, lane)
                tl.store(words_ptr + cell * WORDS + h * STATES + lane, word.to(tl.int32, bitcast=True), mask=live)
                ones = tl.where(width == 2, escapes(word, 2), tl.where(width == 4, escapes(word, 4), escapes(word, 8)))
                n_escapes += tl.where(live, count_ones(ones), 0)
            n_tails = tl.sum(n_escapes, 0)
            tl.store(raws_ptr + cell + lane * 0, last - 1 - n_raws, mask=lane == 0)
            in_cell = tl.zeros((32,), tl.int32)
            for g in range((n_tails + STATES - 1) // STATES):
                e = g * STATES + lane
                valid = live & (e < n_tails)
                tail_law = tl.zeros((32,), tl.int32) + (scale + TAIL_LAWS)
                x, symbol, cursor = _pop(x, tail_law, valid, cursor, table_ptr, slots_ptr, lane)
                cursor = advance(units_ptr, n_words, cursor, lane)
                raw = valid & (symbol == RAW_)
                votes = ballot(raw)
                before = count_ones(votes & ((tl.full((32,), 1, tl.uint32) << lane.to(tl.uint32)) - 1))
                entry = tl.where(raw, in_cell + before + RAW_ENTRY, symbol)
                tl.store(tails_ptr + cell * CELL_ + e, entry.to(tl.int16), mask=valid)
                in_cell += count_ones(votes)
            n_raws += in_cell
            meta = (scale | (n_tails << 8)) + (tl.minimum(in_cell, 1) << 20)
            tl.store(meta_ptr + cell + lane * 0, meta, mask=lane == 0)
        used = units_used(cursor)
        left = 2 * (n_words - n_raws) - used
        filling = tl.load(units_ptr + (used >> 1), mask=left == 1, other=0) >> 16
        ended = (left >= 0) & (left <= 1) & (filling == 0) & (x == LOWEST)
        good = (tl.min(ended.to(tl.int32), 0) > 0) & usable
        tl.store(good_ptr + row * n_blocks + block, good.to(tl.int32))
    else:
        every = tl.arange(0, CELLS)
        tl.store(meta_ptr + every, every * 0)
        tl.store(raws_ptr + every, every * 0)
