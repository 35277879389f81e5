"""SGD on few columns, many iterations in one launch: weights, margins and gradient never leave the chip.

The rows have been gathered in the order in which they are used, so that those of later iterations can be prefetched.
One program: an iteration needs all of x of the one before, and for n this small, synchronising with a second
multiprocessor would take longer than it could save. The floor is the latency of the dependent chain, not bytes.
"""

import torch
import triton
import triton.language as tl

from laconic.kernels.glm import check_link_code
from laconic.kernels.gpu.glm.links import slope_and_loss
from laconic.kernels.gpu.launch import next_power_of_two, on

LARGEST_TILE = 2**14
STAGES = 3


def sgd_fits(n: int, batch_size: int) -> bool:
    """Whether one program can hold a batch in registers."""
    return n > 0 and next_power_of_two(n) * next_power_of_two(batch_size) <= LARGEST_TILE


def row_buffer(k: int, n: int, batch_size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros for k rows of n columns: a power of two wide, with a batch of spare rows, which are read too."""
    return torch.zeros(k + next_power_of_two(batch_size), next_power_of_two(n), dtype=dtype, device=device)


def _warps(width: int, depth: int) -> int:
    return max(1, min(8, width * depth // 1024))


@triton.jit
def _sgd_kernel(
    Y, y, w, offset, rates, mix, x_io, u_io, average_io, intercepts, loss_out, n, n_rows, batch_size, l2, l1, mu,
    CODE: tl.constexpr, FITTED: tl.constexpr, WEIGHTED: tl.constexpr, OFFSET: tl.constexpr, NARROW: tl.constexpr,
    MEAN: tl.constexpr, MOMENTUM: tl.constexpr, AVERAGE: tl.constexpr, SHRINK: tl.constexpr,
    B: tl.constexpr, N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    i, f = tl.arange(0, B), tl.arange(0, N)
    inside = f < n  # Y is zero beyond, and long enough to be read there
    x = tl.load(x_io + f, mask=inside, other=0.0)
    u = tl.load(u_io + f, mask=inside, other=0.0) if MOMENTUM else x
    average = tl.load(average_io + f, mask=inside, other=0.0) if AVERAGE else x
    b, ub, ab = tl.load(intercepts), tl.load(intercepts + 1), tl.load(intercepts + 2)
    lost = tl.zeros((B,), tl.float64)
    for j in tl.range(tl.cdiv(n_rows, batch_size), num_stages=STAGES):
        row = j * batch_size + i
        here = (i < batch_size) & (row < n_rows)
        rows = tl.load(Y + row[:, None] * N + f[None, :])
        target = tl.load(y + row, mask=here, other=0.0)
        weight = tl.load(w + row, mask=here, other=0.0) if WEIGHTED else tl.where(here, 1.0, 0.0)
        eta = tl.load(rates + j)
        rows = rows.to(tl.float32)
        z = tl.sum(rows * x[None, :], 1)
        if NARROW:
            z = z.to(tl.bfloat16).to(tl.float32)
        if OFFSET:
            z += tl.load(offset + row, mask=here, other=0.0)
        slope, loss = slope_and_loss(z + b, target, CODE)
        counts = here & (weight != 0)
        r = tl.where(counts, weight * slope, 0.0)
        lost += tl.where(counts, weight * loss, 0.0).to(tl.float64)
        scale = 1.0 / min(batch_size, n_rows - j * batch_size) if MEAN else 1.0
        g = scale * tl.sum(rows * r[:, None], 0) + l2 * x
        if MOMENTUM:
            u = mu * u + g
            g = u
        x -= eta * g
        if SHRINK:
            size = tl.maximum(tl.abs(x) - eta * l1, 0.0)
            x = tl.where(x > 0, size, -size)
        if FITTED:
            ub = mu * ub + scale * tl.sum(r, 0)
            b -= eta * ub
        if AVERAGE:
            share = tl.load(mix + j)
            average += share * (x - average)
            ab += share * (b - ab)
    tl.store(x_io + f, x, mask=inside)
    if MOMENTUM:
        tl.store(u_io + f, u, mask=inside)
    if AVERAGE:
        tl.store(average_io + f, average, mask=inside)
    tl.store(intercepts, b)
    tl.store(intercepts + 1, ub)
    tl.store(intercepts + 2, ab)
    tl.store(loss_out, tl.sum(lost, 0))


def sgd(
    Y: torch.Tensor,
    y: torch.Tensor,
    w: torch.Tensor | None,
    offset: torch.Tensor | None,
    rates: torch.Tensor,
    mix: torch.Tensor | None,
    x: torch.Tensor,
    u: torch.Tensor,
    average: torch.Tensor,
    intercepts: torch.Tensor,
    loss: torch.Tensor,
    *,
    code: int | None,
    batch_size: int,
    l2: float,
    l1: float,
    momentum: float,
    fitted: bool,
    narrow: bool,
    mean: bool,
) -> None:
    """Take a step for each batch of rows, in place.

    Y           (k + spare, N) rows in the order in which they are used, in memory made by `row_buffer`
    y, w        (k,) float32, and offset likewise
    rates, mix  (n_batches,) float32; mix None for no average
    x           (n,) float32, likewise u and average where in use; intercepts (3,): value, momentum, average
    loss        (1,) float64 out: Σ w φ, each row at the iterate of its own step
    """
    code = check_link_code(code, 1)
    (n,), width, depth = x.shape[-1:], Y.shape[1], next_power_of_two(batch_size)
    arrays = (Y, y, y if w is None else w, y if offset is None else offset, rates)
    rest = (rates if mix is None else mix, x, u if momentum else x, x if mix is None else average, intercepts, loss)
    with on(Y.device):
        _sgd_kernel[(1,)](
            *arrays, *rest, n, len(y), batch_size, l2, l1, momentum,
            CODE=code, FITTED=fitted, WEIGHTED=w is not None, OFFSET=offset is not None, NARROW=narrow, MEAN=mean,
            MOMENTUM=momentum > 0, AVERAGE=mix is not None, SHRINK=l1 != 0.0, B=depth, N=width, STAGES=STAGES,
            num_warps=_warps(width, depth),
        )  # fmt: skip
