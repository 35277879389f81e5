"""3 × 3 convolutions of few channels on a GPU, and the gradients of their weights by worker.

Images are (n, h, w, channels) in memory, so a pixel and its neighbours in the same row are 3 C contiguous values. A
convolution is three products of such windows with (3 C, D) weights, one for each row of the kernel, and the gradient
of the weights is windowsᵀ times dy. Sums are in float32, and always in the same order.
"""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

PIXELS = 128
"""Pixels per program of the convolution."""
WINDOW_BYTES = 2**14
"""Bytes of windows that a program of the gradient loads at a time: three times as many fit into shared memory."""
CHUNKS = 32
"""Approximate number of programs per worker and kernel row that sum a gradient."""


@triton.jit
def _window(x, p, ky, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, K: tl.constexpr):
    """(pixels, K): channels of the three neighbours in row ky − 1 of pixels p, 0 outside the image and from 3 C on."""
    q = tl.arange(0, K)
    row, column = (p // W) % H + ky - 1, (p % W)[:, None] + (q // C - 1)[None, :]
    inside = (row >= 0) & (row < H)
    mask = inside[:, None] & (column >= 0) & (column < W) & (q < 3 * C)[None, :]
    return tl.load(x + ((p + (ky - 1) * W - 1) * C)[:, None] + q[None, :], mask=mask, other=0.0)


@triton.jit
def _convolve_kernel(
    x, w, y, n_own, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, D: tl.constexpr, K: tl.constexpr,
    TURNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """n_own: pixels that share weights; w (parts, 3, 3, C, D); TURNED: weights rotated by 180°."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q, o = tl.arange(0, K), tl.arange(0, D)
    tap = 2 - q // C if TURNED else q // C
    own = w + (tl.program_id(0) * BLOCK // n_own) * (9 * C * D)
    total = tl.zeros((BLOCK, D), tl.float32)
    for ky in tl.static_range(3):
        a = _window(x, p, ky, H, W, C, K)
        first = (2 - ky if TURNED else ky) * (3 * C * D)
        b = tl.load(own + first + (tap * C + q % C)[:, None] * D + o[None, :], mask=(q < 3 * C)[:, None], other=0.0)
        total = tl.dot(a, b, total)
    tl.store(y + p[:, None] * D + o[None, :], total.to(y.dtype.element_ty))


@triton.jit
def _gradient_kernel(
    x, dy, parts, n_own, n_blocks, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, D: tl.constexpr,
    K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """parts (workers, chunks, 3, K, D): partial sums over n_blocks blocks of pixels each; n_own pixels per worker."""
    chunk, worker, ky = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    q, o = tl.arange(0, K), tl.arange(0, D)
    total = tl.zeros((K, D), tl.float32)
    for i in range(n_blocks):
        p = worker * n_own + (chunk * n_blocks + i) * BLOCK + tl.arange(0, BLOCK)
        a = _window(x, p, ky, H, W, C, K)
        total = tl.dot(tl.trans(a), tl.load(dy + p[:, None] * D + o[None, :]), total)
    at = parts + ((worker * tl.num_programs(0) + chunk) * 3 + ky) * (K * D)
    tl.store(at + q[:, None] * D + o[None, :], total)


def suits(x: torch.Tensor, w: torch.Tensor, stride: Sequence[int]) -> bool:
    """Whether these kernels can convolve x (n, C, h, w) with weights (S, k, D, C, 3, 3), in S k parts."""
    S, k, D, C, *size = w.shape
    sides = (*x.shape[2:], C, D)
    powers = all(side & (side - 1) == 0 for side in sides) and min(C, D) >= 16
    whole = powers and size == [3, 3] and max(stride) == 1 and x[:, 0].numel() % (S * k * PIXELS) == 0
    return whole and x.is_cuda and x.dtype == torch.bfloat16  # in float32, cuDNN's are as fast


def convolved(x: torch.Tensor, w: torch.Tensor, *, back: bool = False) -> torch.Tensor:
    """x (n, C, h, w) convolved with weights (S, D, C, 3, 3), each on an S-th of the images; `back` is the transpose."""
    S, D, C = w.shape[:3]
    C, D = (D, C) if back else (C, D)
    x = x.contiguous(memory_format=torch.channels_last)
    order = (0, 3, 4, 1, 2) if back else (0, 3, 4, 2, 1)
    taps = torch.empty(S, 3, 3, C, D, dtype=x.dtype, device=x.device).copy_(w.permute(order))
    y = torch.empty((len(x), D, *x.shape[2:]), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    n = x[:, 0].numel()
    K = triton.next_power_of_2(3 * C)
    _convolve_kernel[(n // PIXELS,)](x, taps, y, n // S, *x.shape[2:], C, D, K, back, PIXELS)
    return y


def gradient(x: torch.Tensor, dy: torch.Tensor, workers: int) -> torch.Tensor:
    """Gradient of the weights (workers, D, C, 3, 3), for each worker's own part of the images x (n, C, h, w)."""
    C, D = x.shape[1], dy.shape[1]
    x, dy = (one.contiguous(memory_format=torch.channels_last) for one in (x, dy))
    n_own, K = x[:, 0].numel() // workers, triton.next_power_of_2(3 * C)
    pixels = min(PIXELS, WINDOW_BYTES // (K * x.itemsize))
    chunks = math.gcd(n_own // pixels, CHUNKS)
    n_blocks = n_own // pixels // chunks
    parts = torch.empty(workers, chunks, 3, K, D, device=x.device)
    how = *x.shape[2:], C, D, K, pixels
    _gradient_kernel[(chunks, workers, 3)](x, dy, parts, n_own, n_blocks, *how)
    return parts.sum(1)[:, :, : 3 * C].reshape(workers, 3, 3, C, D).permute(0, 4, 3, 1, 2)
