"""Subtractive dither and its code in plain torch and Python: the specification.

Values are cut into blocks of 65,536 and these into cells of 512 (`kernels.dither` explains cells, scales, digits and
laws). Each block is coded on its own with 16 rANS states x, as in `reference/rans.py`, but with x in [2**15, 2**31),
all 2**15 at first, frequencies that sum to 2**12, and a law chosen for every symbol. The decoder reads

    1. for each cell, its scale minus that of the last cell that had one (at first 0), modulo 36, from state
       (cell mod 16). The symbol 36 marks a cell of exact zeros, which has no scale and nothing of what follows

and then, for every other cell,

    2. the bytes of digits: byte j from state j mod 16, by the law of the scale and of that state's class. Byte 16 g + s
       holds the digits of values 16 (D g + d) + s of the cell, d = 0 … D − 1 = 8/w − 1, the first in the lowest bits
    3. one tail symbol for every escaped value, in the order of bytes and digits: the e-th from state e mod 16

and the encoder goes through the same steps in reverse order. The last cell is padded with zeros.

    words of a block    the 16-bit units two per word, the raw values from the last to the first, 16 final states

The states come last, so that a decoder that reads 16 units at a time stays within the block. A block is accepted only
if all states return to 2**15 and all words are used.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from laconic.kernels import dither
from laconic.kernels.backend import Blocks
from laconic.kernels.dither import CELL, HALF, LOWEST_STATE, N_SCALES, N_STATES, N_STRATA, TAIL_LIMIT, TOTAL, Laws
from laconic.kernels.layout import BLOCK_SIZE
from laconic.kernels.reference.bitstream import block_starts, join_blocks
from laconic.kernels.reference.random import bucket_keys, hash32
from laconic.kernels.reference.rounding import range_guard

BEYOND = 2**20
"""Replaces κ for a value that is sent raw."""
ZERO = 2**20 + 1
"""Replaces κ for the values of a cell of exact zeros."""
Symbol = tuple[int, int, int, int]
"""(index of the rANS state, the symbol's start and frequency in its law, the symbol)."""


def cell_moments(v: Tensor) -> Tensor:
    """(2, n_cells) float64: Σ|x| and Σx² of each cell."""
    x = torch.nn.functional.pad(v.double(), (0, -v.numel() % CELL)).view(-1, CELL)
    return torch.stack([x.abs().sum(1), x.square().sum(1)])


def dither_bits(key: int, n: int, device: torch.device) -> Tensor:
    """(n,) int64: the 20 random bits q of each value, its stratum in the highest four."""
    i = torch.arange(n, device=device)
    block, cell = i // BLOCK_SIZE, i % BLOCK_SIZE // CELL
    k0, k1 = (half[block] for half in bucket_keys(key, int(-(-n // BLOCK_SIZE)), device))
    rotation, h = hash32(BLOCK_SIZE + cell, k0, k1), hash32(HALF * cell + i % HALF, k0, k1)
    return (i + rotation) % N_STRATA << 16 | torch.where(i % CELL < HALF, h % 2**16, h >> 16)


def dither_offset(q: Tensor) -> Tensor:
    """u = (2 q + 1 − 2²⁰) / 2²¹, float32."""
    u: Tensor = (2 * q + 1 - 2**dither.DITHER_BITS).float() / 2 ** (dither.DITHER_BITS + 1)
    return u


def scaled(v: Tensor, steps: Tensor, step_size: int) -> tuple[Tensor, Tensor]:
    """t = x/Δ (n,) float32, and which values are in a cell of zeros; x counts as 0 if Δ is zero or not finite."""
    usable, guard = (steps > 0) & steps.isfinite(), range_guard(steps)
    inverse = torch.where(usable, 1 / (steps * guard), 0.0)
    index = torch.arange(v.numel(), device=v.device) // step_size
    x = torch.where(usable[index], v.float(), 0.0)
    zeros = (torch.nn.functional.pad(x, (0, -x.numel() % CELL)).view(-1, CELL) == 0).all(1)
    return (x * guard[index]) * inverse[index], zeros.repeat_interleave(CELL)[: x.numel()]


def dither_quantize(v: Tensor, steps: Tensor, step_size: int, key: int) -> tuple[Tensor, Tensor]:
    """κ of each value, (n,) int64, and the magnitude of each cell, (n_cells,) int64.

    κ is BEYOND for values to be sent raw and ZERO in cells of zeros. k = round(t + u), halves to even, with
    t = (x g) · (1 / (Δ g)) in float32. The guard g, 1 or 2**±64, keeps 1 / (Δ g) within float32
    (`rounding.range_guard`).
    """
    n, (t, zeros) = v.numel(), scaled(v, steps, step_size)
    u = dither_offset(dither_bits(key, n, v.device))
    k = torch.where(t.abs() <= dither.RAW_ABOVE, (t + u).round(), float(BEYOND)).long()
    fixed = (t.abs().clamp(max=dither.FIXED_LIMIT) * dither.FIXED_POINT).long()
    cells = torch.nn.functional.pad(fixed, (0, -n % CELL)).view(-1, CELL).sum(1)
    return torch.where((u < 0) & (k != BEYOND), -k, k).where(~zeros, ZERO), cells


def dither_dequantize(kappa: Tensor, scales: Tensor, step_size: int, key: int) -> Tensor:
    """(k − u) · scale (n,), float32, and 0 · scale for zeros; a scale is Δ times the weight."""
    n, device = kappa.numel(), kappa.device
    u = dither_offset(dither_bits(key, n, device))
    k = (torch.where(u < 0, -kappa, kappa) - u).where(kappa != ZERO, 0.0)
    return k * scales[torch.arange(n, device=device) // step_size]


def dither_encode(v: Tensor, steps: Tensor, step_size: int, key: int, shape: int) -> Blocks:
    """Values (n,) to blocks.

    steps      (n_steps,) float32: value i has the step Δ = steps[i // step_size]
    step_size  a whole number of cells
    """
    kappa, magnitudes = dither_quantize(v, steps, step_size, key)
    strata = dither_bits(key, v.numel(), v.device) >> 16
    parts = []
    for first in range(0, v.numel(), BLOCK_SIZE):
        part = slice(first, first + BLOCK_SIZE)
        cells = magnitudes[first // CELL : (first + BLOCK_SIZE) // CELL]
        parts.append(_encode_block(v[part].float(), kappa[part], strata[part], cells.tolist(), dither.laws(shape)))
    return join_blocks(parts, v.device)


def dither_decode(
    blocks: Blocks, steps: Tensor, step_size: int, key: int, shape: int, out: Tensor, weight: float, accumulate: bool
) -> int:
    """out = weight * values, or out += the same; returns the first corrupt block or -1, and `out` is undefined then."""
    n = out.numel()
    starts, bad = block_starts(blocks, n)
    if bad >= 0:
        return bad
    strata = (dither_bits(key, n, torch.device("cpu")) >> 16).tolist()
    kappa: list[int] = []
    raw: dict[int, float] = {}
    for block, (start, stop) in enumerate(pairwise(starts)):
        first = block * BLOCK_SIZE
        words = [word % 2**32 for word in blocks[1][start:stop].tolist()]
        found = _decode_block(words, strata[first : first + BLOCK_SIZE], dither.laws(shape))
        if found is None:
            return block
        kappa += found[0]
        raw |= {first + i: value for i, value in found[1].items()}
    values = dither_dequantize(torch.tensor(kappa, device=out.device), steps * weight, step_size, key)
    for i, value in raw.items():
        values[i] = float(np.float32(value) * np.float32(weight))
    out.copy_(out + values if accumulate else values)
    return -1


def _class_of(stratum: int) -> int:
    return stratum - dither.N_CLASSES if stratum >= dither.N_CLASSES else dither.N_CLASSES - 1 - stratum


def _encode_block(v: Tensor, kappa: Tensor, strata: Tensor, magnitudes: list[int], tables: Laws) -> list[int]:
    pad = -v.numel() % CELL
    values, symbols = v.tolist() + [0.0] * pad, kappa.tolist() + [0] * pad
    scales = [
        None if symbols[i * CELL] == ZERO else dither.scale_of(magnitude) for i, magnitude in enumerate(magnitudes)
    ]
    deltas, before = [], 0
    for scale in scales:
        deltas.append(dither.ZEROS if scale is None else (scale - before) % N_SCALES)
        before = before if scale is None else scale
    plan = [_symbol(cell % N_STATES, tables.scales, delta) for cell, delta in enumerate(deltas)]
    raw: list[float] = []
    for cell, scale in enumerate(scales):
        if scale is None:
            continue
        part = slice(cell * CELL, (cell + 1) * CELL)
        first = int(strata[cell * CELL])
        classes = [_class_of((first + s) % N_STRATA) for s in range(N_STATES)]
        escaped = _plan_digits(symbols[part], scale, classes, tables, plan)
        for e, i in enumerate(escaped):
            inside = abs(symbols[part][i]) <= TAIL_LIMIT
            tail = symbols[part][i] + TAIL_LIMIT if inside else dither.RAW
            plan.append(_symbol(e % N_STATES, tables.tails[scale], tail))
            raw += [] if inside else [values[part][i]]
    states, units = [LOWEST_STATE] * N_STATES, []
    for state, start, frequency, _ in reversed(plan):
        x = states[state]
        if x >= frequency << (31 - dither.PRECISION):
            units.append(x % 2**16)
            x >>= 16
        states[state] = x // frequency * TOTAL + x % frequency + start
    units.reverse()
    units += [0] * (len(units) % 2)
    floats: list[int] = np.array(raw[::-1], np.float32).view(np.uint32).tolist()
    return [low | high << 16 for low, high in zip(units[::2], units[1::2], strict=True)] + floats + states


def _plan_digits(kappa: list[int], scale: int, classes: list[int], tables: Laws, plan: list[Symbol]) -> list[int]:
    """Append the bytes of a cell's digits to the plan; returns the positions of escaped values, in the bytes' order."""
    width = int(tables.widths[scale])
    limit, escape, per_byte = 2 ** (width - 1) - 1, 2**width - 1, 8 // width
    digits = [k + limit if abs(k) <= limit else escape for k in kappa]
    escaped: list[int] = []
    for j in range(CELL // per_byte):
        positions = _positions(j, per_byte)
        byte = sum(digits[i] << (width * d) for d, i in enumerate(positions))
        law = tables.bytes_[scale, classes[j % N_STATES]]
        byte = byte if law[byte] > 0 else 255
        escaped += [i for i in positions if byte == 255 or digits[i] == escape]
        plan.append(_symbol(j % N_STATES, law, byte))
    return escaped


def _positions(j: int, per_byte: int) -> list[int]:
    """Positions in the cell of the values whose digits byte j holds."""
    return [(j // N_STATES * per_byte + d) * N_STATES + j % N_STATES for d in range(per_byte)]


def _symbol(state: int, law: np.ndarray, symbol: int) -> Symbol:
    return state, int(law[:symbol].sum()), int(law[symbol]), symbol


def _decode_block(words: list[int], strata: list[int], tables: Laws) -> tuple[list[int], dict[int, float]] | None:
    """κ of each value, and the raw values by position; None if the block is corrupt."""
    words, states, n_cells = words[:-N_STATES], words[-N_STATES:], -(-len(strata) // CELL)
    if len(states) < N_STATES or min(states) < LOWEST_STATE or max(states) >= LOWEST_STATE << 16:
        return None
    units = [half for word in words for half in (word % 2**16, word >> 16)]
    used = 0

    def pop(state: int, law: np.ndarray) -> int:
        nonlocal used
        x = states[state]
        slot, ends = x % TOTAL, np.cumsum(law, dtype=np.int64)
        symbol = int(np.searchsorted(ends, slot, side="right"))
        x = int(law[symbol]) * (x // TOTAL) + slot - int(ends[symbol] - law[symbol])
        if x < LOWEST_STATE:
            x = x << 16 | (units[used] if used < len(units) else 0)
            used += 1
        states[state] = x
        return symbol

    kappa: list[int] = []
    raw_at: list[int] = []
    scale = 0
    deltas = [pop(cell % N_STATES, tables.scales) for cell in range(n_cells)]
    for cell, delta in enumerate(deltas):
        if delta == dither.ZEROS:
            kappa += [ZERO] * CELL
            continue
        scale = (scale + delta) % N_SCALES
        width = int(tables.widths[scale])
        limit, escape, per_byte = 2 ** (width - 1) - 1, 2**width - 1, 8 // width
        first = strata[cell * CELL]
        digits, escaped = [0] * CELL, []
        for j in range(CELL // per_byte):
            s = j % N_STATES
            byte = pop(s, tables.bytes_[scale, _class_of((first + s) % N_STRATA)])
            for d, i in enumerate(_positions(j, per_byte)):
                digits[i] = byte >> (width * d) & escape
                escaped += [i] if digits[i] == escape else []
        for e, i in enumerate(escaped):
            tail = pop(e % N_STATES, tables.tails[scale])
            raw_at += [cell * CELL + i] if tail == dither.RAW else []
            digits[i] = tail - TAIL_LIMIT + limit
        kappa += [digit - limit for digit in digits]
    rest = len(units) - 2 * len(raw_at) - used
    if rest not in (0, 1) or (rest and units[used]) or states != [LOWEST_STATE] * N_STATES:
        return None
    floats = np.array(words[::-1][: len(raw_at)], np.uint32).view(np.float32).tolist()
    n = len(strata)
    return kappa[:n], {i: value for i, value in zip(raw_at, floats, strict=True) if i < n}
