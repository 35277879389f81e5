"""The new weights of a block, and with them the margins of the next one: one pass over the rows of each.

A program takes some columns of all k rows, and leaves one part of every margin. The last program of each group to end
adds up the parts of its group, always in the same order, so that `recurrence`, a single program, has few left to add.
Bytes: k n of the data for the update and as many for the margins, mostly from the cache, for each output; where there
are many outputs, 32 of them are two products of matrices, and the rows are read once for these.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.glm.gather import alignment
from laconic.kernels.gpu.launch import next_power_of_two, on
from laconic.kernels.gpu.ptx import follow, has_dependent_launch

PROGRAMS = 128
"""Enough to fill a GPU."""
LEAST_COLUMNS = 16
MOST_COLUMNS = 64
TILE = 8192
"""Numbers of the matrix that a program reads at a time."""
GROUP = 16
"""Programs per group; the last one to end adds up the parts of the group."""
WIDE = 16
"""From this many outputs on, several outputs share the reading of rows."""
WIDE_OUTPUTS, WIDE_COLUMNS, WIDE_ROWS, WIDE_PROGRAMS = 32, 64, 128, 256
"""Sizes of a program's tiles, and number of programs, where outputs share the reading of rows."""
ADDED = 1024
"""Margins that one program adds up."""


@dataclass(frozen=True, slots=True)
class MarginPlan:
    """How the columns are divided among programs, for blocks of k rows; made once.

    columns  per program, a power of two; if wide, per tile of a program
    parts    (n_programs, C, k) float32
    sums     (n_groups, C, k) float32: what adds up to the margins; if wide, one group
    counts   (n_groups, C) int32 zeros: programs that are done
    wide     whether outputs share the reading of rows
    """

    columns: int
    parts: torch.Tensor
    sums: torch.Tensor
    counts: torch.Tensor
    wide: bool

    @classmethod
    def of(cls, k: int, n: int, n_outputs: int, device: torch.device) -> "MarginPlan":
        """The plan for n columns."""
        wide = n_outputs >= WIDE
        columns = min(MOST_COLUMNS, max(LEAST_COLUMNS, next_power_of_two(triton.cdiv(n, PROGRAMS))))
        columns = WIDE_COLUMNS if wide else columns
        n_programs = triton.cdiv(n, columns)
        if wide:
            n_programs = min(n_programs, triton.cdiv(WIDE_PROGRAMS, triton.cdiv(n_outputs, WIDE_OUTPUTS)))
        n_groups = 1 if wide else triton.cdiv(n_programs, GROUP)
        parts, sums = (
            torch.zeros(rows, n_outputs, k, dtype=torch.float32, device=device) for rows in (n_programs, n_groups)
        )
        return cls(columns, parts, sums, torch.zeros(n_groups, n_outputs, dtype=torch.int32, device=device), wide)


@triton.jit
def _tile(X, stride, rows, column, inside, begin, i, k):
    """Rows begin + i of a block of k, in the columns of this program; any row beyond k."""
    taken = tl.load(rows + begin + i, mask=begin + i < k, other=0).to(tl.int64)
    return tl.load(X + taken[:, None] * stride + column[None, :], mask=inside[None, :], other=0.0)


@triton.jit
def _share(Y, p, begin, i, k, NARROW: tl.constexpr):
    """What rows begin + i add to the weights, not yet summed over rows."""
    q = tl.load(p + begin + i, mask=begin + i < k, other=0.0)
    if NARROW:
        Y, q = Y.to(tl.bfloat16), q.to(tl.bfloat16).to(tl.float32)
    return Y.to(tl.float32) * q[:, None]


