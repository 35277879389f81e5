"""Knobs that round vectors: margins, the recurrence, residuals, the update and the weights."""

import torch

from laconic.glm.analysis.disturbance import Disturbance, combined, rank_margins
from laconic.glm.analysis.rounding import SINGLE, half_ulp, known
from laconic.glm.analysis.trajectory import Trajectory
from laconic.kernels.formats import Format


class Margin(Disturbance):
    """v: every rank's part, and where there are several their sum."""

    def __init__(self, path: Trajectory, fmt: Format) -> None:
        super().__init__(path, fmt)
        parts = rank_margins(path)
        first = known(parts, fmt).sum(0)
        again = half_ulp(path.v.abs() + first, fmt) if len(parts) > 1 else torch.zeros_like(first)
        self.error = first + again

    def margin(self, j: int, before: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        return self.path.shrink[j].abs() * self.error[self.sample.batch(j)]

    def rounded(self) -> tuple[torch.Tensor, ...]:
        return (rank_margins(self.path), self.path.v)


class Recurrence(Disturbance):
    """G, the corrected margins, and the coefficients p: these anew after every batch, if there is a penalty.

    Margins and update use the same rounded p, so that its error is one of the weights.
    """

    def __init__(self, path: Trajectory, fmt: Format) -> None:
        super().__init__(path, fmt)
        self.entries = known(path.gram, fmt)
        self.p_error = torch.zeros_like(path.v)
        self.linear = path.shrink[:-1][self._batches()][:, None] * path.v
        for j in range(1, self.sample.n_batches):
            J, p = self.sample.batch(j), path.coefficients(j)
            self.linear[J] += path.gram[J, : len(p)] @ p

    def margin(self, j: int, before: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        J, first = self.sample.batch(j), int(self.sample.cuts[j])
        added = self._through(self.entries, j, moved) + self.entries[J, :first] @ self.p_error[:first]
        own = self.path.c[:first, None] * moved
        shifted = own.sum(0) if self.sample.fitted else torch.zeros_like(before[0])
        return added + half_ulp(self.linear[J].abs() + before + added + shifted, self.fmt)

    def inject(self, j: int, moved: torch.Tensor) -> float:
        """A coefficient that shrinks by ηλ p is hardly moved by more than that: it could have stayed where it was.

        "Hardly": on its way through float32 it may be moved by half a unit there, twice.
        """
        J, first, last = self.sample.batch(j), int(self.sample.cuts[j]), int(self.sample.cuts[j + 1])
        sizes = self.path.coefficients(j + 1).abs() + self.path.decay(j + 1).abs()[:, None] * moved[:last]
        step = half_ulp(sizes, self.fmt)
        if first:
            shrunk = self.path.rho[j].abs() * self.p_error[:first]
            size, rho = sizes[:first] + shrunk, self.path.rho[j]
            stay = (1 - rho).abs() * (size / rho.abs().clamp(min=1e-300)) + 2 * half_ulp(size, SINGLE)
            step[:first] = torch.minimum(half_ulp(size, self.fmt), stay)
            self.p_error[:first] = shrunk + step[:first]
        self.p_error[J] = step[J]
        return combined(step, self.path.products[:last, :last])

    def _batches(self) -> torch.Tensor:
        sizes = torch.from_numpy(self.sample.cuts).diff()
        return torch.repeat_interleave(torch.arange(len(sizes)), sizes)

    def rounded(self) -> tuple[torch.Tensor, ...]:
        return (self.path.gram, self.linear, self.path.coefficients(self.sample.n_batches))


class Residual(Disturbance):
    """The margin that the link is given, its derivative, the weight, and their product: four roundings."""

    def residual(self, j: int, before: torch.Tensor) -> torch.Tensor:
        J, family, fmt = self.sample.batch(j), self.sample.family, self.fmt
        y, z, slope, w = self.sample.y[J], self.path.z[J], self.path.slope[J].abs(), self.sample.w[J, None]
        start = family.derivative_change(z, y, before)
        argument = before + half_ulp(z.abs() + before, fmt)
        off = family.derivative_change(z, y, argument) + start
        off = torch.minimum(off, self._near(z, y, before, argument - before))
        size = slope + start + off
        off = off + half_ulp(size, fmt)
        w_error = known(w, fmt)
        product = w * off + w_error * (slope + start + off)
        off = product + half_ulp(w * (slope + start) + product, fmt)
        return torch.where(w != 0, off, 0.0)

    def _near(self, z: torch.Tensor, y: torch.Tensor, before: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """|φ'(a + t) − φ'(a)| for a within `before` of z and |t| ≤ step, by the slopes at z."""
        family = self.sample.family
        slopes = family.hessian(z, y).abs() @ step[:, :, None]
        rest = family.derivative_remainder
        return slopes[:, :, 0] + rest(z, y, before + step) + rest(z, y, before)

    def rounded(self) -> tuple[torch.Tensor, ...]:
        return (self.path.z, self.path.slope, self.sample.w, self.path.r)


class Update(Disturbance):
    """The operands of Yᵀ p."""

    def update(self, moved: torch.Tensor) -> float:
        p = self.path.coefficients(self.sample.n_batches)
        p_error, B = known(p, self.fmt), known(self.sample.Y, self.fmt)
        return float(((p.abs() + p_error).T @ B).norm()) + combined(p_error, self.path.products)

    def rounded(self) -> tuple[torch.Tensor, ...]:
        return (self.sample.Y, self.path.coefficients(self.sample.n_batches))


class Weights(Disturbance):
    """x' itself, all of it."""

    def update(self, moved: torch.Tensor) -> float:
        idle = self.path.shrink[-1] * self.sample.idle
        return float(known(torch.cat([self.path.weights[-1], idle], 1), self.fmt).norm())

    def rounded(self) -> tuple[torch.Tensor, ...]:
        return (self.path.weights[-1],)
