"""Newton's method: L-BFGS from afar, then a few steps by Cholesky, or one by `conjugate_gradients`."""

import math
from collections.abc import Callable

import torch

from laconic.glm.solvers.conjugate_gradients import bends, confirmed, newton_step, preconditioner
from laconic.glm.solvers.objective import SMALL_TARGET, Bent, Objective, Point, Requests
from laconic.glm.solvers.state import State

STEPS, QUASI_STEPS, GOOD_STEP, NEAR = 5, 16, 1.0, 1e-8
"""Steps per epoch: 5, where each has a Hessian of its own until so little is left to gain; else 16, with one that
learns from the steps, while they leave no more than this share of the gap."""
HALVINGS = 40
LBFGS_STEPS, LBFGS_PAIRS, LBFGS_GAIN = 64, 10, 0.1
"""Most steps by L-BFGS, and pairs that it remembers. It ends where a step gains less than this share of the target,
relative to all that was gained; before a Hessian is formed, also after as many steps as it has pairs."""
LEAST_SHARE = 0.05
"""Of a step that went too far, that is tried next."""
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


def descend(objective: Objective, theta: torch.Tensor, tell: Callable[[Point, float], object]) -> Requests[Point]:
    """Steps by L-BFGS (Liu & Nocedal, 1989) from θ on, a pass over the rows each, as long as they gain much.

    tell  called after each, with the point and how much of the way is done at least

    Far from the optimum, Newton's steps are no longer than these, and cost several passes each. The inverse Hessian is
    first taken for the preconditioner at θ, times what the last step showed of its size.
    """
    margins = not objective.direct
    point = start = yield from objective.at(theta)
    precondition, _ = yield from preconditioner(objective, point, bends(objective, point), 1.0)
    pairs: list[tuple[torch.Tensor, torch.Tensor, float]] = []
    most = LBFGS_PAIRS if objective.direct else LBFGS_STEPS
    for k in range(most):
        step = _two_loops(objective, point.slope, pairs, precondition)
        lower = yield from _search(objective, point, step, curved=False, margins=margins)
        if lower is None:
            break
        s, y = lower.theta - point.theta, lower.slope - point.slope
        if (sy := objective.dot(s, y)) > 0:
            pairs = [*pairs[1 - LBFGS_PAIRS :], (s, y, sy)]
        gain, point = point.value - lower.value, lower
        tell(point, (k + 1) / most)
        if gain <= LBFGS_GAIN * objective.target * (start.value - point.value):
            break
    return point


def _two_loops(
    objective: Objective, g: torch.Tensor, pairs: list[tuple[torch.Tensor, torch.Tensor, float]], precondition: Bent
) -> torch.Tensor:
    """−H⁻¹ g by what pairs tell of H; in place, since to take memory for many weights costs more than to add them."""
    dot, shares, h = objective.dot, list[float](), -g
    for s, y, sy in reversed(pairs):
        shares.append(dot(s, h) / sy)
        h.sub_(y, alpha=shares[-1])
    h.copy_(precondition(h))
    if pairs:
        _, y, sy = pairs[-1]
        h.mul_(sy / dot(y, precondition(y)))
    for (s, y, sy), share in zip(pairs, reversed(shares), strict=True):
        h.add_(s, alpha=share - dot(y, h) / sy)
    return h


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
        if SMALL_TARGET < target >= left:
            step, gap = yield from confirmed(objective, point, step, gap, target * (objective.null - point.value))
            left = relative(objective, point, gap)
        if gap > GOOD_STEP * before or left <= target:
            break
        lower = yield from _search(objective, point, step, curved=eager and left > NEAR, margins=not direct)
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
        return (yield from newton_step(objective, point, target * max(0.0, objective.null - point.value)))
    step = -factor.descend(point.slope.reshape(-1), len(factor.pairs)).view(point.slope.shape)
    if objective.family.redundant:  # only rounding errors add a constant to all classes
        step -= step.mean(0) * (objective.l2 == 0)
    return step, -objective.dot(step, point.slope) / 2


def _search(
    objective: Objective, point: Point, step: torch.Tensor, *, curved: bool, margins: bool
) -> Requests[Point | None]:
    """The first point on the way with a lower F, each at most half as far as the one before, where the slope there says
    so nearer; None where rounding hides the difference."""
    down = objective.dot(step, point.slope)
    for _ in range(HALVINGS):
        lower = yield from objective.at(objective.kept(point.theta + step), curved=curved, margins=margins)
        if lower.value <= point.value:
            return lower
        rise = objective.dot(step, lower.slope) - down
        share = -down / rise if rise > 0 and math.isfinite(rise) else 0.5
        share = min(max(share, LEAST_SHARE), 0.5)
        step, down = step * share, down * share
    return None


def relative(objective: Objective, point: Point, gap: float) -> float:
    """A decrement relative to what the fit has gained; 0 where it is less than rounding errors of F."""
    floor = 8 * torch.finfo(objective.dtype).eps * (abs(point.value) + abs(objective.null))
    gained = objective.null - point.value
    return 0.0 if gap <= floor else min(gap / gained, LARGEST_GAP) if gained > 0 else LARGEST_GAP
