"""A bucket held in registers: symbols as 32-bit words, four bytes of packed symbols each.

A bucket of n symbols is cut into R = 8 / (narrowest component) rows of S = n / R values, S a multiple of 4: symbols
that share a byte lie a row apart, and a word holds places 4j to 4j + 3 of each of its rows. So a thread loads four
neighbours of every row (16 bytes of float32), and stores one word. In between, those four are separate tensors: value
(row r, byte b) is element 4 r + b of a tuple.
"""

import triton
import triton.language as tl

from laconic.kernels.gpu.norms import load_all
from laconic.kernels.gpu.ptx import from_halves, lookup
from laconic.kernels.gpu.rounding import INFINITY, POWER, SIGN, UNIFORM, bias, draw, flip, shift_in, symbol, value


@triton.jit
def minus_zero(W: tl.constexpr):
    """(W,) of −0, to which adding any x gives x, even −0. `tl.full` turns −0 into 0."""
    return tl.full((W,), 0x80000000, tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def split_bytes(row, W: tl.constexpr):
    """(4 W,) neighbours to four tensors (W,)."""
    even, odd = tl.split(tl.reshape(row, (W, 2, 2)))
    byte_0, byte_2 = tl.split(even)
    byte_1, byte_3 = tl.split(odd)
    return byte_0, byte_1, byte_2, byte_3


@triton.jit
def join_bytes(byte_0, byte_1, byte_2, byte_3, W: tl.constexpr):
    """Four tensors (W,) to (4 W,) neighbours."""
    return tl.reshape(tl.join(tl.join(byte_0, byte_2), tl.join(byte_1, byte_3)), (4 * W,))


@triton.jit
def _repeat(BITS: tl.constexpr):
    """1 in every field of `BITS` bits of a word, for BITS that divide 8."""
    return 0xFFFFFFFF // ((1 << BITS) - 1)


@triton.jit
def _draw(x, K: tl.constexpr, rule, S: tl.constexpr, W: tl.constexpr, ROUNDING: tl.constexpr, BITS: tl.constexpr):
    offset = (tl.arange(0, W) * 4).to(tl.uint32) + (K // 4 * S + K % 4)
    return draw(x[K], offset, rule, ROUNDING, BITS, False)


@triton.jit
def _word(
    x, rule, FIRST: tl.constexpr, ROWS: tl.constexpr, S: tl.constexpr, W: tl.constexpr,
    ROUNDING: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """Words (W,) of the symbols of ROWS rows from FIRST on, which share the bytes of a word evenly.

    Levels are shifted in one after another, bytes from the last to the first and rows within a byte likewise, and the
    bias is subtracted from all symbols of a word at once. Signs are shifted in likewise, each with the float's bits
    below it, which are masked at the end. Zeros get no sign: adding ones to a level carries into the sign's bit if and
    only if the level is not zero.
    """
    FIELD: tl.constexpr = 8 // ROWS
    word = tl.zeros((W,), tl.uint32)
    sign = tl.zeros((W,), tl.uint32)
    for k in tl.static_range(4 * ROWS):
        drawn = _draw(x, (FIRST + ROWS - 1 - k % ROWS) * 4 + 3 - k // ROWS, rule, S, W, ROUNDING, BITS)
        word = shift_in(word << FIELD, drawn, ROUNDING)
        below = x[(FIRST + ROWS - 1 - k % ROWS) * 4 + 3 - k // ROWS].to(tl.uint32, bitcast=True) >> (32 - BITS)
        sign = (sign << FIELD) | below
    if ROUNDING != SIGN:
        levels = _repeat(FIELD) * ((1 << (BITS - 1)) - 1)
        word -= bias(ROUNDING, BITS) * _repeat(FIELD)
        word |= sign & (word + levels) & (_repeat(FIELD) << (BITS - 1))
    return word & rule[0]


@triton.jit
def _store_field(words_ptr, rows, mask, WIDTH: tl.constexpr, S: tl.constexpr, BITS: tl.constexpr):
    """Store the component of WIDTH bits of rows of symbols, a byte each: WIDTH / (narrowest component) words."""
    wider: tl.constexpr = BITS & (16 - 2 * WIDTH)
    narrow: tl.constexpr = BITS & -BITS
    n_rows: tl.constexpr = WIDTH // narrow
    for q in tl.static_range(n_rows):
        word = rows[0] * 0
        for k in tl.static_range(8 // WIDTH):
            part = (rows[k * n_rows + q] >> wider) & (_repeat(8) * ((1 << WIDTH) - 1))
            word |= part << (k * WIDTH)
        tl.store(words_ptr + (wider // narrow + q) * (S // 4), word, mask=mask)


@triton.jit
def symbols_of(x, rule, S: tl.constexpr, W: tl.constexpr, ROUNDING: tl.constexpr, BITS: tl.constexpr):
    """The symbols (uint32) of a bucket's values, one tensor for each of theirs."""
    found = ()
    for k in tl.static_range(len(x)):
        found += (symbol(x[k], _draw(x, k, rule, S, W, ROUNDING, BITS), rule, ROUNDING, BITS),)
    return found


@triton.jit
def store_words(data_ptr, x, rule, mask, S: tl.constexpr, W: tl.constexpr, ROUNDING: tl.constexpr, BITS: tl.constexpr):
    """Round a held bucket and pack it to data_ptr, component by component."""
    words_ptr = data_ptr.to(tl.pointer_type(tl.uint32)) + tl.arange(0, W)
    if 8 % BITS == 0:
        tl.store(words_ptr, _word(x, rule, 0, 8 // BITS, S, W, ROUNDING, BITS), mask=mask)
    else:
        rows = ()
        for r in tl.static_range(len(x) // 4):
            rows += (_word(x, rule, r, 1, S, W, ROUNDING, BITS),)
        for c in tl.static_range(3):
            if BITS & (4 >> c):
                _store_field(words_ptr, rows, mask, 4 >> c, S, BITS)


@triton.jit
def load_words(data_ptr, j, mask, S: tl.constexpr, BITS: tl.constexpr):
    """The words at places j of a held bucket: BITS / (narrowest component) of them."""
    words = ()
    for q in tl.static_range(BITS // (BITS & -BITS)):
        words += (load_all(data_ptr.to(tl.pointer_type(tl.uint32)) + (j + q * (S // 4)), mask),)
    return words


@triton.jit
def _factors(word, POSITION: tl.constexpr, ROUNDING: tl.constexpr, BITS: tl.constexpr):
    """The levels, signed and a power of two off, of the symbols at bits POSITION and POSITION + 16 of each word.

    Both at once become float16 bit patterns, the level in the exponent for POWER, as a subnormal for UNIFORM. Every
    step is exact. Operations per value: 1 shift, 1 logical, 1 conversion.
    """
    target: tl.constexpr = 10 if ROUNDING == POWER else 0
    levels: tl.constexpr = (((1 << (BITS - 1)) - 1) << target) * 0x00010001
    placed = word << (target - POSITION) if target >= POSITION else word >> (POSITION - target)
    pair = ((word << (16 - BITS - POSITION)) & 0x80008000) | (placed & levels)
    return from_halves(pair)


@triton.jit
def _halves(word, unit, POSITION: tl.constexpr, ROUNDING: tl.constexpr, BITS: tl.constexpr, SAFE: tl.constexpr):
    """The values (+ or -) level * unit of the symbols at bits POSITION and POSITION + 16 of each word.

    Only the last product rounds. Operations per value: 3 (`_factors`) and 1 product (SAFE: `unit` holds the power of
    two already) or 2.
    """
    low, high = _factors(word, POSITION, ROUNDING, BITS)
    if not SAFE:
        low, high = low * half_scale(ROUNDING, BITS), high * half_scale(ROUNDING, BITS)
    return low * unit, high * unit


@triton.jit
def is_safe(scaled, ROUNDING: tl.constexpr):
    """Whether the unit may include the power of two: it is then finite, and for POWER no level times it is subnormal.

    So products with powers of two are exact, and `add_row` may round product and sum in one.
    """
    safe = tl.abs(scaled) < INFINITY
    if ROUNDING == POWER:
        safe = safe & ((tl.abs(scaled) >= 2.0**-112) | (scaled == 0.0))
    return safe


@triton.jit
def half_scale(ROUNDING: tl.constexpr, BITS: tl.constexpr):
    """The power of two between what `_halves` makes of a level and the level's value; 1 where it is not used."""
    if ROUNDING == UNIFORM and 8 % BITS == 0:
        found = 2.0**24
    elif ROUNDING == POWER and (BITS == 2 or BITS == 4):
        found = 2.0 ** (16 - (1 << (BITS - 1)))
    else:
        found = 1.0
    return found


@triton.jit
def _component(words, ROW: tl.constexpr, BYTE: tl.constexpr, WIDTH: tl.constexpr, BITS: tl.constexpr):
    """The component of WIDTH bits of the symbols in byte BYTE and row ROW, where it lies in the symbol."""
    wider: tl.constexpr = BITS & (16 - 2 * WIDTH)
    narrow: tl.constexpr = BITS & -BITS
    n_rows: tl.constexpr = WIDTH // narrow
    word = words[wider // narrow + ROW % n_rows]
    return ((word >> (8 * BYTE + ROW // n_rows * WIDTH)) & ((1 << WIDTH) - 1)) << wider


@triton.jit
def _field(words, ROW: tl.constexpr, BYTE: tl.constexpr, BITS: tl.constexpr):
    """The symbols in byte BYTE and row ROW of each place, put together from their components."""
    found = words[0] * 0
    for c in tl.static_range(4):
        if BITS & (8 >> c):
            found |= _component(words, ROW, BYTE, 8 >> c, BITS)
    return found


@triton.jit
def _components(words, ROW: tl.constexpr, WIDTH: tl.constexpr, BITS: tl.constexpr):
    """The same component of all four bytes."""
    wider: tl.constexpr = BITS & (16 - 2 * WIDTH)
    narrow: tl.constexpr = BITS & -BITS
    n_rows: tl.constexpr = WIDTH // narrow
    at: tl.constexpr = ROW // n_rows * WIDTH - wider
    word = words[wider // narrow + ROW % n_rows]
    part = word >> at if at >= 0 else word << -at
    return part & (_repeat(8) * (((1 << WIDTH) - 1) << wider))


@triton.jit
def _fields(words, ROW: tl.constexpr, BITS: tl.constexpr):
    """The symbols of row ROW in bytes 0 to 3 of each place, at once; of BITS that divide 8 at bit ROW * BITS of each.

    Fewer operations than four times `_field`, but more registers: for tables, which leave enough.
    """
    if 8 % BITS == 0:
        found = words[0]
    else:
        found = words[0] * 0
        for c in tl.static_range(3):
            if BITS & (4 >> c):
                found |= _components(words, ROW, 4 >> c, BITS)
    return found


@triton.jit
def tables(unit, lane, levels_ptr, ROUNDING: tl.constexpr, BITS: tl.constexpr):
    """Values for `lookup`, spread over the lanes of a warp: up to 5 bits, of every symbol; beyond, the magnitudes of 32
    levels per tensor."""
    found = ()
    for k in tl.static_range(max(1, (1 << BITS) // 64)):
        level = lane % (1 << (BITS - 1)) + 32 * k if BITS <= 5 else lane + 32 * k
        size = level.to(tl.float32) if ROUNDING == UNIFORM else tl.load(levels_ptr + level)
        found += (flip(lane.to(tl.uint32), size * unit, BITS - 1) if BITS <= 5 else size * unit,)
    return found


@triton.jit
def _from_tables(symbol, held, BITS: tl.constexpr):
    """Values of symbols, whatever the bits above them."""
    if BITS <= 5:
        found = lookup(held[0], symbol, 1 << BITS, 1)
    else:
        found = lookup(held[0], symbol, 32, 1)
        for k in tl.static_range(1, len(held)):
            found = tl.where((symbol >> 5) % len(held) == k, lookup(held[k], symbol, 32, 1), found)
        found = flip(symbol, found, BITS - 1)
    return found


@triton.jit
def add_table_row(total, words, held, ROW: tl.constexpr, BITS: tl.constexpr):
    """`total`, four tensors, plus the values of bytes 0 to 3 of each place in row ROW."""
    at: tl.constexpr = ROW * BITS if 8 % BITS == 0 else 0
    word, found = _fields(words, ROW, BITS), ()
    for b in tl.static_range(4):
        found += (total[b] + _from_tables(word >> (at + 8 * b), held, BITS),)
    return found


@triton.jit
def row_values(
    words, unit, levels_ptr, ROW: tl.constexpr, ROUNDING: tl.constexpr, BITS: tl.constexpr, SAFE: tl.constexpr
):
    """The values of bytes 0 to 3 of each place in row ROW; SAFE: `unit` is multiplied by `half_scale` already."""
    if ROUNDING == SIGN:
        found = ()
        for b in tl.static_range(4):
            found += (flip(words[0], unit, 8 * b + ROW),)
    elif (ROUNDING == UNIFORM and 8 % BITS == 0) or (ROUNDING == POWER and (BITS == 2 or BITS == 4)):
        a, c = _halves(words[0], unit, ROW * BITS, ROUNDING, BITS, SAFE)
        b, d = _halves(words[0], unit, ROW * BITS + 8, ROUNDING, BITS, SAFE)
        found = (a, b, c, d)
    else:
        found = ()
        for b in tl.static_range(4):
            found += (value(_field(words, ROW, b, BITS), unit, levels_ptr, ROUNDING, BITS),)
    return found


@triton.jit
def add_row(
    total, words, unit, levels_ptr, ROW: tl.constexpr, ROUNDING: tl.constexpr, BITS: tl.constexpr, SAFE: tl.constexpr
):
    """`total`, four tensors, plus the `row_values`.

    At 2 bits a level is 0 or 1, and for POWER a power of two: where the products are exact (SAFE), a fused multiply-add
    rounds as the sum alone does.
    """
    if SAFE and ((ROUNDING == UNIFORM and BITS == 2) or (ROUNDING == POWER and (BITS == 2 or BITS == 4))):
        a, c = _factors(words[0], ROW * BITS, ROUNDING, BITS)
        b, d = _factors(words[0], ROW * BITS + 8, ROUNDING, BITS)
        found = (
            tl.fma(a, unit, total[0]),
            tl.fma(b, unit, total[1]),
            tl.fma(c, unit, total[2]),
            tl.fma(d, unit, total[3]),
        )
    else:
        v0, v1, v2, v3 = row_values(words, unit, levels_ptr, ROW, ROUNDING, BITS, SAFE)
        found = (total[0] + v0, total[1] + v1, total[2] + v2, total[3] + v3)
    return found
