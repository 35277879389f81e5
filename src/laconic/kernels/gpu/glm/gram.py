"""Gram matrices of the rows of blocks: gather and product in one kernel.

Bytes: k n of the data from memory once, then from the cache for every tile; k² / 2 float32 numbers written. Operations:
k² n. A block of short rows has too few tiles to fill a GPU, so several blocks are multiplied at once. A product of long
rows is cut along n into parts that run side by side, and a second kernel adds the parts up. The plan fixes the parts
and their order, so a block's matrix has the same bits each time, alone or with others.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.glm.gather import alignment
from laconic.kernels.gpu.launch import on
from laconic.kernels.gpu.ptx import PTX

PROGRAMS = 132
"""Enough to fill a GPU."""
LEAST_STEPS = 2
"""Fewest steps per part: shorter parts save less than adding them up costs."""
ADDED, PARTS_AT_ONCE = 256, 16
"""Numbers of a tile that one program adds up, and parts that it adds at a time."""
MOST_BLOCKS = 4
"""Most blocks multiplied at once, where that saves cutting a product into parts."""


@dataclass(frozen=True, slots=True)
class GramPlan:
    """How the products of blocks of k rows are divided among programs; made once.

    k        rows per block
    blocks   most blocks multiplied at once
    tiles    (n_tiles, 2) int32: first rows of the earlier and the later rows of a tile
    size     rows per tile
    step     columns per step
    stages   steps loaded ahead
    depth    columns per part
    partial  (blocks, n_tiles, n_parts, size, size) float32
    """

    k: int
    blocks: int
    tiles: torch.Tensor
    size: int
    step: int
    stages: int
    depth: int
    partial: torch.Tensor

    @classmethod
    def of(cls, k: int, batch_size: int, n: int, dtype: torch.dtype, device: torch.device) -> "GramPlan":
        """For k rows in batches of `batch_size`, n columns of values of `dtype`."""
        size = 128 if k > 256 and n >= 8192 else 64 if k > 32 else 32
        step, stages = (128, 3 if size == 128 else 4) if dtype.itemsize == 2 else (32, 3)
        tiles = _tiles(k, batch_size, size)
        steps = triton.cdiv(max(n, 1), step)
        parts = max(1, min(PROGRAMS // len(tiles), steps // LEAST_STEPS))
        blocks, parts = (parts, 1) if parts <= MOST_BLOCKS else (1, parts)
        depth = triton.cdiv(steps, parts) * step
        partial = torch.empty(
            blocks, len(tiles), triton.cdiv(max(n, 1), depth), size, size, dtype=torch.float32, device=device
        )
        return cls(k, blocks, torch.tensor(tiles, dtype=torch.int32, device=device), size, step, stages, depth, partial)


@lru_cache(maxsize=64)
def _tiles(k: int, batch_size: int, size: int) -> tuple[tuple[int, int], ...]:
    """Tiles with an earlier row of one batch and a later row of another.

    >>> _tiles(64, 32, 32)
    ((0, 32),)
    """
    starts = range(0, k, size)
    last = {i: (min(i + size, k) - 1) // batch_size for i in starts}
    tiles = tuple((t, i) for t in starts for i in starts if i >= t and t // batch_size < last[i])
    return tiles or ((0, 0),)


@triton.jit(do_not_specialize=["ahead"])
def _gram_kernel(
    X, stride, rows, base, ahead, G, G_size, G_stride, k, batch_size, n, tiles, partial, depth, n_parts,
    ALIGNED: tl.constexpr, ONE: tl.constexpr, T: tl.constexpr, D: tl.constexpr, NARROW: tl.constexpr,
    DOT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One tile, part and block. NARROW: type that the operands are rounded to; DOT: Triton's name of the precision."""
    tile, part, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = (tl.load(base) + ahead) * batch_size + block * k
    G += block.to(tl.int64) * G_size
    t = tl.load(tiles + 2 * tile) + tl.arange(0, T)
    i = tl.load(tiles + 2 * tile + 1) + tl.arange(0, T)
    earlier = tl.load(rows + first + t, mask=t < k, other=0).to(tl.int64)
    later = tl.load(rows + first + i, mask=i < k, other=0).to(tl.int64)
    d = tl.arange(0, D)
    left = X + earlier[:, None] * (stride * ALIGNED) + d[None, :]
    right = X + later[None, :] * (stride * ALIGNED) + d[:, None]
    total = tl.zeros((T, T), tl.float32)
    begin, n = part * depth, n * ALIGNED
    for column in tl.range(begin, min(begin + depth, n), D, num_stages=STAGES):
        inside = d < n - column
        a = tl.load(left + column, mask=inside[None, :], other=0.0).to(NARROW)
        b = tl.load(right + column, mask=inside[:, None], other=0.0).to(NARROW)
        if PTX:
            total = tl.dot(a, b, total, input_precision=DOT)
        else:  # Triton's interpreter multiplies the bits of bfloat16 numbers; widened, their products are exact as well
            total = tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")
    if ONE:
        tl.store(G + t[:, None] * G_stride + i[None, :], total, mask=(t[:, None] < k) & (i[None, :] < k))
    else:
        cell = tl.arange(0, T)[:, None] * T + tl.arange(0, T)[None, :]
        own = (block * tl.num_programs(0) + tile) * n_parts + part
        tl.store(partial + own.to(tl.int64) * (T * T) + cell, total)


