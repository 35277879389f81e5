"""The inner steps of CA-SGD in plain torch, rounded at every knob: the specification."""

from typing import Protocol

import numpy as np
import torch

from laconic.kernels.formats import Format
from laconic.kernels.glm import Block, Combination, Intercept


class Loss(Protocol):
    """What the kernels need of a family."""

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """φ(z, y), (b,)."""

    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """∂φ/∂z, (b, C)."""


def residuals(
    family: Loss, z: torch.Tensor, y: torch.Tensor, w: torch.Tensor, residual: Format
) -> tuple[torch.Tensor, float]:
    """r = w φ'(z, y) in the precision `residual`, and Σ w φ; a row of weight 0 counts for nothing."""
    z, used = residual.round(z), w != 0
    r = residual.round(residual.round(w)[:, None] * residual.round(family.derivative(z, y)))
    loss = torch.where(used, w * family.loss(z, y), 0.0)
    return torch.where(used[:, None], r, 0.0), float(loss.sum(dtype=torch.float64))


def recurrence(block: Block, family: Loss, intercept: Intercept, recurrence: Format, residual: Format) -> Combination:
    """Step through the batches of a block; see `kernels.glm` for the formulas.

    recurrence  precision of the corrected margins, of G and of the coefficients p
    residual    precision of the loss and the residual
    """
    k, n_outputs = block.margins.shape
    A, loss = np.eye(3), 0.0
    p = torch.zeros(3, n_outputs, k, dtype=block.margins.dtype, device=block.margins.device)
    begin = 0
    for j, (first, last) in enumerate(zip(block.cuts[:-1], block.cuts[1:], strict=True)):
        rows, eta, g = slice(first, last), block.rates[j], block.scales[j]
        z = A[0, 0] * block.margins[rows]
        if block.momentum:
            z = z + A[0, 1] * block.momenta[rows]
        gram = block.triangle[begin : begin + (last - first) * first].view(last - first, first)
        begin += (last - first) * first
        z = recurrence.round(z + recurrence.round(gram) @ p[0, :, :first].T)
        r, batch_loss = residuals(
            family, z + block.offset[rows] + intercept.value, block.y[rows], block.w[rows], residual
        )
        loss += batch_loss

        A[1] = block.momentum * A[1] + block.l2 * A[0]
        A[0] = A[0] - eta * A[1]
        p[1, :, :first] = block.momentum * p[1, :, :first] + block.l2 * p[0, :, :first]
        p[1, :, rows] = g * r.T
        p[0, :, :last] = recurrence.round(p[0, :, :last] - eta * p[1, :, :last])
        if len(block.mix):
            A[2] += block.mix[j] * (A[0] - A[2])
            p[2, :, :last] += block.mix[j] * (p[0, :, :last] - p[2, :, :last])
        step_intercept(intercept, g * r.sum(0), eta, block.momentum, block.mix[j] if len(block.mix) else None)
    return Combination(A, p, loss)


def step_intercept(
    intercept: Intercept, gradient: torch.Tensor, eta: float, momentum: float, mix: float | None
) -> None:
    """One step of the intercept, in place."""
    if intercept.fitted:
        intercept.momentum.mul_(momentum).add_(gradient)
        intercept.value.sub_(eta * intercept.momentum)
    if mix is not None:
        intercept.average.add_(mix * (intercept.value - intercept.average))
