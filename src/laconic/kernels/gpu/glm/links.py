"""Losses and residuals of the families, elementwise. Codes are those of `glm.families`."""

import triton
import triton.language as tl

GAUSSIAN, BERNOULLI, MULTINOMIAL, POISSON = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)


@triton.jit
def slope_and_loss(z, y, CODE: tl.constexpr):
    """∂φ/∂z and φ(z, y) of a family with one output."""
    if CODE == GAUSSIAN:
        slope = z - y
        loss = 0.5 * slope * slope
    elif CODE == BERNOULLI:
        e = tl.exp(-tl.abs(z))  # never overflows
        slope = tl.where(z >= 0, 1.0, e) / (1.0 + e) - y
        loss = tl.maximum(z, 0.0) + tl.log(1.0 + e) - y * z
    else:
        mean = tl.exp(z)
        slope = mean - y
        loss = mean - y * z
    return slope, loss


@triton.jit
def softmax_slope_and_loss(z, y, c, n_outputs):
    """The same for z (C, k), y (k,) class numbers: ∂φ/∂z (C, k) and φ (k,). c (C, 1) numbers the rows of z."""
    real = c < n_outputs
    top = tl.max(tl.where(real, z, float("-inf")), 0)
    e = tl.where(real, tl.exp(z - top[None, :]), 0.0)
    total = tl.sum(e, 0)
    hit = c == y.to(tl.int32)[None, :]
    slope = e / total[None, :] - hit.to(tl.float32)
    loss = tl.log(total) + top - tl.sum(tl.where(hit, z, 0.0), 0)
    return slope, loss
