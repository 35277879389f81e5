"""Knobs that round rows of the matrix: the stored data, and the operands of the Gram product."""

import torch
from torch.linalg import vector_norm

from laconic.glm.analysis.disturbance import Disturbance
from laconic.glm.analysis.rounding import known
from laconic.glm.analysis.trajectory import Trajectory
from laconic.kernels.formats import Format


class Rows(Disturbance):
    """Rows Y + δY in place of Y, |δY| ≤ B: shared by the knobs that round rows.

    Batch j then meets δY_j x, and leaves δY_jᵀ p_j behind in the weights that later batches see.
    """

    def __init__(self, path: Trajectory, fmt: Format) -> None:
        super().__init__(path, fmt)
        self.B, self.drift = known(self.sample.Y, fmt), 0.0
        self.left: list[torch.Tensor] = []
        self.cross = self.B @ self.sample.Y.abs().T

    def met(self, j: int) -> torch.Tensor:
        """The weights that row errors of batch j are multiplied by, (C, n)."""
        return self.path.weights[j]

    def margin(self, j: int, before: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        J, kappa = self.sample.batch(j), self.path.decay(j).abs()[:, None]
        second: torch.Tensor = self.cross[J, : len(kappa)] @ (kappa * moved)
        second = second + self.drift * vector_norm(self.B[J], dim=1, keepdim=True)
        return second + self.B[J] @ self.met(j).abs().T

    def inject(self, j: int, moved: torch.Tensor) -> float:
        J = self.sample.batch(j)
        p = self.path.c[J, None] * (self.path.r[J].abs() + moved[J])
        self.left.append(p.T @ self.B[J])
        added = float(self.left[-1].norm())
        self.drift = float(self.path.rho[j].abs()) * self.drift + added
        return added

    def rounded(self) -> tuple[torch.Tensor, ...]:
        return (self.sample.Y,)


class Data(Rows):
    """The stored matrix."""

    def arrived(self, carry: torch.Tensor) -> float:
        n = self.B.shape[1]
        total = torch.zeros(carry.shape[1], dtype=carry.dtype)
        for phi, left in zip(carry, self.left, strict=True):
            total += phi[:, :n].abs() @ left[0]
        return float(total.norm())


class GramOperand(Rows):
    """Rows in the Gram matrix alone: margins see what the weights gained in this block by rounded rows, and the weights
    themselves gain by the rows as they are, so that what was left behind has to be taken off again at the end."""

    def met(self, j: int) -> torch.Tensor:
        return self.path.weights[j] - self.path.shrink[j] * self.path.weights[0]

    def update(self, moved: torch.Tensor) -> float:
        return self.drift

    def arrived(self, carry: torch.Tensor) -> float:
        """Of each batch what was carried, less what is taken off: nearly nothing where steps are small."""
        n, total = self.B.shape[1], torch.zeros(carry.shape[1], dtype=carry.dtype)
        rest = torch.flip(torch.cumprod(torch.flip(self.path.rho, [0]), 0), [0])
        later = torch.cat([rest[1:], rest.new_ones(1)])
        for phi, left, shrink in zip(carry, self.left, later, strict=True):
            total += (phi[:, :n] - shrink * torch.eye(len(phi), n, dtype=phi.dtype)).abs() @ left[0]
        return float(total.norm())


class GramEntries(Disturbance):
    """The same by entries of the Gram matrix: the smaller bound where steps are so small that later batches hardly see
    what earlier ones did."""

    def __init__(self, path: Trajectory, fmt: Format) -> None:
        super().__init__(path, fmt)
        self.Y, self.B = self.sample.Y.abs(), known(self.sample.Y, fmt)
        cross = self.B @ self.Y.T
        self.entries = cross + cross.T + self.B @ self.B.T

    def margin(self, j: int, before: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        J, p = self.sample.batch(j), self.path.coefficients(j).abs()
        gained = (self.path.weights[j] - self.path.shrink[j] * self.path.weights[0]).abs()
        left = p.T @ self.B[: len(p)]
        second = self.entries[J, : len(p)] @ (self.path.decay(j).abs()[:, None] * moved)
        return self.B[J] @ gained.T + (self.Y[J] + self.B[J]) @ left.T + second

    def rounded(self) -> tuple[torch.Tensor, ...]:
        return (self.sample.Y,)
