"""Newton's method: L-BFGS from afar, then a few steps by Cholesky, or one by `conjugate_gradients`."""

import math
from collections.abc import Callable
from typing import cast

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.glm.columns import DenseColumns
from laconic.glm.options import DIRECT, FitOptions
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire, gather_array, gather_columns
from laconic.glm.solvers.conjugate_gradients import diagonal, newton_step, preconditioner
from laconic.glm.solvers.objective import SMALL_TARGET, Bent, Objective, Point, Requests, serve_alone
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
CLOSE, OFTEN, MOVED, OUTLYING_PRODUCTS, OUTLYING_STEPS = 10.0, 8, 0.1, 2**30, 50
"""From ten times the target on, and once in every eighth epoch, columns are minimised over where a step changes the
margin of some row by more than 0.1, or in proportion to the root of what is left, since its curvature may then be
another: as many columns as have a Hessian of so many products, in so many steps."""
LASSO_ROUNDS, LASSO_SWEEPS, LASSO_SHARE = 200, 100, 1e-9
"""With absolute values in F: rounds of a quadratic for fixed signs and of so many sweeps over the weights, until sweeps
gain less than this share of all that was gained."""
EPSILON = float(np.finfo(float).eps)
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
    precondition, _ = yield from preconditioner(objective, point, 1.0)
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
    theta, direct = objective.theta(state), objective.direct
    factor: Factor | torch.Tensor | None = None
    eager, curved = objective.eager and hessian is None, direct and hessian is None
    if known is not None and torch.equal(known.theta, theta) and (known.hessian is not None or not curved):
        point = known
    else:
        point = yield from objective.at(theta, curved=curved, margins=not direct)
    hessian = point.hessian if hessian is None else hessian
    gap, before = float("inf"), float("inf")
    for k in range(1 if not direct else STEPS if eager else QUASI_STEPS):
        try:
            factor = factor if hessian is None else hessian if objective.l1 is not None else Factor(hessian)
            step, gap = yield from _step(objective, point, factor, target)
        except FloatingPointError:  # means overflow: there is no step from here
            break
        left = relative(objective, point, gap)
        near = SMALL_TARGET < target >= left / (1.0 if direct else CLOSE)
        if near or (k == 0 and state.epoch % OFTEN == OFTEN - 1):
            step, gap = yield from confirmed(objective, point, step, gap, target * (objective.null - point.value))
            left = relative(objective, point, gap)
        if gap > GOOD_STEP * before or left <= target:
            break
        lower = yield from _search(objective, point, step, curved=eager and left > NEAR, margins=not direct)
        if lower is None:
            break
        hessian, before = lower.hessian, gap if lower.hessian is None else float("inf")
        if isinstance(factor, Factor) and hessian is None:
            factor.learn(lower.theta - point.theta, lower.slope - point.slope)
        point = lower
    objective.put(point.theta, state)
    return point, relative(objective, point, gap)


def _step(
    objective: Objective, point: Point, factor: Factor | torch.Tensor | None, target: float
) -> Requests[tuple[torch.Tensor, float]]:
    """Newton's step and decrement, by the Hessian in Cholesky's form, or by products with it where there is none. With
    absolute values in F by the Hessian itself: they are added to the quadratic model that the step minimises."""
    if isinstance(factor, torch.Tensor):
        l1, smooth = cast(torch.Tensor, objective.l1), cast(torch.Tensor, point.smooth)
        x, gap = _lasso(factor, smooth, point.theta, l1.expand_as(smooth), EPSILON * abs(point.value))
        return x - point.theta, gap
    if factor is None:
        return (yield from newton_step(objective, point, target * max(0.0, objective.null - point.value)))
    step = -factor.descend(point.slope.reshape(-1), len(factor.pairs)).view(point.slope.shape)
    if objective.family.redundant:  # only rounding errors add a constant to all classes
        step -= step.mean(0) * (objective.l2 == 0)
    return step, -objective.dot(step, point.slope) / 2


def _lasso(
    hessian: torch.Tensor, g: torch.Tensor, x: torch.Tensor, weights: torch.Tensor, least: float
) -> tuple[torch.Tensor, float]:
    """The z that minimises gᵀ(z − x) + ½ (z − x)ᵀ H (z − x) + Σ l1 |z|, and by how much; infinite if it was not found.

    Coordinate descent finds the signs, and then the minimum for these signs is that of a quadratic: it need not follow
    columns that nearly depend on each other, which would take many sweeps. A gain of `least` counts as none.
    """
    from laconic.kernels.cpu import lasso  # Numba is loaded where it is first needed

    H = hessian.contiguous().numpy()
    z, r, l1 = (one.reshape(-1).clone().numpy() for one in (x, g, weights))
    gained = lasso.sweep(H, r, z, l1, LASSO_SWEEPS)
    for _ in range(LASSO_ROUNDS):
        blocked = True
        while blocked:  # by a weight that would change its sign, and is 0 from here on
            free = np.flatnonzero((z != 0) | (l1 == 0))
            at, rows = z[free], H[free]
            slope = r[free] + l1[free] * np.sign(at)
            step = Factor(torch.from_numpy(rows[:, free])).solve(torch.from_numpy(slope)).numpy()
            change = step @ rows
            down, curvature = float(slope @ step), float(step @ change[free])
            to_zero = np.full(len(free), math.inf)
            np.divide(at, step, out=to_zero, where=(l1[free] > 0) & (at * step > 0))
            length = min(1.0, float(to_zero.min(initial=math.inf)))
            blocked = bool((to_zero <= length).any())
            z[free] = np.where(to_zero <= length, 0.0, at - length * step)
            r -= length * change
            gained += length * (down - length * curvature / 2)
        gained += (gain := lasso.sweep(H, r, z, l1, LASSO_SWEEPS))
        if gain <= max(LASSO_SHARE * gained, least):
            return torch.from_numpy(z).view(x.shape), gained
    return torch.from_numpy(z).view(x.shape), math.inf


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
    if not math.isfinite(point.value):
        return LARGEST_GAP
    floor = 8 * torch.finfo(objective.dtype).eps * (abs(point.value) + abs(objective.null))
    gained = objective.null - point.value
    return 0.0 if gap <= floor else min(gap / gained, LARGEST_GAP) if gained > 0 else LARGEST_GAP


