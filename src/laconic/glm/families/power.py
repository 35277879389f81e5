"""Counts and amounts with mean eᶻ: Poisson, gamma and Tweedie, whose variance goes with a power of the mean, and
negative binomial counts, which vary more than Poisson's."""

from collections.abc import Mapping
from typing import Any

import torch

from laconic.errors import InvalidOption, Option
from laconic.glm.families.base import Expansion, Family, exp_tail
from laconic.kernels.glm import LinkCode

NO_EVENT = 0.5
"""Events that rows without any count for, so that a fit begins at a rate that later rows can raise."""


class LogLink(Family):
    """Targets y ≥ 0 with mean eᶻ."""

    def mean(self, z: torch.Tensor) -> torch.Tensor:
        return torch.exp(z[:, 0])

    def domain(self, y: torch.Tensor) -> tuple[torch.Tensor, str]:
        return y >= 0, "must not be negative"

    def start(self, mean: torch.Tensor) -> torch.Tensor:
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()


class PowerFamily(LogLink):
    """φ' = e^((2−p) z) − y e^((1−p) z): half the Tweedie deviance of y from eᶻ, as scikit-learn minimises it.

    Neither the loss nor its curvature has a bound; beyond the exponent's range it is infinite, never NaN.

    power  p, from 1 (counts) to 2 (gamma)
    """

    power: float

    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        up, down = self._terms(z, y)
        return up - down

    def curvature(self, y: torch.Tensor, weights: torch.Tensor | None = None) -> float:
        """That of the largest target: at the null model, or where the mean is as large as it."""
        if not len(y) or not float(y.max()) > 0:
            return 1.0
        w = torch.ones_like(y, dtype=torch.float64) if weights is None else weights.double()
        p, largest, mean = self.power, float(y.max()), float(self.target_mean(y.double(), w))
        at_null = (2 - p) * mean ** (2 - p) + (p - 1) * largest * mean ** (1 - p)
        return float(max(largest ** (2 - p), at_null))

    def null(self, y: torch.Tensor, weights: torch.Tensor, offset: torch.Tensor | None = None) -> torch.Tensor:
        events, p = weights * y, self.power
        if offset is None:
            total = events.sum()
            return self.start((torch.where(total > 0, total, NO_EVENT) / weights.sum()).reshape(1))
        up, down = (2 - p) * offset + weights.log()[:, None], (1 - p) * offset + events.log()[:, None]
        least = up.new_tensor(NO_EVENT).log()  # sums of powers of e, which may overflow, by their logarithms
        return (down.logsumexp(0) if bool((events > 0).any()) else least) - up.logsumexp(0)

    def hessian(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        up, down = self._terms(z, y)
        return ((2 - self.power) * up + (self.power - 1) * down)[:, :, None]

    def derivative_change(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        up, down = self._terms(z, y)
        return up * torch.expm1((2 - self.power) * h) + down * torch.expm1((self.power - 1) * h)

    def derivative_remainder(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        up, down = self._terms(z, y)
        return up * exp_tail((2 - self.power) * h) + down * exp_tail((self.power - 1) * h)

    def _terms(self, z: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """e^((2−p) z) and y e^((1−p) z), (m, 1) each; the second is 0 for y = 0, wherever z lies."""
        down = torch.where(y[:, None] > 0, y[:, None] * torch.exp((1 - self.power) * z), 0.0)
        return torch.exp((2 - self.power) * z), down.to(z.dtype)


class Poisson(PowerFamily):
    """φ = eᶻ − y z, for counts y ≥ 0; with an offset log(exposure), eᶻ is the rate times the exposure.

    >>> Poisson().loss(torch.tensor([[-1e4], [1e4]]), torch.tensor([0.0, 1.0]))
    tensor([0., inf])
    """

    name = option = loss_option = "poisson"
    kernel_code = LinkCode.POISSON
    power = 1.0

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.exp(z[:, 0]) - y * z[:, 0]

    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.exp(z) - y[:, None]

    def expand(self, z: torch.Tensor, y: torch.Tensor, *, curved: bool) -> Expansion:
        mean = torch.exp(z)
        return mean[:, 0] - y * z[:, 0], mean - y[:, None], mean if curved else None

    def draw(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return torch.poisson(self.mean(z), generator=generator)

    def deviance(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 2 * (torch.xlogy(y, y) - y + self.loss(z, y))


class Gamma(PowerFamily):
    """φ = z + y e⁻ᶻ, for amounts y > 0.

    >>> Gamma().derivative(torch.zeros(2, 1), torch.tensor([1.0, 3.0]))
    tensor([[ 0.],
            [-2.]])
    """

    name = option = loss_option = "gamma"
    dispersed = True
    power = 2.0

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return z[:, 0] + y * torch.exp(-z[:, 0])

    def draw(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return self.mean(z) * torch.empty_like(z[:, 0]).exponential_(generator=generator)

    def deviance(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 2 * (self.loss(z, y) - 1 - y.log())

    def domain(self, y: torch.Tensor) -> tuple[torch.Tensor, str]:
        return y > 0, "must be positive"


class Tweedie(PowerFamily):
    """φ = e^((2−p) z) / (2 − p) + y e^((1−p) z) / (p − 1), 1 < p < 2, for amounts y ≥ 0 that are often nothing.

    >>> Tweedie(1.5).loss(torch.zeros(2, 1), torch.tensor([0.0, 1.0]))
    tensor([2., 4.])
    """

    name = option = loss_option = "tweedie"
    dispersed = True

    def __init__(self, power: float = 1.5) -> None:
        if isinstance(power, bool) or not isinstance(power, (int, float)) or not 1 < power < 2:
            raise InvalidOption(Option("tweedie_power"), f" must lie between 1 and 2; got {power!r}")
        self.power = float(power)

    @classmethod
    def of(cls, n_classes: int = 2, options: Mapping[str, Any] | None = None) -> Family:
        return cls((options or {}).get("tweedie_power", 1.5))

    @classmethod
    def examples(cls) -> list[Family]:
        return [cls(1.5), cls(1.9)]

    @property
    def parameters(self) -> dict[str, float]:
        return {"tweedie_power": self.power}

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        up, down = self._terms(z, y)
        return (up / (2 - self.power) + down / (self.power - 1))[:, 0]

    def draw(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """A Poisson number of amounts of one random size: the family's mean and its share of zeros, not its density."""
        mean = self.mean(z)
        return torch.poisson(mean, generator=generator) * torch.empty_like(mean).exponential_(generator=generator)

    def deviance(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p = self.power
        return 2 * (self.loss(z, y) - y ** (2 - p) / ((p - 1) * (2 - p)))


class NegativeBinomial(LogLink):
    """φ = (y + θ) log(θ + eᶻ) − y z, for counts y ≥ 0 with mean μ = eᶻ and variance μ + μ² / θ.

    It is computed as θ log(θ + eᶻ) + y log(1 + θ e⁻ᶻ), of which a large y costs no digits.
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
        own, level = z[:, 0], z.new_tensor(self.theta).log()
        return self.theta * torch.logaddexp(own, level) + y * torch.logaddexp(level - own, torch.zeros_like(own))

    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        share, rest = self._shares(z)
        return self.theta * share - y[:, None] * rest

    def deviance(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        own = y + self.theta
        return 2 * (self.loss(z, y) + torch.xlogy(y, y) - own * own.log())

    def draw(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        shape = torch.full_like(z[:, 0], self.theta)
        rate = self.mean(z) * torch._standard_gamma(shape, generator=generator) / self.theta
        return torch.poisson(rate, generator=generator)

    def curvature(self, y: torch.Tensor, weights: torch.Tensor | None = None) -> float:
        return (float(y.max()) + self.theta) / 4 if len(y) else 1.0

    def target_mean(self, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        mean = super().target_mean(y, weights)
        return torch.where(mean > 0, mean, NO_EVENT / max(1, len(y)))

    def hessian(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        share, rest = self._shares(z)
        return ((y[:, None] + self.theta) * share * rest)[:, :, None]

    def _shares(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """μ / (μ + θ) and θ / (μ + θ)."""
        u = z - z.new_tensor(self.theta).log()
        return torch.sigmoid(u), torch.sigmoid(-u)
