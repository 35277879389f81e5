"""Subtractive dither on a GPU; `reference/dither.py` is the specification.

    encode   round cells and find what escapes        one warp per cell (`gpu/cells.py`)
             code blocks                              one warp per block (`gpu/table_rans.py`)
             bring their words together               several programs per block (`gpu/blocks.py`)
    decode   decode the blocks of P payloads          one warp per block and payload
             values of cells, of all P payloads, add  one warp per cell

The host waits only where it must know a size or a verdict: in `dither_encode` and `dither_decode`. Scratch memory is 10
bytes per value to encode, most of which is never touched, and 3 per value and payload to decode.
"""

from functools import lru_cache

import numpy as np
import torch

from laconic.kernels.backend import Blocks
from laconic.kernels.cpu.table_rans import tables
from laconic.kernels.dither import CELL, N_SCALES, N_STATES, SHAPES, max_words, thresholds
from laconic.kernels.gpu.blocks import block_ends, first_corrupt, gather, rows_of
from laconic.kernels.gpu.cells import N_MARKS, moments_kernel, round_kernel, values_kernel
from laconic.kernels.gpu.launch import FLAGS, on, signed
from laconic.kernels.gpu.table_rans import pop_kernel, push_kernel
from laconic.kernels.layout import BLOCK_SIZE, n_blocks


@lru_cache(maxsize=8)
def _tables(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Widths, rows and symbols of slots of all shapes, thresholds of the scales, and rows of the encoder."""
    widths, rows, slots = (np.stack(part) for part in zip(*(tables(i) for i in range(len(SHAPES))), strict=True))
    marks = np.full(N_MARKS.value, 2**31 - 1, np.int32)
    marks[: N_SCALES - 1] = thresholds()
    widths = np.pad(widths, ((0, 0), (0, 1)))  # cells of zeros have no digits
    inverses = rows_of((rows >> 16).reshape(len(SHAPES), -1, 256))
    parts = widths.astype(np.int32), rows.astype(np.int64).astype(np.int32), slots, marks, inverses
    return tuple(torch.from_numpy(part).to(device) for part in parts)


def cell_moments(v: torch.Tensor) -> torch.Tensor:
    """(2, n_cells) float64: Σ|x| and Σx² of each cell."""
    n_cells = -(-v.numel() // CELL)
    out = torch.empty(2, n_cells, dtype=torch.float64, device=v.device)
    if n_cells:
        with on(v.device):
            moments_kernel[(n_cells,)](v, out, v.numel(), n_cells, num_warps=1)
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
    """Write the shape of the laws (1,) int32, sizes of blocks and blocks to the words `out` (int32), cut where it ends.

    Returns their number of bytes, (1,) int64. No host synchronisation.
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
        round_kernel[(n_cells,)](
            v, steps, shape, widths, rows, marks, words, tails, meta, n, signed(key), step_size // CELL,
            num_warps=1, **FLAGS,
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
        row[None], head[None, :2], steps[None], step_size, head[None, 4:6], out, weight, accumulate
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
    accumulate: bool,
) -> torch.Tensor:
    """out = weight * sum of the values of P rows, or out += the same; no host synchronisation. Rows may be strided.

    data     (P, capacity) int32: coded bytes of a payload each: shape of the laws, words per block, words
    lengths  (P, 2) int32: halves of the number of bytes that a row should have; more than it has is corrupt
    steps    (P, n_steps) float32
    keys     (P, 2) int32: halves of the streams' keys
    returns  (P, n_blocks) int32: 0 for corrupt blocks, whose values are undefined
    """
    n, device, count, n_rows = out.numel(), out.device, n_blocks(out.numel()), len(data)
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
        values_kernel[(-(-n // CELL),)](
            data, steps, keys, widths, words, tails, meta, raws, out, n, n_cells, n_rows, weight, step_size // CELL,
            data.stride(0), steps.stride(0), keys.stride(0), N_SHAPES=len(SHAPES), ACCUMULATE=accumulate,
            num_warps=1, **FLAGS,
        )  # fmt: skip
    return good
