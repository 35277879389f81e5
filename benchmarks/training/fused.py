# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, unused-ignore"
"""Residual networks for small images, all workers of a step in one pass on a GPU.

Workers have the same weights, so their images go through a convolution together; only the gradients of the weights are
computed worker by worker. Batch normalisation, the shortcut's sum and the rectifier are two Triton kernels on the way
up and two on the way down, for all workers, each with statistics of its own. `OfModule` is the specification.
"""

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn import functional

from benchmarks.training.networks import OfModule, Parameters, side_by_side

EPS, MOMENTUM = 1e-5, 0.1
"""Of torch's batch normalisation."""
TILE, CHUNKS = 4096, 64
"""Values that a program holds at once, and programs for each worker."""


@triton.jit
def _tile(rows, n_rows, worker, C: tl.constexpr):
    """Offsets of these rows of a worker, and which of them exist."""
    columns = tl.arange(0, C)
    return (worker * n_rows + rows[:, None]) * C + columns[None, :], (rows < n_rows)[:, None]


@triton.jit
def _moments_kernel(x, partial, n_rows, steps, C: tl.constexpr, ROWS: tl.constexpr):
    worker, chunk, n_chunks = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    total, squares = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    for i in range(steps):
        at, there = _tile((chunk * steps + i) * ROWS + tl.arange(0, ROWS), n_rows, worker, C)
        v = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
        total += tl.sum(v, 0)
        squares += tl.sum(v * v, 0)
    place = partial + ((worker * n_chunks + chunk) * 2) * C + tl.arange(0, C)
    tl.store(place, total)
    tl.store(place + C, squares)


@triton.jit
def _two_sums(partial, worker, C: tl.constexpr, CHUNKS: tl.constexpr):
    place = (worker * CHUNKS + tl.arange(0, CHUNKS)[:, None]) * 2 * C + tl.arange(0, C)[None, :]
    return tl.sum(tl.load(partial + place), 0), tl.sum(tl.load(partial + place + C), 0)


@triton.jit
def _normalise_kernel(x, y, shortcut, partial, scale, shift, saved, mean_so_far, var_so_far, n_rows, steps, eps,
                      momentum, C: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr,
                      ADDS: tl.constexpr):  # fmt: skip
    worker, chunk = tl.program_id(0), tl.program_id(1)
    own = worker * C + tl.arange(0, C)
    total, squares = _two_sums(partial, worker, C, CHUNKS)
    mean = total / n_rows
    var = tl.maximum(squares / n_rows - mean * mean, 0.0)
    rstd = 1.0 / tl.sqrt(var + eps)
    if chunk == 0:
        tl.store(saved + 2 * worker * C + tl.arange(0, C), mean)
        tl.store(saved + (2 * worker + 1) * C + tl.arange(0, C), rstd)
        tl.store(mean_so_far + own, (1 - momentum) * tl.load(mean_so_far + own) + momentum * mean)
        unbiased = var * (n_rows / (n_rows - 1.0))
        tl.store(var_so_far + own, (1 - momentum) * tl.load(var_so_far + own) + momentum * unbiased)
    a = rstd * tl.load(scale + own)
    b = tl.load(shift + own) - mean * a
    for i in range(steps):
        at, there = _tile((chunk * steps + i) * ROWS + tl.arange(0, ROWS), n_rows, worker, C)
        v = tl.load(x + at, mask=there, other=0.0).to(tl.float32) * a[None, :] + b[None, :]
        if ADDS:
            v += tl.load(shortcut + at, mask=there, other=0.0).to(tl.float32)
        tl.store(y + at, tl.maximum(v, 0.0).to(y.dtype.element_ty), mask=there)


