"""Regression of counts."""

import torch

from laconic.glm.families.base import Family, exp_tail
from laconic.kernels.glm import LinkCode

SMALLEST_MEAN = 1e-12
"""Where a fit begins whose targets are all 0: from far below, counts would not bring it back."""


class Poisson(Family):
    """φ = eᶻ − y z, for y ≥ 0; with an offset log(exposure), eᶻ is the rate times the exposure.

    The curvature eᶻ has no bound. Margins beyond the exponent's range give an infinite loss, never NaN.

    >>> Poisson().loss(torch.tensor([[-1e4], [1e4]]), torch.tensor([0.0, 1.0]))
    tensor([0., inf])
    """

    name = "poisson"
    option = "poisson"
    loss_option = "poisson"
    kernel_code = LinkCode.POISSON

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.exp(z[:, 0]) - y * z[:, 0]

    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.exp(z) - y[:, None]

    def mean(self, z: torch.Tensor) -> torch.Tensor:
        return torch.exp(z[:, 0])

    def deviance(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 2 * (torch.xlogy(y, y) - y + self.loss(z, y))

    def check(self, y: torch.Tensor) -> None:
        self.require_finite(y)
        self.require(y >= 0, y, "must not be negative")

    def curvature(self, y: torch.Tensor) -> float:
        largest = float(y.max()) if len(y) else 0.0
        return largest if largest > 0 else 1.0

    def start(self, mean: torch.Tensor) -> torch.Tensor:
        return torch.where(mean > 0, mean, SMALLEST_MEAN).log()

    def null(self, y: torch.Tensor, weights: torch.Tensor, offset: torch.Tensor | None = None) -> torch.Tensor:
        exposure = torch.ones_like(y) if offset is None else offset[:, 0].exp()
        return self.start(((weights * y).sum() / (weights * exposure).sum()).reshape(1))

    def hessian(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return z.exp()[:, :, None]

    def derivative_change(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return z.exp() * torch.expm1(h)

    def derivative_remainder(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return z.exp() * exp_tail(h)
