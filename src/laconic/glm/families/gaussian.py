"""Linear regression."""

import torch

from laconic.glm.families.base import Family
from laconic.kernels.glm import LinkCode


class Gaussian(Family):
    """φ = (z − y)² / 2.

    >>> Gaussian().loss(torch.tensor([[3.0]]), torch.tensor([1.0]))
    tensor([2.])
    """

    name = "gaussian"
    option = "linear"
    loss_option = "squared_error"
    kernel_code = LinkCode.GAUSSIAN
    metrics = ("r2", "mse")
    dispersed = True
    quadratic = True

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (z[:, 0] - y).square() / 2

    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return z - y[:, None]

    def mean(self, z: torch.Tensor) -> torch.Tensor:
        return z[:, 0]

    def deviance(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (z[:, 0] - y).square()

    def draw(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return z[:, 0] + torch.randn(len(z), dtype=z.dtype, generator=generator)

    def curvature(self, y: torch.Tensor, weights: torch.Tensor | None = None) -> float:
        return 1.0

    def start(self, mean: torch.Tensor) -> torch.Tensor:
        return mean

    def null(self, y: torch.Tensor, weights: torch.Tensor, offset: torch.Tensor | None = None) -> torch.Tensor:
        return self.target_mean(y if offset is None else y - offset[:, 0], weights)

    def hessian(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(z)[:, :, None]

    def derivative_change(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return h

    def derivative_remainder(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(h)