def confirmed(
    F: Objective, point: Point, step: torch.Tensor, gap: float, enough: float
) -> Requests[tuple[torch.Tensor, float]]:
    """A step and a decrement that would mean convergence, unless they rest on curvature that is about to vanish.

    An outlier, a row with a huge value, may have nearly all of the curvature along that value's weights. Where it is
    nearly fitted, its curvature vanishes after a tiny step, and hides until then how far all other rows would move
    these weights. So F is minimised over the weights of columns with outliers whose margins a step changes. If F falls
    by more than `enough` and the decrement, that is the step, and what is gained the decrement. Not with teams.

    enough  decrement of a point that is near the minimum
    """
    if F.family.quadratic or F.l1 is not None or not gap or F.wire.comm.peers.size > 1:
        return step, gap
    outliers, reach = F.outliers(), step.abs()
    if not any(gather_array(outliers.any().cpu().numpy(), F.wire.comm)):
        return step, gap
    if not F.direct:  # conjugate gradients may have left out what matters here
        reach = torch.maximum(reach, point.slope.abs() / (yield from diagonal(F, point)))
    far, moved = (reach.amax(0) * outliers).cpu(), MOVED * min(max(gap / (enough or gap), 1.0), CLOSE) ** 0.5
    size = min(DIRECT, math.isqrt(int(OUTLYING_PRODUCTS / F.m)))
    most = max(0, (size // len(step) - 1) // F.wire.comm.size)
    index = torch.argsort(far, descending=True, stable=True)[: min(most, int((far > moved).sum()))]
    if not any(gather_array(np.array(len(index)), F.wire.comm)):
        return step, gap
    if not len(point.z):
        point = yield from F.at(point.theta)
    part, start, own = _of_columns(F, point, index)
    change, gain = serve_alone(_minimised(part, start))
    if gain <= max(gap, enough):
        return step, gap
    trial = torch.zeros_like(step)
    trial[:, index], trial[:, -1] = change[:, own].to(trial), change[:, -1].to(trial)
    return trial, gain


def _of_columns(F: Objective, point: Point, index: torch.Tensor) -> tuple[Objective, torch.Tensor, slice]:
    """F as a function of the intercept and the weights of some columns of each rank, the same on all ranks; where these
    stand; and the places of this rank's.

    index  of this rank's columns
    """
    comm, units = F.wire.comm, torch.zeros(len(index), F.n, dtype=F.dtype, device=point.theta.device)
    units[torch.arange(len(index)), index] = 1
    counts = [int(n) for n in gather_array(np.array(len(index)), comm)]
    first = sum(counts[: comm.rank])
    columns = F.columns.margins(units, F.problem.rows), point.theta[:, index], F.l2[None, index]
    A, x, l2 = (gather_columns(t.double(), first, sum(counts), comm) for t in columns)
    z, b, y, w, of_intercept = (t.double().cpu() for t in (point.z, point.theta[:, -1:], F.y, F.w, F.l2[-1:]))
    weights = None if F.problem.weights is None else w
    problem = Problem(DenseColumns(A), F.family, y, weights, z - A @ x.T - b.T)
    problem.known_null.append(b[:, 0])  # any will do: nobody asks for the gain over it
    part = Objective(problem, FitOptions(recipe="fp64", fit_intercept=F.fit_intercept), Wire(Communicator()))
    part.l2 = torch.cat([l2[0], of_intercept])
    return part, torch.cat([x, b], 1), slice(first, first + len(index))


def _minimised(F: Objective, theta: torch.Tensor) -> Requests[tuple[torch.Tensor, float]]:
    """What to add to θ, by Newton's steps until one changes no margin by much, and what F falls by."""
    start = lower = yield from F.at(theta, curved=True, margins=False)
    for _ in range(OUTLYING_STEPS):
        step, _ = yield from _step(F, lower, Factor(cast(torch.Tensor, lower.hessian)), 0.0)
        if float((F.columns.margins(step[:, :-1]) + step[:, -1]).abs().max()) <= MOVED:
            break
        point = yield from _search(F, lower, step, curved=False, margins=False)
        if point is None:
            break
        lower = yield from F.at(point.theta, curved=True, margins=False)
    return lower.theta - start.theta, start.value - lower.value
