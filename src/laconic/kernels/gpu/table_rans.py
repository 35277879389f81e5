"""The coder of dithered values on a GPU: a warp codes a block, lane s the state s; `reference/dither.py` specifies it.

A block's steps depend on each other, 16 states at a time, so a block takes as long as its chain of steps; many blocks
run beside each other. What does not depend on the states is done by `gpu/dither.py`, a program per cell.

Between the two a cell is

    words    (128,) uint32: word 16 h + s holds the bytes of state s in groups 4 h … 4 h + 3, the first lowest
    tails    (512,) int16: the tail symbols, fewer than 256; a raw value is RAW_ENTRY + its place in the cell (encoder),
             or + how many raw values the cell has before it (decoder)
    meta     int32: scale, or ZEROS, + 2⁸ · number of tails + 2²⁰ · rotation
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
IDENTITY = tl.constexpr(TOTAL << 16)
"""The row of a certain symbol, which leaves its state as it is."""


@triton.jit
def rotation_of(cell, k0, k1):
    """Of cell number `cell` of a block with this key: the stratum of its first value."""
    return (hash32(tl.full((), BLOCK_, tl.uint32) + cell, k0, k1) & (STRATA - 1)).to(tl.int32)


@triton.jit
def class_of(stratum):
    """Of |u|, counted from the middle."""
    return tl.where(stratum >= CLASSES, stratum, -stratum + (2 * CLASSES - 1)) - CLASSES


@triton.jit
def _push(x, p, row, units_ptr, lane):
    """One step of the encoder in every lane: states and cursor. Units are written downwards from units[p - 1].

    The quotient by f, below 2¹⁹, is taken in float32, as the CPU does: right or one too small.
    """
    f, start = row >> 16, row & 0xFFFF
    over = (x >> (31 - P)) >= f
    votes = ballot(over)
    above = count_ones((votes >> 1) >> lane.to(tl.uint32))
    tl.store(units_ptr + (p - 1 - above), x.to(tl.int16), mask=over)
    x = tl.where(over, x >> 16, x)
    q = (x.to(tl.float32) * tl.div_rn(1.0 - 2.0**-22, f.to(tl.float32))).to(tl.int32)
    rest = x - q * f
    y = rest + start + (q << P)
    return tl.where(rest < f, y, y - f + M), p - count_ones(votes)


@triton.jit
def _pop(x, p, law, valid, units_ptr, n_units, table_ptr, slots_ptr, lane):
    """One step of the decoder in the valid lanes: states, cursor and symbols. Past the end of the units there are
    zeros; the cursor shows it."""
    slot = x & (M - 1)
    symbol = tl.load(slots_ptr + (law << P) + slot, mask=valid, other=0).to(tl.int32)
    row = tl.load(table_ptr + (law << 8) + symbol, mask=valid, other=IDENTITY)
    x = tl.where(valid, (row >> 16) * (x >> P) + slot - (row & 0xFFFF), x)
    low = x < LOWEST
    votes = ballot(low)
    at = p + count_ones(votes & ((tl.full((32,), 1, tl.uint32) << lane.to(tl.uint32)) - 1))
    unit = tl.load(units_ptr + at, mask=low & (at < n_units), other=0).to(tl.int32) & 0xFFFF
    return tl.where(low, (x << 16) | unit, x), p + count_ones(votes), symbol


@triton.jit
def escapes(word, W: tl.constexpr):
    """A bit (uint32 words) for each digit of W bits that has ones only, its lowest."""
    ones = word & (word >> 1)
    if W > 2:
        ones = ones & (ones >> 2)
    if W > 4:
        ones = ones & (ones >> 4)
    mask: tl.constexpr = 0x55555555 if W == 2 else 0x11111111 if W == 4 else 0x01010101
    return ones & mask


@triton.jit
def _store_difference(meta_ptr, later, later_scale, scale):
    """The symbol of a cell's scale, the one of number later − 1 if there is one, in the place of its meta."""
    difference = later_scale - scale
    tl.store(meta_ptr + later - 1, tl.where(difference < 0, difference + SCALES, difference), mask=later > 0)


