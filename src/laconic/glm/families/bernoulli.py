"""Logistic regression with two classes."""

import torch
from torch.nn.functional import softplus

from laconic.glm.families.base import Expansion, Family, exp_tail
from laconic.kernels.glm import LinkCode


class Bernoulli(Family):
    """φ = log(1 + eᶻ) − y z, for y in {0, 1}.

    σ' ≤ 1/4, |σ''| ≤ 1/(6√3), and |σ''| ≤ σ', so that σ'(z + t) ≤ σ'(z) e^|t|.

    >>> Bernoulli().loss(torch.tensor([[1e4], [-1e4]]), torch.tensor([1.0, 1.0]))
    tensor([    0., 10000.])
    """

    name = "bernoulli"
    option = "logistic"
    loss_option = "log_loss"
    classifies = True
    kernel_code = LinkCode.BERNOULLI
    metrics = ("accuracy", "log_loss")

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return softplus(torch.addcmul(z[:, 0], y, z[:, 0], value=-2), threshold=40.0)  # of −z where y is 1

    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(z) - y[:, None]

    def mean(self, z: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(z[:, 0])

    def deviance(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 2 * self.loss(z, y)

    def draw(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return torch.bernoulli(self.mean(z), generator=generator)

    def domain(self, y: torch.Tensor) -> tuple[torch.Tensor, str]:
        return (y == 0) | (y == 1), "must be 0 or 1"

    def curvature(self, y: torch.Tensor, weights: torch.Tensor | None = None) -> float:
        return 0.25

    def start(self, mean: torch.Tensor) -> torch.Tensor:
        return torch.logit(mean, eps=1e-6)

    def target_mean(self, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Of one class alone, half a row is taken to be of the other."""
        least = 0.5 / max(1, len(y))
        return super().target_mean(y, weights).clamp(least, 1 - least)

    def hessian(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (torch.sigmoid(z) * torch.sigmoid(-z))[:, :, None]

    def expand(self, z: torch.Tensor, y: torch.Tensor, *, curved: bool) -> Expansion:
        mean = torch.sigmoid(z)
        return self.loss(z, y), mean - y[:, None], mean * torch.sigmoid(-z) if curved else None

    def derivative_change(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return torch.minimum(self.hessian(z, y)[:, :, 0] * torch.expm1(h), h / 4).clamp(max=1.0)

    def derivative_remainder(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        near = self.hessian(z, y)[:, :, 0] * exp_tail(h)
        return torch.minimum(near, h.square() / (12 * 3**0.5)).clamp(max=1.0 + h / 4)
