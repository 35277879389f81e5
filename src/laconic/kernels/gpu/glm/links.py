"""Losses and derivatives of the families, elementwise; `LinkCode` numbers them."""

import triton
import triton.language as tl

from laconic.kernels.glm import LinkCode

GAUSSIAN, BERNOULLI, POISSON, MULTINOMIAL = (
    tl.constexpr(int(code)) for code in (LinkCode.GAUSSIAN, LinkCode.BERNOULLI, LinkCode.POISSON, LinkCode.MULTINOMIAL)
)


@triton.jit
def slope_and_loss(z, y, CODE: tl.constexpr):
    """∂φ/∂z and φ(z, y) of a family with one output; no other code compiles."""
    if CODE == GAUSSIAN:
        slope = z - y
        loss = 0.5 * slope * slope
    elif CODE == BERNOULLI:
        e = tl.exp(-tl.abs(z))  # never overflows
        slope = tl.where(z >= 0, 1.0, e) / (1.0 + e) - y
        loss = tl.maximum(z, 0.0) + tl.log(1.0 + e) - y * z
    elif CODE == POISSON:
        mean = tl.exp(z)
        slope = mean - y
        loss = mean - y * z
    return slope, loss


@triton.jit
def classes_slope_and_loss(z, y, c, n_outputs, CODE: tl.constexpr):
    """`slope_and_loss` for z (C, k), y (k,) class numbers: ∂φ/∂z (C, k) and φ (k,). c (C, 1) numbers the rows of z.

    All of a row's outputs together (MULTINOMIAL), or each on its own (ONE_VS_REST).
    """
    real, hit = c < n_outputs, (c == y.to(tl.int32)[None, :]).to(tl.float32)
    if CODE == MULTINOMIAL:
        top = tl.max(tl.where(real, z, float("-inf")), 0)
        e = tl.where(real, tl.exp(z - top[None, :]), 0.0)
        total = tl.sum(e, 0)
        slope = e / total[None, :] - hit
        loss = tl.log(total) + top - tl.sum(hit * z, 0)
    else:
        slopes, losses = slope_and_loss(z, hit, BERNOULLI)
        slope, loss = tl.where(real, slopes, 0.0), tl.sum(tl.where(real, losses, 0.0), 0)
    return slope, loss
