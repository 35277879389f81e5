"""Counts that vary more than Poisson's."""

from collections.abc import Mapping
from typing import Any

import torch

from laconic.errors import InvalidOption, Option
from laconic.glm.families.base import Family
from laconic.glm.families.power import NO_EVENT


class NegativeBinomial(Family):
    """φ = (y + θ) log(θ + eᶻ) − y z, for counts y ≥ 0 with mean μ = eᶻ and variance μ + μ² / θ.

    φ'' = (y + θ) θ μ / (μ + θ)² ≤ (y + θ) / 4. As θ grows, this becomes Poisson's, up to a constant.

    >>> NegativeBinomial(2.0).derivative(torch.zeros(1, 1), torch.tensor([4.0]))
    tensor([[-2.]])
    """

    name = option = loss_option = "negative_binomial"

    def __init__(self, theta: float = 1.0) -> None:
        if isinstance(theta, bool) or not isinstance(theta, (int, float)) or not 0 < theta < float("inf"):
            raise InvalidOption(Option("theta"), f" must be a positive number; got {theta!r}")
        self.theta = float(theta)

    @classmethod
    def of(cls, n_classes: int = 2, options: Mapping[str, Any] | None = None) -> Family:
        return cls((options or {}).get("theta", 1.0))

    @classmethod
    def examples(cls) -> list[Family]:
        return [cls(1.0), cls(3.5)]

    @property
    def parameters(self) -> dict[str, float]:
        return {"theta": self.theta}

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        level = torch.logaddexp(z[:, 0], z.new_tensor(self.theta).log())
        return (y + self.theta) * level - y * z[:, 0]

    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (y[:, None] + self.theta) * self._share(z) - y[:, None]

    def mean(self, z: torch.Tensor) -> torch.Tensor:
        return torch.exp(z[:, 0])

    def deviance(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        own = y + self.theta
        return 2 * (self.loss(z, y) + torch.xlogy(y, y) - own * own.log())

    def draw(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        shape = torch.full_like(z[:, 0], self.theta)
        rate = self.mean(z) * torch._standard_gamma(shape, generator=generator) / self.theta
        return torch.poisson(rate, generator=generator)

    def domain(self, y: torch.Tensor) -> tuple[torch.Tensor, str]:
        return y >= 0, "must not be negative"

    def curvature(self, y: torch.Tensor, weights: torch.Tensor | None = None) -> float:
        return (float(y.max()) + self.theta) / 4 if len(y) else 1.0

    def start(self, mean: torch.Tensor) -> torch.Tensor:
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()

    def target_mean(self, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        mean = super().target_mean(y, weights)
        return torch.where(mean > 0, mean, NO_EVENT / max(1, len(y)))

    def hessian(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        share = self._share(z)
        return ((y[:, None] + self.theta) * share * (1 - share))[:, :, None]

    def _share(self, z: torch.Tensor) -> torch.Tensor:
        """μ / (μ + θ)."""
        return torch.sigmoid(z - z.new_tensor(self.theta).log())
