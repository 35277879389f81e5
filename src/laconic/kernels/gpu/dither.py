"""Subtractive dither on a GPU, a program per cell; `reference/dither.py` is the specification.

    encode   round cells and find what escapes        one program per cell
             code blocks                              one warp per block (`gpu/table_rans.py`)
             bring their words together               several programs per block
    decode   decode the blocks of P payloads          one warp per block and payload
             values of cells, of all P payloads, add  one program per cell

Nothing waits for the host but what must know a size: `dither_encode` and the verdict of `dither_decode`.
"""

from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl

from laconic.kernels.backend import Blocks
from laconic.kernels.cpu.table_rans import tables
from laconic.kernels.dither import (
    CELL,
    DITHER_BITS,
    FIXED_LIMIT,
    FIXED_POINT,
    HALF,
    N_SCALES,
    N_STATES,
    RAW_ABOVE,
    SHAPES,
    TAIL_LIMIT,
    max_words,
    thresholds,
)
from laconic.kernels.gpu.blocks import block_ends, first_corrupt, gather, rows_of
from laconic.kernels.gpu.launch import FLAGS, on, signed
from laconic.kernels.gpu.ptx import count_ones
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
    pop_kernel,
    push_kernel,
    rotation_of,
)
from laconic.kernels.layout import BLOCK_SIZE, n_blocks

HALF_, MIDDLE = tl.constexpr(HALF), tl.constexpr(TAIL_LIMIT)
FIXED, MOST_FIXED, ABOVE = tl.constexpr(FIXED_POINT), tl.constexpr(FIXED_LIMIT), tl.constexpr(RAW_ABOVE)
ONE, UNIT = tl.constexpr(1 - (1 << DITHER_BITS)), tl.constexpr(2.0 ** -(DITHER_BITS + 1))
ROUND = tl.constexpr(1.5 * 2**23)
"""Added to a float32 below 2²², it leaves the whole number next to it, halves to even, in the lowest bits."""
WRITE, SUM, ADD = 0, 1, 2
"""What `_values_kernel` begins with: the first payload's values, zeros, or what is there."""
N_MARKS = tl.constexpr(64)
_CELL_WARPS = 1


