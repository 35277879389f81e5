"""The new weights of a block, and with them the margins of the next one: one pass over the rows of each.

A program takes some columns of all k rows, and leaves one part of every margin. The last program of each group to end
adds up the parts of its group, always in the same order, so that `recurrence`, a single program, has few left to add.
Bytes: k n of the data for the update and as many for the margins, mostly from the cache.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.glm.gather import alignment
from laconic.kernels.gpu.launch import next_power_of_two, on

PROGRAMS = 128
"""Enough to fill a GPU."""
LEAST_COLUMNS = 16
MOST_COLUMNS = 64
TILE = 8192
"""Numbers of the matrix that a program reads at a time."""
GROUP = 16
"""Programs whose parts the last of them to end adds up."""


@dataclass(frozen=True, slots=True)
class MarginPlan:
    """How the columns are shared out among programs, for blocks of k rows; made once.

    columns  per program, a power of two
    parts    (n_programs, C, k) float32
    sums     (n_groups, C, k) float32: what adds up to the margins
    counts   (n_groups, C) int32 zeros: programs that are done
    """

    columns: int
    parts: torch.Tensor
    sums: torch.Tensor
    counts: torch.Tensor

    @classmethod
    def of(cls, k: int, n: int, n_outputs: int, device: torch.device) -> "MarginPlan":
        """For n columns."""
        columns = min(MOST_COLUMNS, max(LEAST_COLUMNS, next_power_of_two(triton.cdiv(n, PROGRAMS))))
        n_programs = triton.cdiv(n, columns)
        n_groups = triton.cdiv(n_programs, GROUP)
        parts, sums = (torch.zeros(rows, n_outputs, k, device=device) for rows in (n_programs, n_groups))
        return cls(columns, parts, sums, torch.zeros(n_groups, n_outputs, dtype=torch.int32, device=device))


@triton.jit(do_not_specialize=["ahead"])
def _update_kernel(
    X, stride, rows, next_rows, base, ahead, p, ends, x, x_stride, parts, sums, counts, k, next_k, batch_size, s,
    n, n_outputs, n_programs, l1, ALIGNED: tl.constexpr,
    UPDATE: tl.constexpr, MARGINS: tl.constexpr, NARROW: tl.constexpr, SHRINK: tl.constexpr,
    R: tl.constexpr, K: tl.constexpr, N: tl.constexpr, GROUP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Columns of program 0, output of program 1. NARROW: operands of the update in bfloat16."""
    part, c = tl.program_id(0), tl.program_id(1)
    batch = tl.load(base) + ahead
    first = batch * batch_size
    column, i = part * N + tl.arange(0, N), tl.arange(0, R)
    inside = column < n * ALIGNED
    weights = x + c.to(tl.int64) * x_stride + column
    value = tl.load(weights, mask=inside, other=0.0)
    if UPDATE:
        step = tl.zeros((R, N), tl.float32)
        for begin in tl.range(0, k, R, num_stages=STAGES):
            taken = tl.load(rows + first + begin + i, mask=begin + i < k, other=0).to(tl.int64)
            Y = tl.load(X + taken[:, None] * (stride * ALIGNED) + column[None, :], mask=inside[None, :], other=0.0)
            q = tl.load(p + c * k + begin + i, mask=begin + i < k, other=0.0)
            if NARROW:
                Y, q = Y.to(tl.bfloat16), q.to(tl.bfloat16).to(tl.float32)
            step += Y.to(tl.float32) * q[:, None]
        value = tl.load(ends + 2 * (batch // s)) * value + tl.sum(step, 0)
        if SHRINK:
            size = tl.maximum(tl.abs(value) - l1 * tl.load(ends + 2 * (batch // s) + 1), 0.0)
            value = tl.where(value > 0, size, -size)
        tl.store(weights, value, mask=inside)
        first += k
    if MARGINS:
        own = parts + (part * n_outputs + c) * next_k
        for begin in tl.range(0, next_k, R, num_stages=STAGES):
            taken = tl.load(next_rows + first + begin + i, mask=begin + i < next_k, other=0).to(tl.int64)
            Y = tl.load(X + taken[:, None] * (stride * ALIGNED) + column[None, :], mask=inside[None, :], other=0.0)
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
    l1: float,
    narrow: bool,
    last: bool,
) -> None:
    """x = R x + Yᵀ p, shrunk by H l1, in place; then plan.sums = the next block's margins at the new x.

    X     (m, n); rows, next_rows (all,) int32, where the rows of this block and of the next are found in X
    p     (C, k) float32, as `recurrence` leaves it; x (C, n) float32
    ends  (n_blocks, 2) float32: R = Π (1 − η λ) and H = Σ η of the block at batch / s
    last  whether no block follows, and there are no margins to make
    """
    _launch(X, rows, next_rows, base, ahead, p, ends, x, plan, p.shape[1], batch_size, s, l1, narrow, True, not last)


def margins(
    X: torch.Tensor, rows: torch.Tensor, base: torch.Tensor, x: torch.Tensor, plan: MarginPlan, batch_size: int
) -> None:
    """plan.sums = margins at x of the block that begins at batch `base`."""
    _launch(X, rows, rows, base, 0, x, x, x, plan, 0, batch_size, 1, 0.0, False, False, True)


def _launch(X, rows, next_rows, base, ahead, p, ends, x, plan, k, batch_size, s, l1, narrow, updates, following):
    n_programs, n_outputs, next_k = plan.parts.shape
    aligned, whole = alignment(X), next_power_of_two(max(k, next_k))
    at_once = min(whole, TILE // plan.columns)
    with on(x.device):
        _update_kernel[n_programs, n_outputs](
            X, X.stride(0) // aligned, rows, next_rows, base, ahead, p, ends, x, x.stride(0), plan.parts, plan.sums,
            plan.counts, k, next_k, batch_size, s, X.shape[1] // aligned, n_outputs, n_programs, l1, ALIGNED=aligned,
            UPDATE=updates, MARGINS=following, NARROW=narrow, SHRINK=l1 != 0.0, R=at_once, K=whole, N=plan.columns,
            GROUP=GROUP, STAGES=2, num_warps=max(1, min(4 if plan.columns == MOST_COLUMNS else 8, whole // 32)),
        )  # fmt: skip
