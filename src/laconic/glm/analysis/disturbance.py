"""What a knob adds to margins, residuals and weights: the interface of the nine local disturbances.

Each is told how far the quantities before it may have moved already, so that its bound holds for the numbers that are
really rounded and not only for those of the unrounded run: no term of second order is left out.
"""

import math
from itertools import pairwise

import torch

from laconic.glm.analysis.trajectory import Trajectory
from laconic.kernels.formats import Format


class Disturbance:
    """Of one knob in one format; a knob overrides what it disturbs.

    path  the unrounded run
    """

    def __init__(self, path: Trajectory, fmt: Format) -> None:
        self.path, self.fmt, self.sample = path, fmt, path.sample

    def margin(self, j: int, before: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        """ζ of batch j, (b, C).

        before  (b, C) how far its margins may have moved before this
        moved   (first, C) how far the residuals of the batches before may have
        """
        return torch.zeros_like(before)

    def residual(self, j: int, before: torch.Tensor) -> torch.Tensor:
        """ρ of batch j, (b, C); `before` as above, what the knob itself did to the margins included."""
        return torch.zeros_like(before)

    def inject(self, j: int, moved: torch.Tensor) -> float:
        """‖·‖ of what batch j adds to the weights that later batches see; `moved` as above, its own included."""
        return 0.0

    def arrived(self, carry: torch.Tensor) -> float:
        """‖·‖ of what all that was injected comes to at the end, `update` included, by the matrices that carry it."""
        return float("inf")

    def update(self, moved: torch.Tensor) -> float:
        """‖·‖ of what is added to the new weights themselves; `moved` is (k, C), of all batches."""
        return 0.0

    def rounded(self) -> tuple[torch.Tensor, ...]:
        """What the knob rounds, without rounding: a format whose range they leave has no bound."""
        return ()

    def _through(self, entries: torch.Tensor, j: int, moved: torch.Tensor) -> torch.Tensor:
        """A Gram matrix off by at most `entries`, times coefficients that may have moved."""
        kappa = self.path.decay(j).abs()[:, None]
        first = len(kappa)
        sizes = self.path.coefficients(j).abs() + kappa * moved
        return entries[self.sample.batch(j), :first] @ sizes


def rank_margins(path: Trajectory) -> torch.Tensor:
    """Y_p x_p of every rank, (P, k, C)."""
    sample, cuts = path.sample, path.sample.column_cuts
    return torch.stack([sample.Y[:, a:b] @ sample.x[:, a:b].T for a, b in pairwise(cuts)])


def combined(p_error: torch.Tensor, products: torch.Tensor) -> float:
    """The largest ‖Yᵀ p‖ over |p| ≤ p_error, from Y Yᵀ."""
    return math.sqrt(float((p_error * (products.abs() @ p_error)).sum().clamp(min=0)))