@triton.jit
def _backward_sums_kernel(x, y, dy, partial, saved, n_rows, steps, C: tl.constexpr, ROWS: tl.constexpr):
    worker, chunk, n_chunks = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    mean = tl.load(saved + 2 * worker * C + tl.arange(0, C))
    rstd = tl.load(saved + (2 * worker + 1) * C + tl.arange(0, C))
    total, products = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    for i in range(steps):
        at, there = _tile((chunk * steps + i) * ROWS + tl.arange(0, ROWS), n_rows, worker, C)
        g = tl.load(dy + at, mask=there, other=0.0).to(tl.float32)
        g = tl.where(tl.load(y + at, mask=there, other=0.0) > 0, g, 0.0)
        z = (tl.load(x + at, mask=there, other=0.0).to(tl.float32) - mean[None, :]) * rstd[None, :]
        total += tl.sum(g, 0)
        products += tl.sum(g * z, 0)
    place = partial + ((worker * n_chunks + chunk) * 2) * C + tl.arange(0, C)
    tl.store(place, total)
    tl.store(place + C, products)


@triton.jit
def _backward_kernel(x, y, dy, dx, dshortcut, partial, scale, saved, dscale, dshift, n_rows, steps,
                     C: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr, ADDS: tl.constexpr):  # fmt: skip
    worker, chunk = tl.program_id(0), tl.program_id(1)
    own = worker * C + tl.arange(0, C)
    mean = tl.load(saved + 2 * worker * C + tl.arange(0, C))
    rstd = tl.load(saved + (2 * worker + 1) * C + tl.arange(0, C))
    total, products = _two_sums(partial, worker, C, CHUNKS)
    if chunk == 0:
        tl.store(dshift + own, total)
        tl.store(dscale + own, products)
    a = rstd * tl.load(scale + own)
    for i in range(steps):
        at, there = _tile((chunk * steps + i) * ROWS + tl.arange(0, ROWS), n_rows, worker, C)
        g = tl.load(dy + at, mask=there, other=0.0).to(tl.float32)
        g = tl.where(tl.load(y + at, mask=there, other=0.0) > 0, g, 0.0)
        z = (tl.load(x + at, mask=there, other=0.0).to(tl.float32) - mean[None, :]) * rstd[None, :]
        d = a[None, :] * (g - (total / n_rows)[None, :] - z * (products / n_rows)[None, :])
        tl.store(dx + at, d.to(dx.dtype.element_ty), mask=there)
        if ADDS:
            tl.store(dshortcut + at, g.to(dshortcut.dtype.element_ty), mask=there)


