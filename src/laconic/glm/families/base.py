"""The interface of a family: the loss of a margin, and every fact that follows from it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, cast

import torch

from laconic.kernels.glm import LinkCode

NEWTON_STEPS = 50
"""Of the constant that fits best beside an offset; three or four are usual."""
ROUNDING = 1e-12
"""A sum of losses may rise by this share of itself: rounding errors of its size hide what a last step gains."""

Expansion = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
Curved = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Family(ABC):
    """φ(z, y) for a margin z and a target y, per row, and what is true of it.

    Margins have shape (m, C), one column per output; targets have shape (m,). A new family is one subclass in one file
    listed in `families/registry.py`. What is not abstract has a correct slow default.

    name         in messages and results
    option       what `laconic fit --family` and model files call it
    loss_option  what `loss=` of the estimators calls it
    classifies   whether targets are numbers of classes
    n_outputs    C, the columns of a margin
    kernel_code  by which the compiled kernels know it; None for plain torch, on the CPU and on a GPU
    metrics      names of its score and of what is lost, per unit of weight
    dispersed    whether the variance has a factor of its own, which standard errors need
    redundant    whether a constant added to all outputs of a row changes nothing
    quadratic    whether ∂²φ/∂z² is the same for all margins
    """

    name: ClassVar[str]
    option: ClassVar[str]
    loss_option: ClassVar[str]
    classifies: ClassVar[bool] = False
    n_outputs: int = 1
    kernel_code: ClassVar[LinkCode | None] = None
    metrics: ClassVar[tuple[str, str]] = ("d2", "deviance")
    dispersed: ClassVar[bool] = False
    redundant: ClassVar[bool] = False
    quadratic: ClassVar[bool] = False

    @classmethod
    def of(cls, n_classes: int = 2, options: Mapping[str, Any] | None = None) -> "Family":
        """The family for targets of so many classes, with what it needs of a fit's options."""
        return cls()

    @classmethod
    def examples(cls) -> "list[Family]":
        """Members that the tests run over."""
        return [cls()]

    @property
    def parameters(self) -> dict[str, float]:
        """Numbers of its own that a fit depends on, by the names of their options; checkpoints compare them."""
        return {}

    @abstractmethod
    def loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """φ(z, y), shape (m,): the negative log-likelihood, up to a constant that depends on y alone."""

    @abstractmethod
    def derivative(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """∂φ/∂z, shape (m, C)."""

    @abstractmethod
    def mean(self, z: torch.Tensor) -> torch.Tensor:
        """The inverse link, E[y | z]: shape (m,), or (m, C) for class probabilities."""

    @abstractmethod
    def deviance(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Twice the log-likelihood lost against a model that predicts each y exactly, shape (m,)."""

    def draw(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Random targets (m,) with the mean of these margins, in the type of z; by default the mean itself."""
        return self.mean(z)

    def domain(self, y: torch.Tensor) -> tuple[torch.Tensor, str]:
        """Which targets (m,) are the family's, and the rule in words; those that are not finite never are."""
        return torch.isfinite(y), "must be finite"

    def check(self, y: torch.Tensor) -> None:
        """Raise `ValueError` naming the first target outside the family's domain."""
        for good, rule in ((torch.isfinite(y), "must be finite"), self.domain(y)):
            if not bool(good.all()):
                row = int((~good).nonzero()[0, 0])
                raise ValueError(f"{self.name}: targets {rule}, but row {row + 1} has y = {y[row].item():g}")

    @abstractmethod
    def curvature(self, y: torch.Tensor, weights: torch.Tensor | None = None) -> float:
        """A bound on ∂²φ/∂z² (its largest eigenvalue), or where there is none its size where it matters: for counts,
        where the mean is as large as the largest target. A weight counts as a repetition does."""

    @abstractmethod
    def start(self, mean: torch.Tensor) -> torch.Tensor:
        """The link: the margin (C,) of a model without features, for a mean target (C,)."""

    def target_mean(self, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The weighted mean target, shape (C,)."""
        alike = len(weights) > 0 and weights.stride(0) == 0
        return (y.mean() if alike else (weights * y).sum() / weights.sum()).reshape(1)

    def null(self, y: torch.Tensor, weights: torch.Tensor, offset: torch.Tensor | None = None) -> torch.Tensor:
        """The null model: the constant c (C,) that minimises Σ w φ(c + offset, y); where every fit begins.

        y, weights  (m,) float64
        offset      (m, C) float64, or None
        """
        c = self.start(self.target_mean(y, weights))
        if offset is None:
            return c
        return self._newton(c - weights @ offset / weights.sum(), y, weights, offset)

    def _newton(self, c: torch.Tensor, y: torch.Tensor, w: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        """Newton's method from c, each step halved until the loss does not rise."""

        def losses(c: torch.Tensor) -> torch.Tensor:
            return w * self.loss(offset + c, y)

        for _ in range(NEWTON_STEPS):
            _, slopes, h = cast(Curved, self.expand(offset + c, y, curved=True))
            hessian = (w @ h).diag() - (h.T @ (w[:, None] * h) if self.redundant else 0)
            step = torch.linalg.pinv(hessian, rtol=ROUNDING, hermitian=True) @ (w @ slopes)
            before = losses(c)
            most = float(before.sum()) + ROUNDING * float(before.abs().sum())
            while float(step.abs().max()) > 0 and not float(losses(c - step).sum()) <= most:
                step = torch.where(step.abs() > 1e-12, step / 2, 0.0)
            c = c - step
            if float(step.abs().max()) <= 1e-12 * (1 + float(c.abs().max())):
                break
        return c

    def hessian(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """∂²φ/∂z², shape (m, C, C)."""
        z = z.detach().requires_grad_()
        slopes = self.derivative(z, y)
        rows = [torch.autograd.grad(slopes[:, c].sum(), z, retain_graph=True)[0] for c in range(z.shape[1])]
        return torch.stack(rows, 1)

    def expand(self, z: torch.Tensor, y: torch.Tensor, *, curved: bool) -> Expansion:
        """φ (m,), ∂φ/∂z (m, C), and where it is `curved` h (m, C): ∂²φ/∂z² is diag(h), where outputs are redundant
        diag(h) − h hᵀ."""
        return self.loss(z, y), self.derivative(z, y), self.hessian_diagonal(z, y) if curved else None

    def hessian_diagonal(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """∂²φ/∂z_c², shape (m, C)."""
        return self.hessian(z, y).diagonal(dim1=1, dim2=2)

    def bend(self, z: torch.Tensor, y: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        """The function u → ∂²φ/∂z² u, (m, C) to (m, C)."""
        return partial(torch.einsum, "mcd,md->mc", self.hessian(z, y))

    def derivative_change(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """A bound on |φ'(z + t) − φ'(z)| over all |t| ≤ h, shape (m, C), which the analysis of precision needs.

        It may depend on z: a constant for all margins would be infinite for counts. Raises ValueError, as
        `derivative_remainder` does, for a family that does not state it.
        """
        raise self._unbounded()

    def derivative_remainder(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """A bound on |φ'(z + t) − φ'(z) − φ''(z) t| over all |t| ≤ h, shape (m, C)."""
        raise self._unbounded()

    def _unbounded(self) -> ValueError:
        return ValueError(f"the family {self.name!r} states no bounds of its derivatives, which the analysis needs")


def exp_tail(h: torch.Tensor) -> torch.Tensor:
    """e^h − 1 − h, not less than it: for small h by its series, h²/2 (1 + h/3 + …) ≤ h²/2 e^h."""
    return torch.where(h < 1e-3, h.square() / 2 * h.clamp(max=1.0).exp(), torch.expm1(h) - h)