@lru_cache(maxsize=8)
def _tables(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Widths, rows and symbols of slots of all shapes, and thresholds of the scales, rows of the encoder."""
    widths, rows, slots = (np.stack(part) for part in zip(*(tables(i) for i in range(len(SHAPES))), strict=True))
    marks = np.full(N_MARKS.value, 2**31 - 1, np.int32)
    marks[: N_SCALES - 1] = thresholds()
    widths = np.pad(widths, ((0, 0), (0, 1)))  # cells of zeros have no digits
    inverses = rows_of((rows >> 16).reshape(len(SHAPES), -1, 256))
    parts = widths.astype(np.int32), rows.astype(np.int64).astype(np.int32), slots, marks, inverses
    return tuple(torch.from_numpy(part).to(device) for part in parts)


@triton.jit
def _centred(cell, i, k0, k1):
    """2 q + 1 − 2²⁰ of values i of a cell: 2²¹ times their dither."""
    h = hash32((cell * HALF_ + i % HALF_).to(tl.uint32), k0, k1)
    random = tl.where(i < HALF_, h & 0xFFFF, h >> 16).to(tl.int32)
    stratum = (i + rotation_of(cell, k0, k1)) & (STRATA - 1)
    return (((stratum << 16) | random) << 1) + ONE


@triton.jit
def _ranks(words, W: tl.constexpr):
    """(W, 32 // W, 16) int32: how many escapes come before each digit, for words (W, 16) of digits of W bits.

    In the order of groups, states and digits. Counts of a word's four bytes are four fields of 16 bits.
    """
    ones = escapes(words, W)
    if W == 2:
        counts = (ones & 0x11111111) + ((ones >> 2) & 0x11111111)
        counts = (counts + (counts >> 4)) & 0x0F0F0F0F
    elif W == 4:
        counts = (ones + (ones >> 4)) & 0x0F0F0F0F
    else:
        counts = ones
    c = counts.to(tl.int64)
    c = (c & 0xFF) | ((c & 0xFF00) << 8) | ((c & 0xFF0000) << 16) | ((c & 0xFF000000) << 24)
    running = tl.sum(c, 1) * 0x0001000100010001
    row = running >> 48
    base = (tl.cumsum(row, 0) - row) * 0x0001000100010001 + (running << 16)
    base = tl.cumsum(c, 1) - c + base[:, None]
    q = tl.arange(0, 32 // W)[None, :, None]
    per_byte: tl.constexpr = 8 // W
    byte = q // per_byte
    within = (ones[:, None, :] >> (8 * byte).to(tl.uint32)) & (((1 << (W * (q % per_byte))) - 1).to(tl.uint32))
    return ((base[:, None, :] >> (16 * byte)) & 0xFFFF).to(tl.int32) + count_ones(within)


@triton.jit
def _store_digits(codes, cell, scale, rotation, words_ptr, tails_ptr, table_ptr, W: tl.constexpr):
    """Store a cell's words and tails; returns how many tails.

    codes  (512,) int32
    """
    escape: tl.constexpr = (1 << W) - 1
    codes = tl.reshape(codes, (W, 32 // W, STATES))
    q, s = tl.arange(0, 32 // W), tl.arange(0, STATES)
    digits = (codes - (MIDDLE + 1 - (1 << (W - 1)))).to(tl.uint32, bitcast=True)
    digits = tl.where(digits < escape, digits, escape)
    words = tl.sum(digits << (W * q).to(tl.uint32)[None, :, None], 1)
    law = (scale * CLASSES + class_of((s + rotation) & (STRATA - 1)))[None, :] << 8
    sent = words
    for b in tl.static_range(4):
        row = tl.load(table_ptr + law + ((words >> (8 * b)) & 0xFF).to(tl.int32))
        sent = tl.where(row == 0, sent | (0xFF << (8 * b)), sent)
    at = tl.arange(0, W)[:, None] * STATES + s[None, :]
    tl.store(words_ptr + cell * WORDS + at, sent.to(tl.int32, bitcast=True))
    n_tails = tl.sum(tl.sum(count_ones(escapes(sent, W)), 1), 0)
    if n_tails > 0:
        escaped = ((sent[:, None, :] >> (W * q).to(tl.uint32)[None, :, None]) & escape) == escape
        i = (tl.arange(0, W)[:, None, None] * (32 // W) + q[None, :, None]) * STATES + s[None, None, :]
        entry = tl.where(codes < 255, codes, i + RAW_ENTRY)
        tl.store(tails_ptr + cell * CELL_ + _ranks(sent, W), entry.to(tl.int16), mask=escaped)
    return n_tails


@triton.jit(do_not_specialize=["n", "key"])
def _round_kernel(
    v_ptr, steps_ptr, shape_ptr, widths_ptr, table_ptr, marks_ptr, words_ptr, tails_ptr, meta_ptr, n, key, STEP_CELLS
):
    """Round a cell, choose its scale, store its words, tails and meta."""
    cell = tl.program_id(0).to(tl.int64)
    block, inside = cell // CELLS, (cell % CELLS).to(tl.int32)
    shape = tl.load(shape_ptr)
    k0, k1 = bucket_key(key.to(tl.int64), block)
    keep, guard, inverse = reciprocal(tl.load(steps_ptr + cell // STEP_CELLS))
    i = tl.arange(0, CELL_)
    x = tl.load(v_ptr + cell * CELL_ + i, mask=cell * CELL_ + i < n, other=0.0).to(tl.float32)
    x = tl.where(keep > 0, x, 0.0)
    t = (x * guard) * inverse
    centred = _centred(inside, i, k0, k1)
    k = ((t + centred.to(tl.float32) * UNIT) + ROUND).to(tl.int32, bitcast=True) - 0x4B400000
    a = tl.abs(t)
    codes = tl.where(a <= ABOVE, tl.where(centred < 0, -k, k) + MIDDLE, 255)
    magnitude = tl.sum((tl.where(a < MOST_FIXED, a, MOST_FIXED) * FIXED).to(tl.int32), 0)
    scale = tl.sum((tl.load(marks_ptr + tl.arange(0, N_MARKS)) <= magnitude).to(tl.int32), 0)
    bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    scale = tl.where(tl.max(bits, 0) == 0, ZEROS_, scale)
    width = tl.load(widths_ptr + shape * (SCALES + 1) + scale)
    rotation = rotation_of(inside, k0, k1)
    table_ptr += shape * ((SCALE_LAW + 1) * 256)
    n_tails = scale * 0
    if width == 2:
        n_tails = _store_digits(codes, cell, scale, rotation, words_ptr, tails_ptr, table_ptr, 2)
    elif width == 4:
        n_tails = _store_digits(codes, cell, scale, rotation, words_ptr, tails_ptr, table_ptr, 4)
    elif width == 8:
        n_tails = _store_digits(codes, cell, scale, rotation, words_ptr, tails_ptr, table_ptr, 8)
    tl.store(meta_ptr + cell, scale | (n_tails << 8) | (rotation << 20) | (width << 24))


@triton.jit
def _load_codes(words_ptr, tails_ptr, n_tails, W: tl.constexpr):
    """(512,) int32: a cell's codes; RAW_ENTRY + its number in the cell for a raw value."""
    escape: tl.constexpr = (1 << W) - 1
    q, s = tl.arange(0, 32 // W), tl.arange(0, STATES)
    words = tl.load(words_ptr + tl.arange(0, W)[:, None] * STATES + s[None, :]).to(tl.uint32, bitcast=True)
    digits = ((words[:, None, :] >> (W * q).to(tl.uint32)[None, :, None]) & escape).to(tl.int32)
    codes = digits + (MIDDLE + 1 - (1 << (W - 1)))
    if n_tails > 0:
        codes = tl.load(tails_ptr + _ranks(words, W), mask=digits == escape, other=0).to(tl.int32) + tl.where(
            digits == escape, 0, codes
        )
    return tl.reshape(codes, (CELL_,))


@triton.jit(do_not_specialize=["n", "weight"])
def _values_kernel(
    data_ptr, steps_ptr, keys_ptr, widths_ptr, words_ptr, tails_ptr, meta_ptr, raws_ptr, out_ptr, n, n_cells, n_rows,
    weight, STEP_CELLS, STRIDE, STEPS_STRIDE, KEY_STRIDE, N_SHAPES: tl.constexpr, BEGIN: tl.constexpr,
):  # fmt: skip
    """out = weight * sum of the values of a cell in all rows, or out += the same, one row after another."""
    cell = tl.program_id(0).to(tl.int64)
    inside = (cell % CELLS).to(tl.int32)
    i = tl.arange(0, CELL_)
    mask = cell * CELL_ + i < n
    total = tl.zeros((CELL_,), tl.float32)
    if BEGIN == 2:
        total = tl.load(out_ptr + cell * CELL_ + i, mask=mask, other=0.0)
    for row in range(n_rows):
        row_ = cell * 0 + row
        place = row_ * n_cells + cell
        shape = tl.minimum(tl.maximum(tl.load(data_ptr + row_ * STRIDE), 0), N_SHAPES - 1)
        meta = tl.load(meta_ptr + place)
        scale, n_tails = meta & 0xFF, meta >> 8
        width = tl.load(widths_ptr + shape * (SCALES + 1) + scale)
        codes = tl.full((CELL_,), MIDDLE, tl.int32)
        if width == 2:
            codes = _load_codes(words_ptr + place * WORDS, tails_ptr + place * CELL_, n_tails, 2)
        elif width == 4:
            codes = _load_codes(words_ptr + place * WORDS, tails_ptr + place * CELL_, n_tails, 4)
        elif width == 8:
            codes = _load_codes(words_ptr + place * WORDS, tails_ptr + place * CELL_, n_tails, 8)
        k0, k1 = bucket_key(load_long(keys_ptr + row_ * KEY_STRIDE), cell // CELLS)
        centred = _centred(inside, i, k0, k1)
        kappa = codes - MIDDLE
        k = tl.where(centred < 0, -kappa, kappa)
        step = tl.load(steps_ptr + row_ * STEPS_STRIDE + cell // STEP_CELLS) * weight
        value = tl.where(scale == ZEROS_, 0.0, k.to(tl.float32) - centred.to(tl.float32) * UNIT) * step
        at = tl.load(raws_ptr + place) - (codes - RAW_ENTRY)
        raw = tl.load(data_ptr + row_ * STRIDE + at, mask=(codes >= RAW_ENTRY) & (at >= 0), other=0)
        value = tl.where(codes >= RAW_ENTRY, raw.to(tl.float32, bitcast=True) * weight, value)
        total = value if BEGIN == 0 else total + value
    tl.store(out_ptr + cell * CELL_ + i, total, mask=mask)


@triton.jit(do_not_specialize=["n"])
def _moments_kernel(v_ptr, out_ptr, n, n_cells):
    cell = tl.program_id(0).to(tl.int64)
    i = cell * CELL_ + tl.arange(0, CELL_)
    x = tl.load(v_ptr + i, mask=i < n, other=0.0).to(tl.float64)
    tl.store(out_ptr + cell, tl.sum(tl.abs(x), 0))
    tl.store(out_ptr + n_cells + cell, tl.sum(x * x, 0))


def cell_moments(v: torch.Tensor) -> torch.Tensor:
    """(2, n_cells) float64: Σ|x| and Σx² of each cell."""
    n_cells = -(-v.numel() // CELL)
    out = torch.empty(2, n_cells, dtype=torch.float64, device=v.device)
    if n_cells:
        with on(v.device):
            _moments_kernel[(n_cells,)](v, out, v.numel(), n_cells, num_warps=_CELL_WARPS)
    return out


def dither_encode(v: torch.Tensor, steps: torch.Tensor, step_size: int, key: int, shape: int | torch.Tensor) -> Blocks:
    """Values (n,) to blocks; value i has the step Δ = steps[i // step_size], step_size a whole number of cells."""
    scratch, counts = _code(v, steps, step_size, key, torch.as_tensor(shape, dtype=torch.int32, device=v.device))
    ends, sizes = block_ends(counts), torch.empty(len(counts), dtype=torch.int32, device=v.device)
    words = torch.empty(int(ends[-1]), dtype=torch.int32, device=v.device)
    gather(scratch, counts, ends, sizes, words, states_last=True)
    return sizes, words


def dither_encode_into(
    v: torch.Tensor, steps: torch.Tensor, step_size: int, key: int, shape: torch.Tensor, out: torch.Tensor
) -> torch.Tensor:
    """Shape of the laws (1,) int32, sizes of the blocks and blocks into the words `out` (int32), as far as they go.

    Returns how many bytes they are, (1,) int64. No host synchronisation.
    """
    scratch, counts = _code(v, steps, step_size, key, shape)
    ends, count = block_ends(counts), len(counts)
    out[:1] = shape
    gather(scratch, counts, ends, out[1 : 1 + count], out[1 + count :], states_last=True)
    return 4 * (ends[-1:] + 1 + count)


def _code(
    v: torch.Tensor, steps: torch.Tensor, step_size: int, key: int, shape: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks in rows of scratch memory, and their counts (`gpu/blocks.py`)."""
    n, device, count = v.numel(), v.device, n_blocks(v.numel())
    widths, rows, _, marks, push_rows = _tables(device)
    n_cells, row = -(-n // CELL), max_words(min(n, BLOCK_SIZE))
    words = torch.empty(count * BLOCK_SIZE // 4, dtype=torch.int32, device=device)
    tails = torch.empty(count * BLOCK_SIZE, dtype=torch.int16, device=device)
    meta = torch.empty(count * (BLOCK_SIZE // CELL), dtype=torch.int32, device=device)
    scratch = torch.empty(count, row, dtype=torch.int32, device=device)
    counts = torch.empty(count, N_STATES + 2, dtype=torch.int32, device=device)
    with on(device):
        _round_kernel[(n_cells,)](
            v, steps, shape, widths, rows, marks, words, tails, meta, n, signed(key), step_size // CELL,
            num_warps=_CELL_WARPS, **FLAGS,
        )  # fmt: skip
        push_kernel[(count,)](
            v, words, tails, meta, shape, push_rows, scratch, counts, n, ROW=row, num_warps=1, **FLAGS
        )
    return scratch, counts


def dither_decode(
    blocks: Blocks,
    steps: torch.Tensor,
    step_size: int,
    key: int,
    shape: int,
    out: torch.Tensor,
    weight: float,
    accumulate: bool,
) -> int:
    """out = weight * values, or out += the same; returns the first corrupt block or -1, and `out` is undefined then."""
    sizes, words = blocks
    if sizes.numel() != n_blocks(out.numel()):
        return 0
    ends = 4 * (1 + sizes.numel() + words.numel())
    head = torch.tensor([ends, 0, signed(key), shape]).view(torch.int32).to(out.device)
    row = torch.cat([head[6:7], sizes, words])
    good = dither_decode_rows(
        row[None], head[None, :2], steps[None], step_size, head[None, 4:6], out, weight, accumulate or None
    )
    return first_corrupt(blocks, good[0])


def dither_decode_rows(
    data: torch.Tensor,
    lengths: torch.Tensor,
    steps: torch.Tensor,
    step_size: int,
    keys: torch.Tensor,
    out: torch.Tensor,
    weight: float,
    accumulate: bool | None,
) -> torch.Tensor:
    """out = weight * sum of the values of P rows, or out += the same; no host synchronisation. Rows may lie apart.

    data     (P, capacity) int32: coded bytes of a payload each: shape of the laws, words per block, words
    lengths  (P, 2) int32: halves of the number of bytes that a row should have; more than it has is corrupt
    steps    (P, n_steps) float32
    keys     (P, 2) int32: halves of the streams' keys
    accumulate  None for the values of one row as they are, where a sum turns −0 into 0
    returns  (P, n_blocks) int32: 0 for corrupt blocks, whose values are undefined
    """
    n, device, count, n_rows = out.numel(), out.device, n_blocks(out.numel()), len(data)
    begin = WRITE if accumulate is None else ADD if accumulate else SUM
    widths, rows, slots, _, _ = _tables(device)
    n_cells = count * (BLOCK_SIZE // CELL)
    ends = data[:, 1 : 1 + count].cumsum(1, dtype=torch.int64)
    words = torch.empty(n_rows, n_cells, CELL // 4, dtype=torch.int32, device=device)
    tails = torch.empty(n_rows, n_cells, CELL, dtype=torch.int16, device=device)
    meta, raws = torch.empty(2, n_rows, n_cells, dtype=torch.int32, device=device)
    good = torch.empty(n_rows, count, dtype=torch.int32, device=device)
    with on(device):
        pop_kernel[(count, n_rows)](
            data, lengths, ends, keys, widths, rows, slots, words, tails, meta, raws, good, n, count,
            4 * data.shape[1], data.stride(0), lengths.stride(0), keys.stride(0), N_SHAPES=len(SHAPES), num_warps=1,
        )  # fmt: skip
        _values_kernel[(-(-n // CELL),)](
            data, steps, keys, widths, words, tails, meta, raws, out, n, n_cells, n_rows, weight, step_size // CELL,
            data.stride(0), steps.stride(0), keys.stride(0), N_SHAPES=len(SHAPES), BEGIN=begin,
            num_warps=_CELL_WARPS, **FLAGS,
        )  # fmt: skip
    return good