def _layout(x: torch.Tensor, workers: int) -> tuple[int, int, int, int, tuple[int, int]]:
    """Rows of a worker, channels, rows of a tile, tiles of a program, and the grid."""
    C = x.shape[1]
    n_rows, rows = x.numel() // (C * workers), TILE // C
    return n_rows, C, rows, -(-n_rows // (rows * CHUNKS)), (workers, CHUNKS)


class NormAddReLU(torch.autograd.Function):
    """relu(batch_norm(x) + shortcut), by worker; x (W · B, C, h, w) with colours last, scale and shift (W, C)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shortcut: torch.Tensor | None, scale: torch.Tensor, shift: torch.Tensor,
                mean_so_far: torch.Tensor, var_so_far: torch.Tensor) -> torch.Tensor:  # fmt: skip
        n_rows, C, rows, steps, grid = _layout(x, len(scale))
        x, y = _last(x), torch.empty_like(x, memory_format=torch.channels_last)
        sums = x.new_empty(len(scale), CHUNKS, 2, C, dtype=torch.float32)
        saved = sums.new_empty(len(scale), 2, C)
        there = x if shortcut is None else _last(shortcut)
        _moments_kernel[grid](x, sums, n_rows, steps, C, rows)
        _normalise_kernel[grid](x, y, there, sums, scale, shift, saved, mean_so_far, var_so_far, n_rows, steps, EPS,
                                MOMENTUM, C, rows, CHUNKS, shortcut is not None)  # fmt: skip
        ctx.save_for_backward(x, y, scale, saved)
        ctx.adds = shortcut is not None
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, y, scale, saved = ctx.saved_tensors
        n_rows, C, rows, steps, grid = _layout(x, len(scale))
        dy, dx = _last(dy), torch.empty_like(x)
        sums = x.new_empty(len(scale), CHUNKS, 2, C, dtype=torch.float32)
        dscale, dshift = torch.empty_like(scale), torch.empty_like(scale)
        dshortcut = torch.empty_like(x) if ctx.adds else dx
        _backward_sums_kernel[grid](x, y, dy, sums, saved, n_rows, steps, C, rows)
        _backward_kernel[grid](x, y, dy, dx, dshortcut, sums, scale, saved, dscale, dshift, n_rows, steps,
                               C, rows, CHUNKS, ctx.adds)  # fmt: skip
        return dx, dshortcut if ctx.adds else None, dscale, dshift, None, None


class WorkersConv(torch.autograd.Function):
    """A 3 × 3 convolution of x (W · B, …) by the first of equal weights (W, …); gradients of each worker's weights."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weights: torch.Tensor, stride: int) -> torch.Tensor:
        weight = weights[0].to(x.dtype, memory_format=torch.channels_last)
        ctx.save_for_backward(x, weight)
        ctx.workers, ctx.stride = len(weights), stride
        return functional.conv2d(x, weight, stride=stride, padding=1)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        dy = _last(dy)
        at = [ctx.stride] * 2, [1, 1], [1, 1], False, [0, 0], 1

        def gradient(dy: torch.Tensor, x: torch.Tensor, of_weight: bool) -> torch.Tensor:
            found = torch.ops.aten.convolution_backward(dy, x, weight, None, *at, [not of_weight, of_weight, False])
            return found[of_weight]  # type: ignore[no-any-return]

        parts = zip(dy.chunk(ctx.workers), x.chunk(ctx.workers), strict=True)
        found = side_by_side([partial(gradient, *part, of_weight=True) for part in parts], x.is_cuda)
        dx = gradient(dy, x, of_weight=False) if ctx.needs_input_grad[0] else None
        return dx, torch.stack(found()).float(), None


def _last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


class FusedResNet(OfModule):
    """`CifarResNet` for workers that have the same weights; evaluated as the module itself."""

    def scores(self, p: Parameters, x: torch.Tensor, buffers: Parameters) -> torch.Tensor:
        if not torch.is_grad_enabled():
            return super().scores(p, x, buffers)
        M, B = x.shape[:2]

        def conv(name: str, h: torch.Tensor, stride: int = 1) -> torch.Tensor:
            return WorkersConv.apply(h, p[f"{name}.weight"], stride)  # type: ignore[no-any-return,no-untyped-call]

        def norm(name: str, h: torch.Tensor, shortcut: torch.Tensor | None = None) -> torch.Tensor:
            own = [buffers[f"{name}.{kind}"] for kind in ("running_mean", "running_var")]
            return NormAddReLU.apply(h, shortcut, p[f"{name}.weight"], p[f"{name}.bias"], *own)  # type: ignore[no-any-return,no-untyped-call]

        h = x.flatten(0, 1)
        h = norm("bn", conv("first", h.bfloat16() if torch.is_autocast_enabled(h.device.type) else h))
        for i, block in enumerate(self.module.blocks):  # type: ignore[union-attr,arg-type]
            y = norm(f"blocks.{i}.bn1", conv(f"blocks.{i}.conv1", h, block.stride))
            if block.n_new:
                h = functional.pad(h[:, :, :: block.stride, :: block.stride], (0, 0, 0, 0, 0, block.n_new))
            h = norm(f"blocks.{i}.bn2", conv(f"blocks.{i}.conv2", y), h)
        pooled = h.float().mean((2, 3)).view(M, B, -1)
        return torch.baddbmm(p["last.bias"][:, None], pooled, p["last.weight"].transpose(1, 2))
