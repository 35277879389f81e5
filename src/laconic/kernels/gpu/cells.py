"""Cells of dithered values on a GPU, one warp per cell: rounded to words and tails, and back.

`gpu/table_rans.py` defines words and tails, and codes them. A lane has 16 values of a cell, all of one stratum and so
of one sign of the dither, and the digits of whole words.
"""

import triton
import triton.language as tl

from laconic.kernels.dither import FIXED_LIMIT, FIXED_POINT, HALF, RAW_ABOVE, TAIL_LIMIT
from laconic.kernels.gpu.ptx import from_lane
from laconic.kernels.gpu.rounding import bucket_key, hash32, reciprocal
from laconic.kernels.gpu.table_rans import (
    CELL_,
    CELLS,
    CLASSES,
    RAW_ENTRY,
    SCALE_LAW,
    SCALES,
    STATES,
    STRATA,
    WORDS,
    ZEROS_,
    class_of,
    escapes,
    load_long,
    rotation_of,
)
from laconic.kernels.gpu.words import minus_zero

HALF_, MIDDLE = tl.constexpr(HALF), tl.constexpr(TAIL_LIMIT)
FIXED, MOST_FIXED, ABOVE = tl.constexpr(FIXED_POINT), tl.constexpr(FIXED_LIMIT), tl.constexpr(RAW_ABOVE)
ROUND = tl.constexpr(1.5 * 2**23)
"""Added to a float32 below 2²², it leaves the nearest integer, halves to even, in the lowest bits."""
N_MARKS = tl.constexpr(64)
"""Number of thresholds of scales, padding included."""


@triton.jit
def _own(lane):
    """(s, half) of a lane: it has values 256 half + 16 q + s of a cell, q = 0 … 15, or words 16 h + s of state s."""
    return lane & (STATES - 1), lane // STATES


@triton.jit
def _offsets(inside, lane, k0, k1):
    """The dither u (float32) of a lane's 16 values, and whether it is negative, which is the same for all of them.

    1 + (2 q + 1) / 2²¹ is the number in [1, 2) whose fraction has the bits q and a one; a lane computes half of the
    hashes that it needs, and the lane 16 further the other half.
    """
    s, half = _own(lane)
    stratum = (s + rotation_of(inside, k0, k1)) & (STRATA - 1)
    first = (stratum << 19).to(tl.uint32) + 0x3F800004
    shift = (16 * half).to(tl.uint32)
    found = ()
    for m in tl.static_range(8):
        h = hash32((inside * HALF_ + (32 * m + lane)).to(tl.uint32), k0, k1)
        other = from_lane(h, lane ^ STATES)
        even, odd = tl.where(half == 0, h, other), tl.where(half == 0, other, h)
        found += ((first + (((even >> shift) & 0xFFFF) << 3)).to(tl.float32, bitcast=True) - 1.5,)
        found += ((first + (((odd >> shift) & 0xFFFF) << 3)).to(tl.float32, bitcast=True) - 1.5,)
    return found, stratum < CLASSES


@triton.jit
def _byte_counts(ones, W: tl.constexpr):
    """Number of escapes in each byte of a word, as the bytes of a word."""
    counts = ones
    if W == 2:
        counts = (ones & 0x11111111) + ((ones >> 2) & 0x11111111)
    if W < 8:
        counts = (counts + (counts >> 4)) & 0x0F0F0F0F
    return counts


