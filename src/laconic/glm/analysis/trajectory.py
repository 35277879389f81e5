"""What an outer iteration goes through without rounding: the quantities that the bounds are made of."""

from dataclasses import dataclass

import numpy as np
import torch

from laconic.glm.analysis.sample import Sample
from laconic.kernels.formats import Format


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """Of k rows in s batches, float64.

    gram       (k, k) G = Y Yᵀ as the recurrence meets it, and
    products   (k, k) the same of the rows as the update meets them; they differ where Gram operands are rounded
    shrink     (s + 1,) A_j = Π_{t<j} ρ_t, ρ = 1 − ηλ
    rho        (s,)
    c          (k,) η g of each row's batch
    v          (k, C) Y x; z (k, C) margins with offset and intercept; r (k, C) residuals
    hessian    (k, C, C) w φ''(z)
    weights    (s + 1, C, n) x before each batch, and at the end
    movement   ‖(x', b') − (x, b)‖
    size       ‖(x', b')‖
    """

    sample: Sample
    gram: torch.Tensor
    products: torch.Tensor
    shrink: torch.Tensor
    rho: torch.Tensor
    c: torch.Tensor
    v: torch.Tensor
    z: torch.Tensor
    slope: torch.Tensor
    r: torch.Tensor
    hessian: torch.Tensor
    weights: torch.Tensor
    movement: float
    size: float

    def decay(self, j: int) -> torch.Tensor:
        """κ = c Π_{i<t<j} ρ_t of the rows of batches before j, (first,): p_i before batch j is −κ_i r_i."""
        first = int(self.sample.cuts[j])
        batch = np.repeat(np.arange(j), np.diff(self.sample.cuts[: j + 1]))
        later = torch.flip(torch.cumprod(torch.flip(self.rho[1:j], [0]), 0), [0]) if j > 1 else self.rho[:0]
        later = torch.cat([later, self.rho.new_ones(1)]) if j else later
        return self.c[:first] * later[torch.from_numpy(batch)]

    def coefficients(self, j: int) -> torch.Tensor:
        """p (first, C) of the rows before batch j; j = s gives all of them, at the end."""
        kappa = self.decay(j)
        return -kappa[:, None] * self.r[: len(kappa)]


def follow(sample: Sample, operand: Format | None = None) -> Trajectory:
    """Run the iteration in float64, by SGD's own formulas; `operand` rounds what the Gram matrix is made of."""
    s = sample.n_batches
    rounded = sample.Y if operand is None else operand.round(sample.Y)
    gram, products = rounded @ rounded.T, sample.Y @ sample.Y.T
    rho = 1 - torch.from_numpy(sample.rates) * sample.l2
    shrink = torch.cat([rho.new_ones(1), torch.cumprod(rho, 0)])
    sizes = torch.from_numpy(np.diff(sample.cuts))
    c = torch.repeat_interleave(torch.from_numpy(sample.rates * sample.scales), sizes)
    v, b = sample.Y @ sample.x.T, sample.intercept.clone()
    z, r, slope = torch.empty_like(v), torch.empty_like(v), torch.empty_like(v)
    p, weights = torch.zeros_like(v), [sample.x]
    for j in range(s):
        J, first = sample.batch(j), int(sample.cuts[j])
        z[J] = shrink[j] * v[J] + gram[J, :first] @ p[:first] + sample.offset[J] + b
        slope[J] = sample.family.derivative(z[J], sample.y[J])
        r[J] = torch.where(sample.w[J, None] != 0, sample.w[J, None] * slope[J], 0.0)
        p[:first] *= rho[j]
        p[J] = -c[J, None] * r[J]
        b = b - (c[J, None] * r[J]).sum(0) if sample.fitted else b
        weights.append(rho[j] * weights[-1] - (c[J, None] * r[J]).T @ sample.Y[J])
    moved = (weights[-1] - sample.x, (shrink[-1] - 1) * sample.idle, b - sample.intercept)
    ends = (weights[-1], shrink[-1] * sample.idle, b)
    norm, size = (float(sum(part.square().sum() for part in parts)) ** 0.5 for parts in (moved, ends))
    hessian = sample.w[:, None, None] * sample.family.hessian(z, sample.y)
    return Trajectory(sample, gram, products, shrink, rho, c, v, z, slope, r, hessian, torch.stack(weights), norm, size)
