"""What rounding at one knob adds to margins, residuals and weights: the nine disturbances, and their table.

Each is given how far the quantities before it may have moved already, so that its bound holds for the numbers that are
really rounded and not only for those of the unrounded run: no term of second order is left out.
"""

import math
from itertools import pairwise

import torch
from torch.linalg import vector_norm

from laconic.glm.analysis.iteration import Trajectory
from laconic.glm.rows import ACCUMULATOR_COLUMNS
from laconic.kernels.formats import FORMATS, Format

SINGLE = FORMATS["fp32"]


def largest(fmt: Format) -> float:
    """The largest finite number of a format.

    >>> largest(FORMATS["fp16"]), largest(FORMATS["fp8-e4m3"])
    (65504.0, 448.0)
    """
    if fmt.dtype is not None:
        return float(torch.finfo(fmt.dtype).max)
    return (2 - 2.0 ** (1 - fmt.precision)) * 2.0**127


def half_ulp(size: torch.Tensor, fmt: Format) -> torch.Tensor:
    """A bound on |fl(a) − a| for every |a| ≤ `size` (float64, not negative): u 2^⌊log₂ size⌋.

    Below the smallest normal number 2^e the numbers lie evenly, and the bound is u 2^e; above the largest number it is
    infinite. A float64 value goes to a format shorter than float32 by way of float32, whose own half unit is added.

    >>> half_ulp(torch.tensor([1.0, 1.99, 1e6, 0.0], dtype=torch.float64), FORMATS["fp16"]).tolist()[2:]
    [inf, 0.0]
    """
    if fmt.name == "fp64":
        return torch.zeros_like(size)
    spacing = _half(size, fmt)
    if fmt.precision < SINGLE.precision:
        spacing = spacing + _half(size, SINGLE)
    spacing = torch.where(size > largest(fmt), torch.inf, spacing)
    return torch.where(size == 0, 0.0, spacing)


def _half(size: torch.Tensor, fmt: Format) -> torch.Tensor:
    smallest = float(torch.finfo(fmt.storage).smallest_normal)
    power = torch.frexp(size.clamp(min=smallest))[1] - 1
    return torch.ldexp(torch.full_like(size, fmt.unit_roundoff), power)


def known(a: torch.Tensor, fmt: Format) -> torch.Tensor:
    """A bound on |fl(a) − a| for known numbers: 0 where a is a number of the format already.

    >>> known(torch.tensor([0.5, 0.1], dtype=torch.float64), FORMATS["bf16"]).tolist()[0]
    0.0
    """
    return torch.where(fmt.round(a) == a, 0.0, half_ulp(a.abs(), fmt))


def summed(parts: torch.Tensor, fmt: Format) -> torch.Tensor:
    """A bound on the error of a sum over ranks that is carried in a format, in whatever order it adds.

    Each of the P parts is rounded once, and then P − 1 additions round a partial sum, which is no larger than the sum
    of the positive parts or that of the negative ones.

    parts  (P, ...) of each rank
    """
    first = known(parts, fmt)
    error = first.sum(0)
    total = torch.maximum(parts.clamp(min=0).sum(0), (-parts).clamp(min=0).sum(0)) + error
    for _ in range(len(parts) - 1):
        step = half_ulp(total, fmt)
        error, total = error + step, total + step
    return error


class Disturbance:
    """What one knob in one format may add to the unrounded run `path`; a knob overrides what it disturbs."""

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
        """The norm of what batch j adds to the weights that later batches see; `moved` as above, its own included."""
        return 0.0

    def arrived(self, carry: torch.Tensor) -> float:
        """The norm at the end of all that was injected and of `update`, by the matrices that carry it; ∞ if unknown."""
        return float("inf")

    def update(self, moved: torch.Tensor) -> float:
        """The norm of what is added to the new weights themselves; `moved` is (k, C), of all batches."""
        return 0.0

    def _through(self, entries: torch.Tensor, j: int, moved: torch.Tensor) -> torch.Tensor:
        """A Gram matrix off by at most `entries`, times coefficients that may have moved."""
        kappa = self.path.decay(j).abs()[:, None]
        sizes = self.path.coefficients(j).abs() + kappa * moved
        return entries[self.sample.batch(j), : len(kappa)] @ sizes


def rank_margins(path: Trajectory) -> torch.Tensor:
    """Y_p x_p of every rank, (P, k, C)."""
    sample, cuts = path.sample, path.sample.column_cuts
    return torch.stack([sample.Y[:, a:b] @ sample.x[:, a:b].T for a, b in pairwise(cuts)])


def combined(p_error: torch.Tensor, products: torch.Tensor) -> float:
    """The largest ‖Yᵀ p‖ over |p| ≤ p_error, from Y Yᵀ."""
    return math.sqrt(float((p_error * (products.abs() @ p_error)).sum().clamp(min=0)))


class RowDisturbance(Disturbance):
    """Rows Y + δY in place of Y, |δY| ≤ B, for the knobs that round rows.

    Batch j then meets δY_j x, and leaves δY_jᵀ p_j in the weights that later batches see.
    """

    def __init__(self, path: Trajectory, fmt: Format) -> None:
        super().__init__(path, fmt)
        self.B, self.drift = known(self.sample.Y, fmt), 0.0
        self.left: list[torch.Tensor] = []
        self.cross = self.B @ self.sample.Y.abs().T

    def met(self, j: int) -> torch.Tensor:
        """The weights (C, n) that row errors of batch j are multiplied by."""
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

    def arrived(self, carry: torch.Tensor) -> float:
        return self._carried(carry, torch.zeros(len(carry), dtype=carry.dtype))

    def _carried(self, carry: torch.Tensor, taken_off: torch.Tensor) -> float:
        """The norm of what was left by each batch and carried to the end, less a share (s,) of it that is taken off."""
        n, total = self.B.shape[1], torch.zeros(carry.shape[1], dtype=carry.dtype)
        for phi, left, share in zip(carry, self.left, taken_off, strict=True):
            total += (phi[:, :n] - share * torch.eye(len(phi), n, dtype=phi.dtype)).abs() @ left[0]
        return float(total.norm())


