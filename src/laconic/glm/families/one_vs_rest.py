"""Several classes, each told from all others by a logistic regression of its own."""

from collections.abc import Callable

import torch

from laconic.glm.families.bernoulli import Bernoulli
from laconic.glm.families.multinomial import Multinomial
from laconic.kernels.glm import LinkCode


class OneVsRest(Multinomial):
    """φ = Σ_c log(1 + exp(z_c)) − z_y, for y in {0, …, C − 1}: C models that share rows, weights and steps.

    Probabilities are σ(z_c) divided by their sum, as scikit-learn has them.

    >>> OneVsRest(3).derivative(torch.zeros(1, 3), torch.tensor([2]))
    tensor([[ 0.5000,  0.5000, -0.5000]])
    """

    name = "one-vs-rest"
    option = "one_vs_rest"
    kernel_code = LinkCode.ONE_VS_REST
    redundant = False

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(z).sum(1) - z.gather(1, y.long()[:, None])[:, 0]

    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        own = (torch.arange(len(y), device=y.device), y.long())
        return torch.sigmoid(z).index_put(own, z.new_tensor(-1.0), accumulate=True)

    def mean(self, z: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(z)
        return p / p.sum(1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)

    def draw(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return torch.multinomial(torch.sigmoid(z), 1, generator=generator)[:, 0].to(z.dtype)

    def curvature(self, y: torch.Tensor, weights: torch.Tensor | None = None) -> float:
        return 0.25

    def start(self, mean: torch.Tensor) -> torch.Tensor:
        return torch.logit(mean.clamp(1e-6, 1 - 1e-6))

    def hessian(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.diag_embed(self.hessian_diagonal(z, y))

    def hessian_diagonal(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(z) * torch.sigmoid(-z)

    def bend(self, z: torch.Tensor, y: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        return self.hessian_diagonal(z, y).mul

    def derivative_change(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return Bernoulli().derivative_change(z, y, h)

    def derivative_remainder(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return Bernoulli().derivative_remainder(z, y, h)