@triton.jit(do_not_specialize=["n"])
def push_kernel(
    v_ptr, words_ptr, tails_ptr, meta_ptr, shape_ptr, widths_ptr, table_ptr, scratch_ptr, counts_ptr, n,
    ROW: tl.constexpr,
):  # fmt: skip
    """Code a block: units from the end of its row of scratch downwards, raw values from its begin upwards, and
    (number of units, number of raw values, 16 states) in counts."""
    block = tl.program_id(0).to(tl.int64)
    shape = tl.load(shape_ptr)
    widths_ptr += shape * (SCALES + 1)
    table_ptr += shape * ((SCALE_LAW + 1) * 256)
    words_ptr += block * (CELLS * WORDS)
    tails_ptr += block * BLOCK_
    v_ptr += block * BLOCK_
    raws_ptr = scratch_ptr + block * ROW
    units_ptr = raws_ptr.to(tl.pointer_type(tl.int16))
    n_cells = (tl.minimum(n - block * BLOCK_, BLOCK_).to(tl.int32) + CELL_ - 1) // CELL_
    meta_ptr += block * CELLS
    lane = tl.arange(0, 32)
    live = lane < STATES
    x = tl.full((32,), LOWEST, tl.int32)
    p = tl.full((32,), 2 * ROW, tl.int32)
    n_raws = tl.zeros((32,), tl.int32)
    meta = tl.load(meta_ptr + n_cells - 1)
    later, later_scale = n_cells * 0, n_cells * 0
    for back in range(n_cells):
        cell = n_cells - 1 - back
        now = meta
        meta = tl.load(meta_ptr + tl.maximum(cell - 1, 0))
        scale, n_tails, rotation = now & 0xFF, (now >> 8) & 0xFFF, now >> 20
        n_words = tl.load(widths_ptr + scale)
        if scale != ZEROS_:
            _store_difference(meta_ptr, later, later_scale, scale)
            later, later_scale = n_cells - back, scale
        n_groups = (n_tails + STATES - 1) // STATES
        for g in range(n_groups):
            e = (n_groups - 1 - g) * STATES + lane
            valid = live & (e < n_tails)
            tail = tl.load(tails_ptr + cell * CELL_ + e, mask=valid, other=0).to(tl.int32)
            raw = tail >= RAW_ENTRY
            votes = ballot(raw)
            above = count_ones((votes >> 1) >> lane.to(tl.uint32))
            value = tl.load(v_ptr + cell * CELL_ + (tail - RAW_ENTRY), mask=raw, other=0.0).to(tl.float32)
            tl.store(raws_ptr + n_raws + above, value.to(tl.int32, bitcast=True), mask=raw)
            n_raws += count_ones(votes)
            symbol = tl.where(raw, RAW_, tail)
            row = tl.load(table_ptr + ((scale + TAIL_LAWS) << 8) + symbol, mask=valid, other=IDENTITY)
            x, p = _push(x, p, row, units_ptr, lane)
        law = (scale * CLASSES + class_of((lane + rotation) & (STRATA - 1))) << 8
        for h in range(n_words):
            word = tl.load(words_ptr + cell * WORDS + (n_words - 1 - h) * STATES + lane, mask=live, other=0)
            for b in tl.static_range(3, -1, -1):
                row = tl.load(table_ptr + law + ((word >> (8 * b)) & 0xFF), mask=live, other=IDENTITY)
                x, p = _push(x, p, row, units_ptr, lane)
    _store_difference(meta_ptr, later, later_scale, 0)
    tl.debug_barrier()
    for group in tl.static_range(CELLS // STATES):
        ours = (CELLS // STATES - 1 - group) * STATES + lane
        valid = live & (ours < n_cells)
        symbol = tl.load(meta_ptr + ours, mask=valid, other=0) & 0xFF
        row = tl.load(table_ptr + (SCALE_LAW << 8) + symbol, mask=valid, other=IDENTITY)
        x, p = _push(x, p, row, units_ptr, lane)
    counts_ptr += block * (STATES + 2)
    tl.store(counts_ptr + lane * 0, 2 * ROW - p, mask=lane == 0)
    tl.store(counts_ptr + lane * 0 + 1, n_raws, mask=lane == 0)
    tl.store(counts_ptr + 2 + lane, x, mask=live)


@triton.jit(do_not_specialize=["capacity"])
def gather_kernel(
    scratch_ptr, counts_ptr, ends_ptr, out_ptr, capacity, ROW: tl.constexpr, TILE: tl.constexpr, PARTS: tl.constexpr
):
    """Bring the words of blocks together: block b ends before word ends[b]. What is past `capacity` is left out."""
    block = tl.program_id(0).to(tl.int64)
    counts_ptr += block * (STATES + 2)
    n_units, n_raws = tl.load(counts_ptr), tl.load(counts_ptr + 1)
    n_words = (n_units + 1) // 2
    size = n_words + n_raws + STATES
    first = tl.load(ends_ptr + block) - size
    raws_ptr = scratch_ptr + block * ROW
    units_ptr = raws_ptr.to(tl.pointer_type(tl.int16)) + (2 * ROW - n_units)
    for start in range(tl.program_id(1) * TILE, size, PARTS * TILE):
        j = start + tl.arange(0, TILE)
        low = tl.load(units_ptr + 2 * j, mask=j < n_words, other=0).to(tl.int32) & 0xFFFF
        high = tl.load(units_ptr + 2 * j + 1, mask=2 * j + 1 < n_units, other=0).to(tl.int32)
        raw = tl.load(raws_ptr + (j - n_words), mask=(j >= n_words) & (j < n_words + n_raws), other=0)
        state = tl.load(counts_ptr + 2 + (j - n_words - n_raws), mask=(j >= n_words + n_raws) & (j < size), other=0)
        tl.store(out_ptr + first + j, low | (high << 16) | raw | state, mask=(j < size) & (first + j < capacity))


@triton.jit
def load_long(ptr):
    """A number of 64 bits that lies at a multiple of 4 bytes."""
    high = tl.load(ptr + 1).to(tl.int64) << 32
    return high | tl.load(ptr).to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit(do_not_specialize=["n", "n_blocks", "capacity"])
def pop_kernel(
    data_ptr, lengths_ptr, ends_ptr, keys_ptr, widths_ptr, table_ptr, slots_ptr, words_ptr, tails_ptr, meta_ptr,
    raws_ptr, good_ptr, n, n_blocks, capacity, STRIDE, LENGTH_STRIDE, KEY_STRIDE, N_SHAPES: tl.constexpr,
):  # fmt: skip
    """Decode a block of a row of coded bytes, as 32-bit words: shape of the laws, sizes of the blocks, blocks.

    ends   (rows, blocks) int64: sums of the sizes, which may be anything
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
    n_words = n_bytes // 4 - 1 - n_blocks
    fits = (
        (n_bytes % 4 == 0)
        & (n_bytes <= capacity)
        & (shape >= 0)
        & (shape < N_SHAPES)
        & (size >= STATES)
        & (first >= 0)
        & (end <= n_words)
    )
    fits = fits & ((block < n_blocks - 1) | (end == n_words))
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
        x = tl.where(x >= LOWEST, x, LOWEST)
        widths_ptr += shape * (SCALES + 1)
        table_ptr += shape * ((SCALE_LAW + 1) * 256)
        slots_ptr += shape * ((SCALE_LAW + 1) * M)
        units_ptr = (data_ptr + start).to(tl.pointer_type(tl.int16))
        n_units = 2 * (size - STATES)
        k0, k1 = bucket_key(load_long(keys_ptr + row * KEY_STRIDE), block)
        n_cells = (tl.minimum(n - block.to(tl.int64) * BLOCK_, BLOCK_).to(tl.int32) + CELL_ - 1) // CELL_
        p = tl.zeros((32,), tl.int32)
        scale_before = 0
        for group in tl.static_range(CELLS // STATES):
            ours = group * STATES + lane
            valid = live & (ours < n_cells)
            x, p, delta = _pop(
                x, p, tl.full((32,), SCALE_LAW, tl.int32), valid, units_ptr, n_units, table_ptr, slots_ptr, lane
            )
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
                    x, p, symbol = _pop(x, p, law, live, units_ptr, n_units, table_ptr, slots_ptr, lane)
                    word |= symbol.to(tl.uint32) << (8 * b)
                tl.store(words_ptr + cell * WORDS + h * STATES + lane, word.to(tl.int32, bitcast=True), mask=live)
                ones = tl.where(width == 2, escapes(word, 2), tl.where(width == 4, escapes(word, 4), escapes(word, 8)))
                n_escapes += tl.where(live, count_ones(ones), 0)
            n_tails = tl.sum(n_escapes, 0)
            tl.store(raws_ptr + cell + lane * 0, last - 1 - n_raws, mask=lane == 0)
            in_cell = tl.zeros((32,), tl.int32)
            for g in range((n_tails + STATES - 1) // STATES):
                e = g * STATES + lane
                valid = live & (e < n_tails)
                x, p, symbol = _pop(
                    x, p, tl.zeros((32,), tl.int32) + (scale + TAIL_LAWS), valid, units_ptr, n_units, table_ptr,
                    slots_ptr, lane,
                )  # fmt: skip
                raw = valid & (symbol == RAW_)
                votes = ballot(raw)
                before = count_ones(votes & ((tl.full((32,), 1, tl.uint32) << lane.to(tl.uint32)) - 1))
                entry = tl.where(raw, in_cell + before + RAW_ENTRY, symbol)
                tl.store(tails_ptr + cell * CELL_ + e, entry.to(tl.int16), mask=valid)
                in_cell += count_ones(votes)
            n_raws += in_cell
            tl.store(meta_ptr + cell + lane * 0, (scale | (n_tails << 8)) + lane * 0, mask=lane == 0)
        left = n_units - 2 * n_raws - p
        filling = tl.load(units_ptr + p, mask=left == 1, other=0)
        ended = (left >= 0) & (left <= 1) & (filling == 0) & (x == LOWEST)
        good = (tl.min(ended.to(tl.int32), 0) > 0) & usable
        tl.store(good_ptr + row * n_blocks + block, good.to(tl.int32))
    else:
        every = tl.arange(0, CELLS)
        tl.store(meta_ptr + every, every * 0)
        tl.store(raws_ptr + every, every * 0)