@triton.jit(do_not_specialize=["ahead"])
def _update_kernel(
    X, stride, rows, next_rows, base, ahead, p, ends, x, x_stride, parts, sums, counts, k, next_k, batch_size, s,
    n, n_outputs, n_programs, per_model, n_blocks, ALIGNED: tl.constexpr,
    UPDATE: tl.constexpr, MARGINS: tl.constexpr, NARROW: tl.constexpr, SHRINK: tl.constexpr,
    R: tl.constexpr, K: tl.constexpr, N: tl.constexpr, GROUP: tl.constexpr, STAGES: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Columns of program 0, output of program 1. NARROW: operands of the update in bfloat16.

    Where a program reads a block at once (R = K), it does so while the recurrence still runs.
    """
    part, c = tl.program_id(0), tl.program_id(1)
    batch = tl.load(base) + ahead
    first = batch * batch_size
    column, i = part * N + tl.arange(0, N), tl.arange(0, R)
    inside = column < n * ALIGNED
    stride = stride * ALIGNED
    weights = x + c.to(tl.int64) * x_stride + column
    rows += first
    next_rows += first + k
    if R == K:
        if UPDATE:
            Y = _tile(X, stride, rows, column, inside, 0, i, k)
        if MARGINS:
            Y_next = _tile(X, stride, next_rows, column, inside, 0, i, next_k)
    follow(DEPENDENT)
    value = tl.load(weights, mask=inside, other=0.0)
    if UPDATE:
        if R == K:
            step = _share(Y, p + c * k, 0, i, k, NARROW)
        else:
            step = tl.zeros((R, N), tl.float32)
            for begin in tl.range(0, k, R, num_stages=STAGES):
                Y = _tile(X, stride, rows, column, inside, begin, i, k)
                step += _share(Y, p + c * k, begin, i, k, NARROW)
        ends += 2 * (c // per_model * n_blocks + batch // s)
        value = tl.load(ends) * value + tl.sum(step, 0)
        if SHRINK:
            size = tl.maximum(tl.abs(value) - tl.load(ends + 1), 0.0)
            value = tl.where(value > 0, size, -size)
        tl.store(weights, value, mask=inside)
    if MARGINS:
        own = parts + (part * n_outputs + c) * next_k
        if R == K:
            tl.store(own + i, tl.sum(Y_next.to(tl.float32) * value[None, :], 1), mask=i < next_k)
        else:
            for begin in tl.range(0, next_k, R, num_stages=STAGES):
                Y = _tile(X, stride, next_rows, column, inside, begin, i, next_k)
                tl.store(own + begin + i, tl.sum(Y.to(tl.float32) * value[None, :], 1), mask=begin + i < next_k)
        tl.debug_barrier()  # all of the program's threads have written before it is counted as done
        group = part // GROUP
        members = min(GROUP, n_programs - group * GROUP)
        done = tl.atomic_add(counts + group * n_outputs + c, 1, sem="acq_rel")
        if done == members - 1:
            m = tl.arange(0, GROUP)
            others = parts + ((group * GROUP + m) * n_outputs + c)[:, None] * next_k
            total = sums + (group * n_outputs + c) * next_k
            row = tl.arange(0, K)
            wanted = (m < members)[:, None] & (row < next_k)[None, :]
            margins = tl.load(others + row[None, :], mask=wanted, other=0.0, cache_modifier=".cg")
            tl.store(total + row, tl.sum(margins, 0), mask=row < next_k)
            tl.store(counts + group * n_outputs + c, 0)


@triton.jit(do_not_specialize=["ahead"])
def _wide_kernel(
    X, stride, rows, next_rows, base, ahead, p, ends, x, x_stride, parts, k, next_k, batch_size, s,
    n, n_outputs, n_tiles, per_model, n_blocks, ALIGNED: tl.constexpr,
    UPDATE: tl.constexpr, MARGINS: tl.constexpr, NARROW: tl.constexpr, SHRINK: tl.constexpr,
    R: tl.constexpr, N: tl.constexpr, C: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """`_update_kernel` by products of matrices, tile after tile: columns of program 0, C outputs of program 1."""
    part, i, c = tl.program_id(0), tl.arange(0, R), tl.program_id(1) * C + tl.arange(0, C)
    batch, real = tl.load(base) + ahead, (c < n_outputs)[:, None]
    first, next_first = batch * batch_size, batch * batch_size + k
    ends += 2 * (c // per_model * n_blocks + batch // s)
    own = parts + (part * n_outputs + c)[:, None] * next_k
    for tile in range(n_tiles):
        column = (part * n_tiles + tile) * N + tl.arange(0, N)
        inside = column < n * ALIGNED
        weights = x + c[:, None].to(tl.int64) * x_stride + column[None, :]
        value = tl.load(weights, mask=real & inside[None, :], other=0.0)
        if UPDATE:
            step = tl.zeros((C, N), tl.float32)
            for begin in tl.range(0, k, R, num_stages=STAGES):
                row = begin + i
                taken = tl.load(rows + first + row, mask=row < k, other=0).to(tl.int64)
                Y = tl.load(X + taken[:, None] * (stride * ALIGNED) + column[None, :], mask=inside[None, :], other=0.0)
                q = tl.load(p + c[:, None] * k + row[None, :], mask=real & (row < k)[None, :], other=0.0)
                if NARROW:
                    Y, q = Y.to(tl.bfloat16), q.to(tl.bfloat16).to(tl.float32)
                step = tl.dot(q, Y.to(tl.float32), step, input_precision="tf32x3")
            value = tl.load(ends, mask=c < n_outputs, other=0.0)[:, None] * value + step
            if SHRINK:
                size = tl.maximum(tl.abs(value) - tl.load(ends + 1, mask=c < n_outputs, other=0.0)[:, None], 0.0)
                value = tl.where(value > 0, size, -size)
            tl.store(weights, value, mask=real & inside[None, :])
        if MARGINS:
            for begin in tl.range(0, next_k, R, num_stages=STAGES):
                row = begin + i
                taken = tl.load(next_rows + next_first + row, mask=row < next_k, other=0).to(tl.int64)
                Y = tl.load(X + taken[None, :] * (stride * ALIGNED) + column[:, None], mask=inside[:, None], other=0.0)
                here = real & (row < next_k)[None, :]
                before = tl.load(own + row[None, :], mask=here & (tile > 0), other=0.0)
                z = tl.dot(value, Y.to(tl.float32), before, input_precision="tf32x3")
                tl.store(own + row[None, :], z, mask=here)


@triton.jit
def _add_kernel(parts, n_parts, sums, size, E: tl.constexpr):
    """Add up the parts of some margins, always in the same order."""
    cell = tl.program_id(0) * E + tl.arange(0, E)
    total = tl.zeros((E,), tl.float32)
    for part in range(n_parts):
        total += tl.load(parts + part * size + cell, mask=cell < size, other=0.0)
    tl.store(sums + cell, total, mask=cell < size)


def update(
    X: torch.Tensor,
    rows: torch.Tensor,
    next_rows: torch.Tensor,
    base: torch.Tensor,
    ahead: int,
    p: torch.Tensor,
    ends: torch.Tensor,
    x: torch.Tensor,
    plan: MarginPlan,
    *,
    batch_size: int,
    s: int,
    shrinks: bool,
    narrow: bool,
    last: bool,
) -> None:
    """x = R x + Yᵀ p, shrunk by H, in place; then plan.sums = the next block's margins at the new x.

    X     (m, n); rows, next_rows (all,) int32, where the rows of this block and of the next are found in X
    p        (M C, k) float32 of M models, as `recurrence` leaves it; x (M C, n) float32
    ends     (M, n_blocks, 2) float32: R = Π (1 − η λ) and H = l1 Σ η of the block at batch / s
    shrinks  whether any H is not 0
    last     whether no block follows, so that no margins are needed
    """
    made = (True, not last)
    _launch(X, rows, next_rows, base, ahead, p, ends, x, plan, p.shape[1], batch_size, s, shrinks, narrow, *made)


def margins(
    X: torch.Tensor, rows: torch.Tensor, base: torch.Tensor, x: torch.Tensor, plan: MarginPlan, batch_size: int
) -> None:
    """plan.sums = margins at x of the block that begins at batch `base`."""
    _launch(X, rows, rows, base, 0, x, x[None], x, plan, 0, batch_size, 1, False, False, False, True)


def _launch(X, rows, next_rows, base, ahead, p, ends, x, plan, k, batch_size, s, shrinks, narrow, updates, following):
    n_programs, n_outputs, next_k = plan.parts.shape
    aligned, whole = alignment(X), next_power_of_two(max(k, next_k))
    arrays = (X, X.stride(0) // aligned, rows, next_rows, base, ahead, p, ends, x, x.stride(0), plan.parts)
    columns, models = X.shape[1] // aligned, (n_outputs // len(ends), ends.shape[1])
    flags = {"ALIGNED": aligned, "UPDATE": updates, "MARGINS": following, "NARROW": narrow, "SHRINK": shrinks}
    dependent = has_dependent_launch(x.device)
    waiting = dependent and updates and n_programs * n_outputs <= PROGRAMS  # more would keep Gram matrices waiting
    with on(x.device):
        if plan.wide:
            n_tiles = triton.cdiv(X.shape[1], plan.columns * n_programs)
            sizes = {"R": min(WIDE_ROWS, max(16, whole)), "N": plan.columns, "C": WIDE_OUTPUTS}
            _wide_kernel[n_programs, triton.cdiv(n_outputs, WIDE_OUTPUTS)](
                *arrays, k, next_k, batch_size, s, columns, n_outputs, n_tiles, *models, **flags, **sizes, STAGES=2,
                num_warps=4,
            )  # fmt: skip
            if following:
                size = n_outputs * next_k
                _add_kernel[triton.cdiv(size, ADDED),](plan.parts, n_programs, plan.sums, size, E=ADDED, num_warps=4)
            return
        at_once = min(whole, TILE // plan.columns)
        _update_kernel[n_programs, n_outputs](
            *arrays, plan.sums, plan.counts, k, next_k, batch_size, s, columns, n_outputs, n_programs, *models, **flags,
            R=at_once, K=whole, N=plan.columns, GROUP=GROUP, STAGES=2,
            num_warps=max(1, min(4, whole // 32)), DEPENDENT=dependent, **({"launch_pdl": True} if waiting else {}),
        )  # fmt: skip