@triton.jit
def _add_kernel(partial, n_parts, tiles, G, G_size, G_stride, k, T: tl.constexpr, E: tl.constexpr, Q: tl.constexpr):
    """Add up the parts of some numbers of a tile, Q parts at a time."""
    tile, cell, q = tl.program_id(0), tl.program_id(1) * E + tl.arange(0, E), tl.arange(0, Q)
    block = tl.program_id(2)
    first = (block * tl.num_programs(0) + tile) * n_parts
    G += block.to(tl.int64) * G_size
    total = tl.zeros((E,), tl.float32)
    for part in range(0, n_parts, Q):
        at = partial + (first + part + q).to(tl.int64)[:, None] * (T * T) + cell[None, :]
        total += tl.sum(tl.load(at, mask=(part + q < n_parts)[:, None], other=0.0), 0)
    t = tl.load(tiles + 2 * tile) + cell // T
    i = tl.load(tiles + 2 * tile + 1) + cell % T
    tl.store(G + t * G_stride + i, total, mask=(t < k) & (i < k))


OPERANDS = {
    "fp32": (tl.float32, "ieee"),
    "tf32": (tl.float32, "tf32"),
    "bf16": (tl.bfloat16, "ieee"),
    "fp16": (tl.float16, "ieee"),
}
"""Type and precision of a product, by the name of the format of its operands."""


def gram(
    X: torch.Tensor,
    rows: torch.Tensor,
    base: torch.Tensor,
    ahead: int,
    plan: GramPlan,
    batch_size: int,
    operand: str,
    G: torch.Tensor,
) -> None:
    """G[j, t, i] = X[row t] · X[row i], summed in float32, for rows t of an earlier batch of block j than i's.

    X      (m, n), rows may be strided
    rows   (all,) int32, the segment's rows; block 0 begins at batch `base` + `ahead`, the next one k rows later
    G      (n_blocks, k, k) float32 or larger, n_blocks at most `plan.blocks`; other entries are left as they are, or
           filled with other products
    """
    (narrow, dot), aligned = OPERANDS[operand], alignment(X)
    (n_tiles, n_parts), size = plan.partial.shape[1:3], plan.size
    sizes, warps = (G.stride(0), G.stride(1)), 4 if size > 32 else 2
    with on(G.device):
        _gram_kernel[n_tiles, n_parts, len(G)](
            X, X.stride(0) // aligned, rows, base, ahead, G, *sizes, plan.k, batch_size, X.shape[1] // aligned,
            plan.tiles, plan.partial, plan.depth, n_parts, ALIGNED=aligned, ONE=n_parts == 1, T=size, D=plan.step,
            NARROW=narrow, DOT=dot, STAGES=plan.stages, num_warps=warps,
        )  # fmt: skip
        if n_parts > 1:
            _add_kernel[n_tiles, size * size // ADDED, len(G)](
                plan.partial, n_parts, plan.tiles, G, *sizes, plan.k, T=size, E=ADDED, Q=PARTS_AT_ONCE, num_warps=4
            )
