"""Newton's method: a few steps by Cholesky, or one by conjugate gradients; see `objective`."""

import math

import torch

from laconic.glm.solvers.objective import Objective, Point, Requests
from laconic.glm.solvers.state import State

STEPS, QUASI_STEPS, GOOD_STEP, NEAR = 5, 16, 1.0, 1e-8
"""Steps per epoch: 5, where each has a Hessian of its own until so little is left to gain; else 16, with one that
learns from the steps, while they leave no more than this share of the gap."""
HALVINGS = 40
LARGEST_GAP = 1e9
"""What a relative decrement is taken for where nothing has been gained."""


class Factor:
    """A Hessian in Cholesky's form, scaled to a diagonal of ones, with as much of a ridge as it needs."""

    def __init__(self, hessian: torch.Tensor) -> None:
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        diagonal = hessian.diagonal()
        self.scale = torch.where(diagonal > 0, diagonal, 1.0).rsqrt()
        scaled, ridge = self.scale[:, None] * hessian * self.scale, 0.0
        for power in range(-12, 1, 2):
            scaled.diagonal().add_(10.0**power - ridge)
            ridge = 10.0**power
            self.L, info = torch.linalg.cholesky_ex(scaled)
            if not int(info) and math.isfinite(float(self.L.sum())):
                return
        raise FloatingPointError("the Hessian is not finite")

    def solve(self, g: torch.Tensor) -> torch.Tensor:
        """H⁻¹ g for g (k,) or (k, j)."""
        scale = self.scale[:, None]
        return (scale * torch.cholesky_solve(scale * g.view(len(scale), -1), self.L)).view(g.shape)

    def learn(self, step: torch.Tensor, change: torch.Tensor) -> None:
        """What a step changed the slope by: H times the step, nearly."""
        s, y = step.reshape(-1), change.reshape(-1)
        if float(s @ y) > 0:
            self.pairs.append((s, y))

    def descend(self, g: torch.Tensor, n_pairs: int) -> torch.Tensor:
        """H⁻¹ g for g (k,), corrected by the first so many pairs that were learned: BFGS (Nocedal, 1980)."""
        if n_pairs == 0:
            return self.solve(g)
        s, y = self.pairs[n_pairs - 1]
        share = (s @ g) / (s @ y)
        h = self.descend(g - share * y, n_pairs - 1)
        return h + (share - (y @ h) / (s @ y)) * s


def newton_epoch(
    objective: Objective, state: State, target: float, known: Point | None = None, hessian: torch.Tensor | None = None
) -> Requests[tuple[Point, float]]:
    """A few steps by Cholesky, or one by conjugate gradients; changes the state.

    known    where the epoch before ended, which need not be computed again where it has all that is needed
    hessian  of a part of the rows, which will do to begin with

    Returns where it ends, and the relative decrement ½ gᵀH⁻¹g / (F_null − F) that was measured last. A function of the
    weights alone, so that a fit that was stopped goes on as if it had not been.
    """
    theta, direct, factor = objective.theta(state), objective.direct, None
    eager, curved = objective.eager and hessian is None, direct and hessian is None
    if known is not None and torch.equal(known.theta, theta) and (known.hessian is not None or not curved):
        point = known
    else:
        point = yield from objective.at(theta, curved=curved, margins=not direct)
    hessian = point.hessian if hessian is None else hessian
    gap, before = float("inf"), float("inf")
    for _ in range(1 if not direct else STEPS if eager else QUASI_STEPS):
        factor = factor if hessian is None else Factor(hessian)
        step, gap = yield from _step(objective, point, factor, target)
        left = relative(objective, point, gap)
        if gap > GOOD_STEP * before or left <= target:
            break
        lower = yield from _search(objective, point, step, curved=eager and left > NEAR)
        if lower is None:
            break
        hessian, before = lower.hessian, gap if lower.hessian is None else float("inf")
        if factor is not None and hessian is None:
            factor.learn(lower.theta - point.theta, lower.slope - point.slope)
        point = lower
    objective.put(point.theta, state)
    return point, relative(objective, point, gap)


def _step(
    objective: Objective, point: Point, factor: Factor | None, target: float
) -> Requests[tuple[torch.Tensor, float]]:
    if factor is None:
        return (yield from objective.newton_step(point, target * max(0.0, objective.null - point.value)))
    step = -factor.descend(point.slope.reshape(-1), len(factor.pairs)).view(point.slope.shape)
    if objective.family.redundant:  # only rounding errors add a constant to all classes
        step -= step.mean(0) * (objective.l2 == 0)
    return step, -objective.dot(step, point.slope) / 2


def _search(objective: Objective, point: Point, step: torch.Tensor, *, curved: bool) -> Requests[Point | None]:
    """The first point on the way, halved and halved again, with a lower F; None where rounding hides the difference."""
    for _ in range(HALVINGS):
        lower = yield from objective.at(objective.kept(point.theta + step), curved=curved, margins=not objective.direct)
        if lower.value <= point.value:
            return lower
        step = step / 2
    return None


def relative(objective: Objective, point: Point, gap: float) -> float:
    """A decrement relative to what the fit has gained; 0 where it is less than rounding errors of F."""
    floor = 8 * torch.finfo(objective.dtype).eps * (abs(point.value) + abs(objective.null))
    gained = objective.null - point.value
    return 0.0 if gap <= floor else min(gap / gained, LARGEST_GAP) if gained > 0 else LARGEST_GAP