class Data(RowDisturbance):
    """The stored matrix."""


class GramOperand(RowDisturbance):
    """Rows in the Gram matrix alone.

    Margins see what the weights gained in this block by rounded rows; the weights themselves gain by the rows as they
    are, so that what was left in them is taken off again at the end.
    """

    def met(self, j: int) -> torch.Tensor:
        return self.path.weights[j] - self.path.shrink[j] * self.path.weights[0]

    def update(self, moved: torch.Tensor) -> float:
        return self.drift

    def arrived(self, carry: torch.Tensor) -> float:
        """Nearly nothing where steps are small: what is taken off has shrunk like the weights."""
        rest = torch.flip(torch.cumprod(torch.flip(self.path.rho, [0]), 0), [0])
        return self._carried(carry, torch.cat([rest[1:], rest.new_ones(1)]))


class GramEntries(Disturbance):
    """The operands' errors by entries of the Gram matrix: the smaller bound where steps are so small that later batches
    hardly see what earlier ones did."""

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


class GramAccumulate(Disturbance):
    """Each rank's accumulator, rounded after every few columns (once, of a sparse matrix).

    `path` is that of operands in the same format: an accumulator is never shorter than what it adds.
    """

    def __init__(self, path: Trajectory, fmt: Format) -> None:
        super().__init__(path, fmt)
        rounded, cuts = fmt.round(self.sample.Y), self.sample.column_cuts
        self.entries = torch.zeros_like(path.gram)
        for a, b in pairwise(cuts):
            step = max(1, b - a) if self.sample.sparse else ACCUMULATOR_COLUMNS
            total, error = torch.zeros_like(path.gram), torch.zeros_like(path.gram)
            for first in range(a, b, step):
                part = rounded[:, first : min(first + step, b)]
                total = total + part @ part.T
                exact = torch.where(error == 0, known(total, fmt), torch.inf)
                error = error + torch.minimum(exact, half_ulp(total.abs() + error, fmt))
            self.entries += error

    def margin(self, j: int, before: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        return self._through(self.entries, j, moved)


class GramWire(Disturbance):
    """The AllReduce of margins and Gram matrix: nothing on one rank."""

    def __init__(self, path: Trajectory, fmt: Format) -> None:
        super().__init__(path, fmt)
        self.entries, self.error = torch.zeros_like(path.gram), torch.zeros_like(path.v)
        cuts = self.sample.column_cuts
        if len(cuts) > 2:
            blocks = [self.sample.Y[:, a:b] for a, b in pairwise(cuts)]
            self.entries = summed(torch.stack([block @ block.T for block in blocks]), fmt)
            self.error = summed(rank_margins(path), fmt)

    def margin(self, j: int, before: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        own = self.path.shrink[j].abs() * self.error[self.sample.batch(j)]
        return own + self._through(self.entries, j, moved)


class Margin(Disturbance):
    """The margins v: every rank's part, and where there are several their sum."""

    def __init__(self, path: Trajectory, fmt: Format) -> None:
        super().__init__(path, fmt)
        parts = rank_margins(path)
        first = known(parts, fmt).sum(0)
        again = half_ulp(path.v.abs() + first, fmt) if len(parts) > 1 else torch.zeros_like(first)
        self.error = first + again

    def margin(self, j: int, before: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        return self.path.shrink[j].abs() * self.error[self.sample.batch(j)]


class Recurrence(Disturbance):
    """G, the corrected margins, and the coefficients p; with a penalty, p is rounded again after every batch.

    Margins and update use the same rounded p, so that its error is one of the weights.
    """

    def __init__(self, path: Trajectory, fmt: Format) -> None:
        super().__init__(path, fmt)
        self.entries = known(path.gram, fmt)
        self.p_error = torch.zeros_like(path.v)
        self.linear = path.shrink[self.sample.batch_of_row][:, None] * path.v
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
        """A coefficient that shrinks by ηλ p is rounded by no more than that, since it could have stayed where it was,
        and by half a unit twice on its way through float32.
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


class Residual(Disturbance):
    """The residual's four roundings: the margin, the derivative at it, the weight, and their product."""

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


class Update(Disturbance):
    """The operands of Yᵀ p."""

    def update(self, moved: torch.Tensor) -> float:
        p = self.path.coefficients(self.sample.n_batches)
        p_error, B = known(p, self.fmt), known(self.sample.Y, self.fmt)
        return float(((p.abs() + p_error).T @ B).norm()) + combined(p_error, self.path.products)


class MasterWeights(Disturbance):
    """The new weights x' themselves."""

    def update(self, moved: torch.Tensor) -> float:
        idle = self.path.shrink[-1] * self.sample.idle
        return float(known(torch.cat([self.path.weights[-1], idle], 1), self.fmt).norm())


DISTURBANCES: dict[str, tuple[type[Disturbance], ...]] = {
    "data": (Data,),
    "margin": (Margin,),
    "gram_operand": (GramOperand, GramEntries),
    "gram_accumulate": (GramAccumulate,),
    "gram_wire": (GramWire,),
    "recurrence": (Recurrence,),
    "residual": (Residual,),
    "update": (Update,),
    "weights": (MasterWeights,),
}
"""By knob, in the order of `laconic.glm.KNOBS` and of docs/precision.md; where there are two, both bounds hold."""
