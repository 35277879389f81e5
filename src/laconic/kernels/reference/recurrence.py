"""The inner steps of CA-SGD in plain torch, rounded wherever a precision can be chosen: the specification."""

from typing import Protocol

import numpy as np
import torch

from laconic.kernels.formats import Format
from laconic.kernels.glm import Block, Combination, Intercept


class Loss(Protocol):
    """What the kernels need of a GLM family: its loss and derivative."""

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """φ(z, y), (b,)."""

    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """∂φ/∂z, (b, C)."""


def residuals(
    family: Loss, z: torch.Tensor, y: torch.Tensor, w: torch.Tensor, residual: Format, n_models: int = 1
) -> tuple[torch.Tensor, np.ndarray]:
    """r = w φ'(z, y) in the precision `residual`, and Σ w φ of each model; rows of weight 0 are left out.

    z  (b, M C), the margins of M models side by side
    """
    (b, width), used = z.shape, w != 0
    if n_models > 1:
        y, w, used = (t.repeat_interleave(n_models) for t in (y, w, used))
    z = residual.round(z).reshape(b * n_models, -1)
    r = residual.round(residual.round(w)[:, None] * residual.round(family.derivative(z, y)))
    loss = torch.where(used, w * family.loss(z, y), 0.0).view(b, n_models)
    return torch.where(used[:, None], r, 0.0).view(b, width), loss.sum(0, dtype=torch.float64).cpu().numpy()


def recurrence(block: Block, family: Loss, intercept: Intercept, recurrence: Format, residual: Format) -> Combination:
    """Step through the batches of a block; see `kernels.glm` for the formulas.

    Each of M models, whose margins lie side by side, has its own η and λ, hence its own A; they share G and the rows.

    recurrence  precision of the corrected margins, of G and of the coefficients p
    residual    precision of the loss and the residual
    """
    k, n_outputs = block.margins.shape
    rates, l2 = block.rates.reshape(len(block.rates), -1), np.atleast_1d(block.l2)
    n_models = rates.shape[1]
    A, loss = np.eye(3)[:, :, None].repeat(n_models, 2), np.zeros(n_models)
    p = torch.zeros(3, n_outputs, k, dtype=block.margins.dtype, device=block.margins.device)

    def each(of_models: np.ndarray) -> torch.Tensor:
        """One number per model, repeated for each of the model's outputs."""
        return torch.from_numpy(of_models.repeat(n_outputs // n_models)).to(p)

    begin = 0
    for j, (first, last) in enumerate(zip(block.cuts[:-1], block.cuts[1:], strict=True)):
        rows, eta, g = slice(first, last), each(rates[j]), block.scales[j]
        z = each(A[0, 0]) * block.margins[rows]
        if block.momentum:
            z = z + each(A[0, 1]) * block.momenta[rows]
        gram = block.triangle[begin : begin + (last - first) * first].view(last - first, first)
        begin += (last - first) * first
        z = recurrence.round(z + recurrence.round(gram) @ p[0, :, :first].T)
        z = z + block.offset[rows] + intercept.value
        r, batch_loss = residuals(family, z, block.y[rows], block.w[rows], residual, n_models)
        loss += batch_loss

        A[1] = block.momentum * A[1] + l2 * A[0]
        A[0] = A[0] - rates[j] * A[1]
        p[1, :, :first] = block.momentum * p[1, :, :first] + each(l2)[:, None] * p[0, :, :first]
        p[1, :, rows] = g * r.T
        p[0, :, :last] = recurrence.round(p[0, :, :last] - eta[:, None] * p[1, :, :last])
        if len(block.mix):
            A[2] += block.mix[j] * (A[0] - A[2])
            p[2, :, :last] += block.mix[j] * (p[0, :, :last] - p[2, :, :last])
        step_intercept(intercept, g * r.sum(0), eta, block.momentum, block.mix[j] if len(block.mix) else None)
    return Combination(A, p, loss)


def step_intercept(
    intercept: Intercept, gradient: torch.Tensor, eta: float | torch.Tensor, momentum: float, mix: float | None
) -> None:
    """One step of the intercept, in place."""
    if intercept.fitted:
        intercept.momentum.mul_(momentum).add_(gradient)
        intercept.value.sub_(eta * intercept.momentum)
    if mix is not None:
        intercept.average.add_(mix * (intercept.value - intercept.average))
