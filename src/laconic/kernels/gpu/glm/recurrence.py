"""The s inner steps of CA-SGD as one program: the margins of a block never leave the chip.

Step j turns the margins of its b rows into residuals r, and adds −c Σ_t G[t, i] r_t to the margins of the rows i of
all later batches. G comes from the cache, b rows per step, in two halves: as soon as one has been used, the same half
for the next step is loaded into the registers that are free again. Bytes: k² / 2 float32 numbers, read by one
multiprocessor. The time goes to the dependent chain of a step: margins, residuals, to all threads, margins. Models with
other penalties or step sizes, on the same rows, are other programs, and read the same G.
"""

import torch
import triton
import triton.language as tl

from laconic.kernels.glm import check_link_code
from laconic.kernels.gpu.glm.links import classes_slope_and_loss, slope_and_loss
from laconic.kernels.gpu.launch import next_power_of_two, on
from laconic.kernels.gpu.ptx import follow, has_dependent_launch

LARGEST_PANEL = 2**15
"""Most numbers of G that a step holds in registers."""
LARGEST_TWICE = 2**13
"""Most numbers of G per step where those of the next step are held as well."""
LARGEST_MARGINS = 2**14
PARTS_AT_ONCE = 16


def recurrence_fits(k: int, batch_size: int, n_outputs: int) -> bool:
    """Whether one program can hold a block of k rows in registers."""
    width, depth = next_power_of_two(k), _depth(batch_size, n_outputs)
    return width <= 1024 and width * depth <= LARGEST_PANEL and width * _outputs(n_outputs) <= LARGEST_MARGINS


def gram_buffer(n_blocks: int, k: int, batch_size: int, n_outputs: int, device: torch.device) -> torch.Tensor:
    """Zeros for Gram matrices of blocks of k rows: a power of two wide, with spare rows, which are read too."""
    width = next_power_of_two(k)
    return torch.zeros(n_blocks, width + _depth(batch_size, n_outputs), width, dtype=torch.float32, device=device)


def _depth(batch_size: int, n_outputs: int) -> int:
    return max(2 if n_outputs == 1 else 16, next_power_of_two(batch_size))


def _outputs(n_outputs: int) -> int:
    return 1 if n_outputs == 1 else max(16, next_power_of_two(n_outputs))


@triton.jit
def _panel(G, j, t, i, K: tl.constexpr, SIZE: tl.constexpr):
    """Rows t of batch j of G, in the columns of later batches; undefined elsewhere, where it is not used."""
    return tl.load(G + j * (SIZE * K) + (t[:, None] * K + i[None, :]), mask=(i >= (j + 1) * SIZE)[None, :])


@triton.jit
def _row_data(y, w, offset, first, t, size, WEIGHTED: tl.constexpr, OFFSET: tl.constexpr):
    """Targets, weights and offsets of a batch's rows; weight 0 beyond them."""
    here = t < size
    target = tl.load(y + first + t, mask=here, other=0.0)
    weight = tl.load(w + first + t, mask=here, other=0.0) if WEIGHTED else tl.where(here, 1.0, 0.0)
    added = tl.load(offset + first + t, mask=here, other=0.0) if OFFSET else tl.zeros_like(weight)
    return target, weight, added


@triton.jit
def _step(steps, j):
    """c = η g, ρ = 1 − η λ, and d = c Π ρ over the later steps of the block."""
    return tl.load(steps + 3 * j), tl.load(steps + 3 * j + 1), tl.load(steps + 3 * j + 2)


@triton.jit
def _step_data(y, w, offset, steps, first, j, k, t, SIZE: tl.constexpr, WEIGHTED: tl.constexpr, OFFSET: tl.constexpr):
    """All that step j needs beside margins and G, as one tuple; no rows beyond the last step."""
    c, keep, d = _step(steps, tl.minimum(j, tl.cdiv(k, SIZE) - 1))
    size = tl.minimum(SIZE, k - j * SIZE)
    target, weight, added = _row_data(y, w, offset, first + j * SIZE, t, size, WEIGHTED, OFFSET)
    return c, keep, d, target, weight, added