@triton.jit
def _ranks(ones, lane, W: tl.constexpr):
    """Number of escapes before each byte of a lane's W / 2 words, in the order of groups, states and digits.

    ones     the words' `escapes`
    returns  for each word the ranks of its bytes among its 16 words, as the bytes of a word, and the rank of these 16
             words; and the number of escapes in the cell
    """
    s, half = _own(lane)
    inside, before = (), ()
    total = tl.zeros((32,), tl.int32)
    for w in tl.static_range(W // 2):
        counts = _byte_counts(ones[w], W)
        sums = counts
        for i in tl.static_range(4):
            below = from_lane(sums, lane - (1 << i) & 31)
            sums += tl.where(s >= 1 << i, below, 0)
        all_ = from_lane(sums, lane | (STATES - 1))
        inside += (sums - counts + ((all_ * 0x01010101) << 8),)
        before += (total,)
        pairs = (all_ & 0xFF00FF) + ((all_ >> 8) & 0xFF00FF)
        total += ((pairs & 0xFFFF) + (pairs >> 16)).to(tl.int32)
    other = from_lane(total, lane ^ STATES).to(tl.int32)
    start = tl.where(half == 0, 0, other)
    ranks = ()
    for w in tl.static_range(W // 2):
        ranks += (before[w] + start,)
    return inside, ranks, total + other


@triton.jit
def _store_digits(codes, cell, scale, rotation, lane, words_ptr, tails_ptr, table_ptr, W: tl.constexpr):
    """Store a cell's words and tails; returns how many tails (32,)."""
    escape: tl.constexpr = (1 << W) - 1
    n_digits: tl.constexpr = 32 // W
    s, half = _own(lane)
    law = (scale * CLASSES + class_of((s + rotation) & (STRATA - 1))) << 8
    ones = ()
    for w in tl.static_range(W // 2):
        word = tl.zeros((32,), tl.uint32)
        for j in tl.static_range(n_digits):
            digit = (codes[w * n_digits + j] - (MIDDLE + 1 - (1 << (W - 1)))).to(tl.uint32, bitcast=True)
            word |= tl.minimum(digit, escape) << (W * j)
        sent = word
        for b in tl.static_range(4):
            row = tl.load(table_ptr + law + ((word >> (8 * b)) & 0xFF).to(tl.int32))
            sent = tl.where(row == 0, sent | (0xFF << (8 * b)), sent)
        tl.store(words_ptr + cell * WORDS + ((half * (W // 2) + w) * STATES + s), sent.to(tl.int32, bitcast=True))
        ones += (escapes(sent, W),)
    inside, ranks, n_tails = _ranks(ones, lane, W)
    tails_ptr += cell * CELL_
    for w in tl.static_range(W // 2):
        for j in tl.static_range(n_digits):
            if j % (8 // W) == 0:
                at = ranks[w] + ((inside[w] >> (W * j)) & 0xFF).to(tl.int32)
            one = (ones[w] >> (W * j)) & 1
            code = codes[w * n_digits + j]
            raw = half * HALF_ + s + (16 * (w * n_digits + j) + RAW_ENTRY)
            tl.store(tails_ptr + at, tl.where(code < 255, code, raw).to(tl.int16), mask=one == 1)
            at += one.to(tl.int32)
    return n_tails


@triton.jit(do_not_specialize=["n", "key"])
def round_kernel(
    v_ptr, steps_ptr, shape_ptr, widths_ptr, table_ptr, marks_ptr, words_ptr, tails_ptr, meta_ptr, n, key, STEP_CELLS
):
    """Round a cell, choose its scale, store its words, tails and meta. Bytes per value: 4 read, about 1/2 written."""
    cell = tl.program_id(0).to(tl.int64)
    block, inside = cell // CELLS, (cell % CELLS).to(tl.int32)
    shape = tl.load(shape_ptr)
    k0, k1 = bucket_key(key.to(tl.int64), block)
    keep, guard, inverse = reciprocal(tl.load(steps_ptr + cell // STEP_CELLS))
    lane = tl.arange(0, 32)
    s, half = _own(lane)
    own, length = half * HALF_ + s, tl.minimum(n - cell * CELL_, CELL_).to(tl.int32)
    own_ptr = v_ptr + cell * CELL_ + own
    x = ()
    for q in tl.static_range(16):
        x += (tl.load(own_ptr + 16 * q, mask=own + 16 * q < length, other=0.0).to(tl.float32),)
    u, negative = _offsets(inside, lane, k0, k1)
    codes = ()
    fixed, bits = tl.zeros((32,), tl.int32), tl.zeros((32,), tl.int32)
    for q in tl.static_range(16):
        kept = tl.where(keep > 0, x[q], 0.0)
        t = (kept * guard) * inverse
        k = ((t + u[q]) + ROUND).to(tl.int32, bitcast=True) - 0x4B400000
        a = tl.abs(t)
        codes += (tl.where(a <= ABOVE, tl.where(negative, -k, k) + MIDDLE, 255),)
        fixed += (tl.where(a < MOST_FIXED, a, MOST_FIXED) * FIXED).to(tl.int32)
        bits |= kept.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    magnitude = tl.sum(fixed, 0)
    scale = tl.sum((tl.load(marks_ptr + tl.arange(0, N_MARKS)) <= magnitude).to(tl.int32), 0)
    scale = tl.where(tl.max(bits, 0) == 0, ZEROS_, scale)
    width = tl.load(widths_ptr + shape * (SCALES + 1) + scale)
    rotation = rotation_of(inside, k0, k1)
    table_ptr += shape * ((SCALE_LAW + 1) * 256)
    n_tails = tl.zeros((32,), tl.int32)
    if width == 2:
        n_tails = _store_digits(codes, cell, scale, rotation, lane, words_ptr, tails_ptr, table_ptr, 2)
    elif width == 4:
        n_tails = _store_digits(codes, cell, scale, rotation, lane, words_ptr, tails_ptr, table_ptr, 4)
    elif width == 8:
        n_tails = _store_digits(codes, cell, scale, rotation, lane, words_ptr, tails_ptr, table_ptr, 8)
    meta = (n_tails << 8) + (scale | (rotation << 20) | (width << 24))
    tl.store(meta_ptr + cell + lane * 0, meta, mask=lane == 0)


@triton.jit
def _load_codes(words_ptr, tails_ptr, lane, W: tl.constexpr):
    """A lane's 16 codes of a cell, int32; RAW_ENTRY + its number in the cell for a raw value."""
    escape: tl.constexpr = (1 << W) - 1
    n_digits: tl.constexpr = 32 // W
    s, half = _own(lane)
    words, ones = (), ()
    for w in tl.static_range(W // 2):
        word = tl.load(words_ptr + ((half * (W // 2) + w) * STATES + s)).to(tl.uint32, bitcast=True)
        words += (word,)
        ones += (escapes(word, W),)
    inside, ranks, _ = _ranks(ones, lane, W)
    codes = ()
    for w in tl.static_range(W // 2):
        for j in tl.static_range(n_digits):
            if j % (8 // W) == 0:
                at = ranks[w] + ((inside[w] >> (W * j)) & 0xFF).to(tl.int32)
            one = (ones[w] >> (W * j)) & 1
            code = ((words[w] >> (W * j)) & escape).to(tl.int32) + (MIDDLE + 1 - (1 << (W - 1)))
            tail = tl.load(tails_ptr + at, mask=one == 1, other=0).to(tl.int32)
            codes += (tl.where(one == 1, tail, code),)
            at += one.to(tl.int32)
    return codes


@triton.jit
def _row_values(codes, zeros, u, negative, step):
    """The values of a lane's codes, raw ones excepted."""
    found = ()
    for q in tl.static_range(16):
        kappa = codes[q] - MIDDLE
        k = (tl.where(negative, -kappa, kappa) + 0x4B400000).to(tl.float32, bitcast=True) - ROUND
        found += (tl.where(zeros, 0.0, k - u[q]) * step,)
    return found


@triton.jit
def _with_raws(values, codes, raws, row_ptr, weight):
    found = ()
    for q in tl.static_range(16):
        raw, at = codes[q] >= RAW_ENTRY, raws - (codes[q] - RAW_ENTRY)
        value = tl.load(row_ptr + at, mask=raw & (at >= 0), other=0).to(tl.float32, bitcast=True)
        found += (tl.where(raw, value * weight, values[q]),)
    return found


@triton.jit
def _add(a, b):
    found = ()
    for q in tl.static_range(16):
        found += (a[q] + b[q],)
    return found


@triton.jit(do_not_specialize=["n", "weight"])
def values_kernel(
    data_ptr, steps_ptr, keys_ptr, widths_ptr, words_ptr, tails_ptr, meta_ptr, raws_ptr, out_ptr, n, n_cells, n_rows,
    weight, STEP_CELLS, STRIDE, STEPS_STRIDE, KEY_STRIDE, N_SHAPES: tl.constexpr, ACCUMULATE: tl.constexpr,
):  # fmt: skip
    """out = weight * sum of the values of a cell in all rows, or out += the same, one row after another."""
    cell = tl.program_id(0).to(tl.int64)
    inside = (cell % CELLS).to(tl.int32)
    lane = tl.arange(0, 32)
    s, half = _own(lane)
    own, length = half * HALF_ + s, tl.minimum(n - cell * CELL_, CELL_).to(tl.int32)
    own_ptr = out_ptr + cell * CELL_ + own
    total = ()
    for q in tl.static_range(16):
        if ACCUMULATE:
            total += (tl.load(own_ptr + 16 * q, mask=own + 16 * q < length, other=0.0),)
        else:
            total += (minus_zero(32),)
    for row in range(n_rows):
        row_ = cell * 0 + row
        place = row_ * n_cells + cell
        shape = tl.minimum(tl.maximum(tl.load(data_ptr + row_ * STRIDE), 0), N_SHAPES - 1)
        meta = tl.load(meta_ptr + place)
        scale = meta & 0xFF
        width = tl.load(widths_ptr + shape * (SCALES + 1) + scale)
        k0, k1 = bucket_key(load_long(keys_ptr + row_ * KEY_STRIDE), cell // CELLS)
        u, negative = _offsets(inside, lane, k0, k1)
        step = tl.load(steps_ptr + row_ * STEPS_STRIDE + cell // STEP_CELLS) * weight
        raws, row_ptr = tl.load(raws_ptr + place), data_ptr + row_ * STRIDE
        cell_words, cell_tails = words_ptr + place * WORDS, tails_ptr + place * CELL_
        if width == 8:
            codes = _load_codes(cell_words, cell_tails, lane, 8)
        elif width == 4:
            codes = _load_codes(cell_words, cell_tails, lane, 4)
        elif width == 2:
            codes = _load_codes(cell_words, cell_tails, lane, 2)
        else:
            codes = (tl.full((32,), MIDDLE, tl.int32),) * 16
        values = _row_values(codes, scale == ZEROS_, u, negative, step)
        if meta >> 20 > 0:
            values = _with_raws(values, codes, raws, row_ptr, weight)
        total = _add(total, values)
    for q in tl.static_range(16):
        tl.store(own_ptr + 16 * q, total[q], mask=own + 16 * q < length)


@triton.jit(do_not_specialize=["n"])
def moments_kernel(v_ptr, out_ptr, n, n_cells):
    """Σ|x| and Σx² of a cell, in float64."""
    cell = tl.program_id(0).to(tl.int64)
    i = cell * CELL_ + tl.arange(0, CELL_)
    x = tl.load(v_ptr + i, mask=i < n, other=0.0).to(tl.float64)
    tl.store(out_ptr + cell, tl.sum(tl.abs(x), 0))
    tl.store(out_ptr + n_cells + cell, tl.sum(x * x, 0))
