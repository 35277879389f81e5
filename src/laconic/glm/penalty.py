"""What is added to the loss to keep the weights small."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Penalty:
    """α ((1 − l1_ratio) ‖x‖² / 2 + l1_ratio ‖x‖₁); the intercept is not penalised.

    The square acts in every iteration. The absolute value acts once per outer iteration of CA-SGD, with the step sizes
    of that iteration summed: with s > 1 and l1_ratio > 0 the iterates depend on s.
    """

    alpha: float = 1e-4
    l1_ratio: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < float("inf"):
            raise ValueError(f"alpha must be finite and not negative, got {self.alpha}")
        if not 0 <= self.l1_ratio <= 1:
            raise ValueError(f"l1_ratio must lie between 0 and 1, got {self.l1_ratio}")

    @property
    def l2(self) -> float:
        """λ of (λ/2) ‖x‖²."""
        return self.alpha * (1 - self.l1_ratio)

    @property
    def l1(self) -> float:
        """Factor of ‖x‖₁."""
        return self.alpha * self.l1_ratio

    def value(self, x: torch.Tensor) -> float:
        """The penalty of (a rank's part of) the weights."""
        x = x.double()
        return float(self.l2 / 2 * x.square().sum() + self.l1 * x.abs().sum())

    def shrink(self, x: torch.Tensor, step: float) -> torch.Tensor:
        """The proximal step of the absolute values: towards zero by l1 · step, and not past it."""
        if self.l1 == 0:
            return x
        return torch.sign(x) * (x.abs() - self.l1 * step).clamp(min=0)