@triton.jit
def _advance(
    z, b, lost, even, odd, now, G, y, w, offset, steps, first, p, j, k, i, t, half,
    CODE: tl.constexpr, FITTED: tl.constexpr, WEIGHTED: tl.constexpr, OFFSET: tl.constexpr,
    SIZE: tl.constexpr, K: tl.constexpr, B: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """Step j: margins, intercept and loss after it, two halves of G's rows for step j + DEEP, and step j + 1's data.

    A step beyond the last has no rows, and changes no margin that is used.
    """
    c, keep, d, target, weight, added = now
    begin, last = j * SIZE, tl.cdiv(k, SIZE) - 1
    following = _step_data(y, w, offset, steps, first, j + 1, k, t, SIZE, WEIGHTED, OFFSET)  # long before it is needed
    slope, loss = slope_and_loss(tl.gather(z, tl.minimum(begin + t, K - 1), 0) + added + b, target, CODE)
    r = tl.where(weight != 0, weight * slope, 0.0)
    lost += tl.where(weight != 0, weight * loss, 0.0)
    tl.store(p + begin + t, -d * r, mask=(t < SIZE) & (begin + t < k))
    r_even, r_odd = tl.split(tl.reshape(r, (B // 2, 2)))
    coming = tl.minimum(j + DEEP, last)
    change = tl.sum(even * r_even[:, None], 0)
    even = _panel(G, coming, half, i, K, SIZE)
    change += tl.sum(odd * r_odd[:, None], 0)
    odd = _panel(G, coming, half + 1, i, K, SIZE)
    z = keep * z - c * change
    if FITTED:
        b -= c * tl.sum(r, 0)
    return z, b, lost, even, odd, following


@triton.jit(do_not_specialize=["ahead"])
def _recurrence_kernel(
    G, parts, n_parts, y, w, offset, steps, base, ahead, intercept, p, losses, k, s, n_batches, n_blocks,
    CODE: tl.constexpr, FITTED: tl.constexpr, WEIGHTED: tl.constexpr, OFFSET: tl.constexpr, NARROW: tl.constexpr,
    SIZE: tl.constexpr, K: tl.constexpr, B: tl.constexpr, Q: tl.constexpr, DEEP: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    batch, model, n_models = tl.load(base) + ahead, tl.program_id(0), tl.num_programs(0)
    i, t, half = tl.arange(0, K), tl.arange(0, B), 2 * tl.arange(0, B // 2)
    if DEEP == 2:
        i = tl.max_contiguous(i, 2)  # a thread has two neighbours, and all their rows: sums stay within it
    n_steps = tl.cdiv(k, SIZE)
    even, odd = _panel(G, 0, half, i, K, SIZE), _panel(G, 0, half + 1, i, K, SIZE)
    if DEEP == 2:
        second = tl.minimum(1, n_steps - 1)
        next_even, next_odd = _panel(G, second, half, i, K, SIZE), _panel(G, second, half + 1, i, K, SIZE)
    steps += 3 * (model * n_batches + batch)
    p += model * k
    first = batch * SIZE
    now = _step_data(y, w, offset, steps, first, 0, k, t, SIZE, WEIGHTED, OFFSET)
    c, keep, d, target, weight, added = now
    follow(DEPENDENT)
    z = tl.zeros((K,), tl.float32)
    for part in range(0, n_parts, Q):
        q = part + tl.arange(0, Q)
        wanted = (q < n_parts)[:, None] & (i < k)[None, :]
        z += tl.sum(tl.load(parts + (q * n_models + model)[:, None] * k + i[None, :], mask=wanted, other=0.0), 0)
    if NARROW:
        z = z.to(tl.bfloat16).to(tl.float32)
    b = tl.load(intercept + model)
    lost = tl.zeros((B,), tl.float32)
    for j in range(0, n_steps, DEEP):
        z, b, lost, even, odd, now = _advance(
            z, b, lost, even, odd, (c, keep, d, target, weight, added), G, y, w, offset, steps, first, p, j, k, i, t,
            half, CODE, FITTED, WEIGHTED, OFFSET, SIZE, K, B, DEEP,
        )  # fmt: skip
        if DEEP == 2:
            z, b, lost, next_even, next_odd, now = _advance(
                z, b, lost, next_even, next_odd, now, G, y, w, offset, steps, first, p, j + 1, k, i, t,
                half, CODE, FITTED, WEIGHTED, OFFSET, SIZE, K, B, DEEP,
            )  # fmt: skip
        c, keep, d, target, weight, added = now
    tl.store(losses + model * n_blocks + batch // s, tl.sum(lost, 0))
    if FITTED:
        tl.store(intercept + model, b)


@triton.jit(do_not_specialize=["ahead"])
def _classes_kernel(
    G, parts, n_parts, y, w, offset, steps, base, ahead, intercept, p, losses, k, s, n_batches, n_blocks, n_outputs,
    CODE: tl.constexpr, FITTED: tl.constexpr, WEIGHTED: tl.constexpr, OFFSET: tl.constexpr, NARROW: tl.constexpr,
    SIZE: tl.constexpr, K: tl.constexpr, B: tl.constexpr, C: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """`_recurrence_kernel` for several outputs: margins (C, K), and a small matrix product per step."""
    batch, model, n_models = tl.load(base) + ahead, tl.program_id(0), tl.num_programs(0)
    i, t, c = tl.arange(0, K), tl.arange(0, B), tl.arange(0, C)[:, None]
    panel = _panel(G, 0, t, i, K, SIZE)
    follow(DEPENDENT)
    z = tl.zeros((C, K), tl.float32)
    for part in range(n_parts):
        cell = ((part * n_models + model) * n_outputs + c) * k + i[None, :]
        z += tl.load(parts + cell, mask=(c < n_outputs) & (i < k)[None, :], other=0.0)
    if NARROW:
        z = z.to(tl.bfloat16).to(tl.float32)
    steps += 3 * (model * n_batches + batch)
    first = batch * SIZE
    intercept, p = intercept + model * n_outputs, p + model * n_outputs * k
    b = tl.load(intercept + c, mask=c < n_outputs, other=0.0)
    lost = tl.zeros((B,), tl.float32)
    n_steps = tl.cdiv(k, SIZE)
    for j in range(n_steps):
        begin = j * SIZE
        here = (t < SIZE) & (begin + t < k)
        size = min(SIZE, k - begin)
        target, weight, _ = _row_data(y, w, y, first + begin, t, size, WEIGHTED, False)
        place = tl.broadcast_to(tl.minimum(begin + t, K - 1)[None, :], (C, B))
        margin = tl.gather(z, place, 1) + b
        if OFFSET:
            added = (first + begin + t)[None, :] * n_outputs + c
            margin += tl.load(offset + added, mask=(c < n_outputs) & here[None, :], other=0.0)
        slope, loss = classes_slope_and_loss(margin, target, c, n_outputs, CODE)
        r = tl.where((weight != 0)[None, :], weight[None, :] * slope, 0.0)
        lost += tl.where(weight != 0, weight * loss, 0.0)
        rate, keep, d = _step(steps, j)
        tl.store(p + c * k + (begin + t)[None, :], -d * r, mask=(c < n_outputs) & here[None, :])
        z = keep * z - rate * tl.dot(r, panel, input_precision="tf32x3")
        panel = _panel(G, tl.minimum(j + 1, n_steps - 1), t, i, K, SIZE)
        if FITTED:
            b -= rate * tl.sum(r, 1)[:, None]
    tl.store(losses + model * n_blocks + batch // s, tl.sum(lost, 0))
    if FITTED:
        tl.store(intercept + c, b, mask=c < n_outputs)


def recurrence(
    G: torch.Tensor,
    parts: torch.Tensor,
    y: torch.Tensor,
    w: torch.Tensor | None,
    offset: torch.Tensor | None,
    steps: torch.Tensor,
    base: torch.Tensor,
    ahead: int,
    intercept: torch.Tensor,
    p: torch.Tensor,
    losses: torch.Tensor,
    *,
    code: int | None,
    batch_size: int,
    s: int,
    fitted: bool,
    narrow: bool,
    follows: bool = False,
) -> None:
    """Step through the k rows of the block that begins at batch `base` + `ahead`.

    G          (K + B, K) float32, one of `gram_buffer`'s: G[t, i] for t of an earlier batch than i, finite elsewhere
    parts      (n_parts, M C, k) float32, whose sum are the margins Y x₀; rounded to bfloat16 where `narrow`
    y, w       (all,) float32 targets and weights of the segment's rows; offset (all, C)
    steps      (M, n_batches, 3) float32 of M models: c = η g, ρ = 1 − η λ, and d = c Π ρ over the block's later steps
    intercept  (M C,) float32, in place
    p          (M C, k) float32 out: coefficients of the rows in the new x
    losses     (M, n_blocks) float32 out: Σ w φ of the block at batch / s
    code       a `LinkCode`
    follows    whether `update` was launched just before, and all but `parts` and `intercept` was written before it
    """
    (n_models, n_batches), k = steps.shape[:2], parts.shape[2]
    n_outputs = parts.shape[1] // n_models
    code = check_link_code(code, n_outputs)
    width, depth = G.shape[1], _depth(batch_size, n_outputs)
    arrays = (G, parts, len(parts), y, y if w is None else w, y if offset is None else offset, steps, base, ahead)
    rest = (intercept, p, losses, k, s, n_batches, losses.shape[1])
    flags = {"FITTED": fitted, "WEIGHTED": w is not None, "OFFSET": offset is not None, "NARROW": narrow}
    deep = 2 if width * depth <= LARGEST_TWICE else 1
    warps = max(1, min(16, width * depth * deep // 4096))  # 128 numbers of G per thread
    dependent = has_dependent_launch(G.device)
    flags["DEPENDENT"] = dependent
    flags |= {"launch_pdl": True} if dependent and follows else {}
    with on(G.device):
        if n_outputs == 1:
            sizes = {"SIZE": batch_size, "K": width, "B": depth, "Q": PARTS_AT_ONCE, "DEEP": deep}
            _recurrence_kernel[(n_models,)](*arrays, *rest, CODE=code, **sizes, **flags, num_warps=warps)
        else:
            sizes = {"SIZE": batch_size, "K": width, "B": depth, "C": _outputs(n_outputs)}
            _classes_kernel[(n_models,)](
                *arrays, *rest, n_outputs, CODE=code, **sizes, **flags, num_warps=max(4, warps)
            )
