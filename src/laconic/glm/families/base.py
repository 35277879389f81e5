"""The interface of a family: the loss of a margin, and what follows from it."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from laconic.kernels.links import LinkCode


class Family(ABC):
    """φ(z, y) for a margin z and a target y, per row.

    Margins have shape (m, C), one column an output; targets have shape (m,). A new family is one subclass in one file:
    the solvers ask it for nothing else, and run it in plain torch until a kernel knows its `kernel_code`.

    kernel_code  by which the compiled kernels know the family; None to run in plain torch
    """

    name: ClassVar[str]
    kernel_code: ClassVar[LinkCode | None] = None

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

    @abstractmethod
    def check(self, y: torch.Tensor) -> None:
        """Raise `ValueError` naming the first target outside the family's domain."""

    @abstractmethod
    def curvature(self, y: torch.Tensor) -> float:
        """A bound on ∂²φ/∂z² (its largest eigenvalue), or where there is none its size where it matters: for counts,
        where the mean is as large as the largest target."""

    @abstractmethod
    def start(self, mean: torch.Tensor) -> torch.Tensor:
        """The link: the margin (C,) of a model without features, for a mean target (C,)."""

    def hessian(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """∂²φ/∂z², shape (m, C, C). This and the two bounds below are what the analysis of precision needs.

        Raises ValueError, as they do, for a family that does not state it.
        """
        raise self._unbounded()

    def derivative_change(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """A bound on |φ'(z + t) − φ'(z)| over all |t| ≤ h, shape (m, C).

        It may depend on z: a constant for all margins would be infinite for counts.
        """
        raise self._unbounded()

    def derivative_remainder(self, z: torch.Tensor, y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """A bound on |φ'(z + t) − φ'(z) − φ''(z) t| over all |t| ≤ h, shape (m, C)."""
        raise self._unbounded()

    def _unbounded(self) -> ValueError:
        return ValueError(f"the family {self.name!r} states no bounds of its derivatives, which the analysis needs")

    def n_outputs(self, y: torch.Tensor) -> int:
        """C, the columns of a margin."""
        return 1

    def target_mean(self, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The weighted mean target, shape (C,)."""
        return ((weights * y).sum() / weights.sum()).reshape(1)

    def is_finite(self, y: torch.Tensor) -> None:
        """Raise `ValueError` where a target is not a number."""
        if y.is_floating_point():
            _refuse(~torch.isfinite(y), y, f"{self.name}: targets must be finite")


def exp_tail(h: torch.Tensor) -> torch.Tensor:
    """e^h − 1 − h for h ≥ 0, rounded up: for small h by its series, h²/2 (1 + h/3 + …) ≤ h²/2 e^h."""
    return torch.where(h < 1e-3, h.square() / 2 * h.clamp(max=1.0).exp(), torch.expm1(h) - h)


def _refuse(bad: torch.Tensor, y: torch.Tensor, rule: str) -> None:
    if bool(bad.any()):
        row = int(bad.nonzero()[0, 0])
        raise ValueError(f"{rule}, but row {row} has y = {y[row].item():g}")
