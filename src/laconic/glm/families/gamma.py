"""Regression of positive amounts whose spread grows with their mean."""

import torch

from laconic.glm.families.base import Family, exp_tail


class Gamma(Family):
    """φ = z + y e⁻ᶻ, for y > 0: half the deviance of the gamma distribution with mean eᶻ, as scikit-learn has it.

    The curvature y e⁻ᶻ has no bound. Margins beyond the exponent's range give an infinite loss, never NaN.

    >>> Gamma().derivative(torch.zeros(2, 1), torch.tensor([1.0, 3.0]))
    tensor([[ 0.],
            [-2.]])
    """

    name = "gamma"
    option = "gamma"
    loss_option = "gamma"

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return z[:, 0] + y * torch.exp(-z[:, 0])

    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 1 - y[:, None] * torch.exp(-z)

    def mean(self, z: torch.Tensor) -> torch.Tensor:
        return torch.exp(z[:, 0])

    def deviance(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 2 * (self.loss(z, y) - 1 - y.log())

    def check(self, y: torch.Tensor) -> None:
        self.require_finite(y)
        self.require(y > 0, y, "must be positive")

    def curvature(self, y: torch.Tensor) -> float:
        """That of the largest target at the null model."""
        return float(y.max() / y.double().mean()) if len(y) else 1.0

    def start(self, mean: torch.Tensor) -> torch.Tensor:
        return mean.log()

    def null(self, y: torch.Tensor, weights: torch.Tensor, offset: torch.Tensor | None = None) -> torch.Tensor:
        scaled = y if offset is None else y * torch.exp(-offset[:, 0])
        return self.start(self.target_mean(scaled, weights))

    def hessian(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (y[:, None] * torch.exp(-z))[:, :, None]

    def derivative_change(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return y[:, None] * torch.exp(-z) * torch.expm1(h)

    def derivative_remainder(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return y[:, None] * torch.exp(-z) * exp_tail(h)
