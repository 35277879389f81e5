"""What every launcher needs: tuned sizes, the device, the number of programs, a grid's levels in device memory."""

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.rounding import MOST_LEVELS
from laconic.kernels.grid import Grid
from laconic.kernels.layout import field_widths, n_buckets

TUNING = {
    "pack_values_a_thread": 32,
    "pack_max_warps": 16,
    "pack_stages": 1,
    "sum_few_values_a_thread": 8,
    "sum_few_warps": 8,
    "sum_values_a_thread": 32,
    "sum_warps": 2,
    "sum_loaded_values_a_thread": 16,
    "sum_loaded_warps": 4,
    "sum_stages": 1,
    "sum_table_from": 4,
    "held": 16384,
    "cells_held": 32,
    "cells": 4096,
    "tile": 1024,
    "tile_warps": 4,
    "programs": 2048,
}
"""Sizes that change speed and nothing else; `benchmarks/kernels_sweep.py` tries others.

pack_*    `quantize_pack`: values of a bucket per thread, most warps per program
sum_*     `unpack_dequantize`: values per thread, warps per program; sum_few_* for fewer payloads than FEW,
          sum_loaded_* for levels in memory; values of 2 and 4 bits come from tables in registers above sum_table_from
          payloads
cells*    most cells of a grid, in a warp's registers and in memory
held      largest bucket that a program holds in registers
tile*     values and warps of a step through a bucket that is not held
programs  enough to fill a GPU: fewer buckets than this are shared by several programs
"""

FLAGS = {"enable_fp_fusion": False}
"""Each float operation is rounded on its own, as in the specification."""

MAX_PAYLOADS = tl.constexpr(8)
"""Payloads that one launch adds up. More payloads take several launches, in the same order of additions."""

FEW = 4
"""From this many payloads on, a sum is bound by what it reads, and wants more values per thread; below, by what it
writes."""


def sum_sizes(n_payloads: int, loaded: bool) -> tuple[int, int]:
    """Values per thread and warps per program of a sum over `n_payloads`; `loaded`: whether levels are in memory."""
    kind = "sum_few" if n_payloads < FEW else "sum_loaded" if loaded else "sum"
    return TUNING[f"{kind}_values_a_thread"], TUNING[f"{kind}_warps"]


def on(device: torch.device) -> AbstractContextManager[object]:
    """Launch on the device the tensors are on."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def bucket_parts(n: int, bucket_size: int, tile: int) -> tuple[int, int]:
    """Number of buckets of n > 0 values, and how many programs share one: each gets at least a tile."""
    count = n_buckets(n, bucket_size)
    tiles = -(-min(n, bucket_size) // tile)
    return count, max(1, min(tiles, TUNING["programs"] // count))


def tiles(n: int, bucket_size: int) -> tuple[int, dict[str, int]]:
    """Number of programs that go through buckets a tile at a time, and the sizes to launch them with."""
    tile = TUNING["tile"]
    count, parts = bucket_parts(n, bucket_size, tile)
    sizes = {"BUCKET": bucket_size, "PARTS": parts, "TILE": tile, "num_warps": TUNING["tile_warps"], **FLAGS}
    return count * parts, sizes


def scheme(grid: Grid) -> dict[str, int]:
    """The arguments that kernels are compiled for, given a grid."""
    return {"ROUNDING": int(grid.rounding), "BITS": grid.bits}


def n_rows(bits: int) -> int:
    """Rows that a packed bucket is cut into: symbols that share a byte lie a row apart.

    >>> n_rows(4), n_rows(6), n_rows(8)
    (2, 4, 1)
    """
    return 8 // field_widths(bits)[-1]


def is_held(bucket_size: int, bits: int, data: torch.Tensor) -> bool:
    """Whether a program can hold a bucket and read or write its symbols as 32-bit words."""
    whole = bucket_size % (4 * n_rows(bits)) == 0 and bucket_size <= TUNING["held"]
    apart = data.dim() > 1 and len(data) > 1 and data.stride(0) % 4 != 0
    return whole and not apart and data.data_ptr() % 4 == 0


def tile_for(n_warps: int, bucket_size: int) -> int:
    """Values of a step through a short bucket: 8 per thread of the program that would hold a whole one."""
    return max(8, min(256 * n_warps, next_power_of_two(bucket_size)))


def signed(key: int) -> int:
    """The int64 with the same 64 bits."""
    return key - 2**64 if key >= 2**63 else key


def power_of_two(n: int, most: int) -> int:
    """The largest power of two that is neither above n nor above `most`, and 1 at least."""
    return max(1, min(1 << max(0, n).bit_length() >> 1, most))


@lru_cache(maxsize=64)
def levels_on(grid: Grid, device: torch.device) -> torch.Tensor:
    """The grid's levels in the memory of a device; one zero for a grid that has none."""
    return torch.tensor(grid.levels or (0.0,), dtype=torch.float32, device=device)


@lru_cache(maxsize=64)
def cells_on(grid: Grid, device: torch.device, most: int) -> tuple[torch.Tensor, int, int] | None:
    """Tables for `rounding._level_cells`, or for `_level_loaded` if `most`, the largest number of cells, is above 32.

    A cell is the set of floats with the same highest bits; each has at most one level. Returned with the tables are the
    shift from a float's bits to its cell, and the lowest cell. (4, 32) float32: the level in a cell, if any; the number
    of levels below it, 0 not counted, as an integer's bits; the levels; 2^-24 of the gap above each. In memory:
    (128 + cells,) int64, the last two side by side, then the first two. None if there are no such cells.
    """
    levels = torch.tensor(grid.levels, dtype=torch.float32, device="cpu")
    gaps, bits = (levels[1:] - levels[:-1]) * 2.0**-24, levels.view(torch.int32)
    for shift in range(23, 12, -1):
        own = bits[1:] >> shift
        first, n = int(own[0]), int(own[-1] - own[0]) + 1
        if n > most or len(own) > most or len(own.unique()) < len(own) or float(gaps.min()) <= 2.0**-100:
            continue
        cell = torch.arange(first, first + n, dtype=torch.int32, device="cpu")
        below = torch.searchsorted(own[:-1], cell, out_int32=True)
        marks = torch.where(torch.isin(cell, own[:-1]), levels[below + 1], torch.inf)
        if most > 32:
            pairs = torch.zeros(MOST_LEVELS.value + n, 2, dtype=torch.float32, device="cpu")
            pairs[: len(gaps)] = torch.stack([levels[:-1], gaps], 1)
            pairs[MOST_LEVELS.value :] = torch.stack([marks, below.view(torch.float32)], 1)
            return pairs.view(torch.int64)[:, 0].to(device), shift, first
        tables = torch.zeros(4, 32, dtype=torch.float32, device="cpu")
        tables[0, cell.long() % 32], tables[1, cell.long() % 32] = marks, below.view(torch.float32)
        tables[2, : len(gaps)], tables[3, : len(gaps)] = levels[:-1], gaps
        return tables.to(device), shift, first
    return None


def next_power_of_two(n: int) -> int:
    """The smallest power of two that is not below n."""
    return int(triton.next_power_of_2(n))
