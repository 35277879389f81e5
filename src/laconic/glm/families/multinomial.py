"""Logistic regression with any number of classes: together, or each told from all others by a regression of its own."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.functional import softplus

from laconic.glm.families.base import Expansion, Family
from laconic.glm.families.bernoulli import Bernoulli
from laconic.kernels.glm import LinkCode


class Multinomial(Family):
    """φ = log Σₖ exp(z_k) − z_y, for y in {0, …, C − 1}; φ' = π(z) − e_y.

    Along t, π_c' = π_c (t_c − t̄) and π_c'' = π_c ((t_c − t̄)² − Var t), with |t_c − t̄| ≤ 2 h and Var t ≤ h² for the
    largest h of the row; π_c itself grows by at most e^(2h).

    >>> Multinomial(3).derivative(torch.zeros(1, 3), torch.tensor([2]))
    tensor([[ 0.3333,  0.3333, -0.6667]])
    """

    name = "multinomial"
    option = "multinomial"
    loss_option = "log_loss"
    classifies = True
    kernel_code = LinkCode.MULTINOMIAL
    metrics = ("accuracy", "log_loss")
    redundant = True

    def __init__(self, n_classes: int) -> None:
        if n_classes < 2:
            raise ValueError(f"multinomial: there must be at least 2 classes, got {n_classes}")
        self.n_outputs = n_classes

    @classmethod
    def of(cls, n_classes: int = 2, options: Mapping[str, Any] | None = None) -> Family:
        return cls(n_classes)

    @classmethod
    def examples(cls) -> list[Family]:
        return [cls(3), cls(5)]

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(z, 1) - z.gather(1, y.long()[:, None])[:, 0]

    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return softmax(z).scatter_add(1, y.long()[:, None], z.new_full((len(z), 1), -1.0))

    def mean(self, z: torch.Tensor) -> torch.Tensor:
        return softmax(z)

    def deviance(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 2 * self.loss(z, y)

    def draw(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return torch.multinomial(self.mean(z), 1, generator=generator)[:, 0].to(z.dtype)

    def domain(self, y: torch.Tensor) -> tuple[torch.Tensor, str]:
        good = (y == y.round()) & (y >= 0) & (y < self.n_outputs)
        return good, f"must be class numbers from 0 to {self.n_outputs - 1}"

    def curvature(self, y: torch.Tensor, weights: torch.Tensor | None = None) -> float:
        return 0.5

    def start(self, mean: torch.Tensor) -> torch.Tensor:
        z = mean.clamp(min=1e-6).log()
        return z - z.mean()

    def target_mean(self, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        if len(weights) and weights.stride(0) == 0:
            return torch.bincount(y.long(), minlength=self.n_outputs).to(weights) / len(y)
        sums = torch.zeros(self.n_outputs, dtype=weights.dtype)  # on the CPU: a GPU adds in any order
        return sums.index_add_(0, y.long().cpu(), weights.cpu()).to(y.device) / weights.sum()

    def hessian(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return _spread(softmax(z))

    def expand(self, z: torch.Tensor, y: torch.Tensor, *, curved: bool) -> Expansion:
        if not self.redundant:
            return super().expand(z, y, curved=curved)
        own, top = y.long()[:, None], z.amax(1, keepdim=True)
        p = torch.exp(z - top)
        total = p.sum(1, keepdim=True)
        loss, p = (total.log() + top - z.gather(1, own))[:, 0], p / total
        return loss, p.scatter_add(1, own, z.new_full(own.shape, -1.0)), p if curved else None

    def hessian_diagonal(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p = softmax(z)
        return p * (1 - p)

    def bend(self, z: torch.Tensor, y: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        p = softmax(z)
        return lambda u: p * (u - (p * u).sum(1, keepdim=True))

    def derivative_change(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        top = h.amax(1, keepdim=True)
        return (_grown(z, top) * 2 * top).clamp(max=1.0)

    def derivative_remainder(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        top = h.amax(1, keepdim=True)
        return torch.minimum(_grown(z, top) * 2 * top.square(), 1.0 + top)


def softmax(z: torch.Tensor) -> torch.Tensor:
    """exp(z_c) / Σₖ exp(z_k), row by row; torch's own is slower where rows are short."""
    p = torch.exp(z - z.amax(1, keepdim=True))
    return p / p.sum(1, keepdim=True)


def _spread(p: torch.Tensor) -> torch.Tensor:
    """diag(p) − p pᵀ, row by row; 1 − p as the sum of the others, which keeps its digits where p is nearly 1."""
    h = p[:, :, None] * -p[:, None, :]
    diagonal = h.diagonal(dim1=1, dim2=2)
    diagonal.zero_()
    diagonal.copy_(-h.sum(2))
    return h


def _grown(z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return (softmax(z) * torch.exp(2 * h)).clamp(max=1.0)


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
    metrics = ("accuracy", "log_losses")

    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return softplus(z).sum(1) - z.gather(1, y.long()[:, None])[:, 0]

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
