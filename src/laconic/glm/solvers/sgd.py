"""SGD over column blocks, one AllReduce per iteration: the specification of CA-SGD's iterates."""

import torch

from laconic.glm.problem import Problem
from laconic.glm.settings import Settings
from laconic.glm.solvers.state import Segment, State
from laconic.glm.solvers.wire import Wire
from laconic.kernels.glm import Batches
from laconic.kernels.reference.recurrence import residuals, step_intercept

COMPILED_MARGINS = ("bf16",)
"""Formats that the compiled loop can round margins to, besides the carrier."""


def is_compiled(problem: Problem, settings: Settings, wire: Wire) -> bool:
    """Whether the whole run of iterations is one compiled kernel: one process, and a precision that it knows."""
    p = settings.precision
    return (
        wire.comm.size == 1
        and problem.columns.compiled
        and problem.family.kernel_code is not None
        and p.is_plain("residual", "update", "weights")
        and (p.is_plain("margin") or (p.margin in COMPILED_MARGINS and p.carrier == torch.float32))
    )


def advance(problem: Problem, settings: Settings, state: State, segment: Segment, wire: Wire) -> float:
    """Step through the batches of a segment, changing the state's weights; returns Σ w φ.

    Per iteration: 1. z = AllReduce(A_p[I] x_p) + offset + b; 2. r = w φ'(z, y); 3. u ← μ u + g A_p[I]ᵀ r + λ x,
    x ← x − η u, and the L1 shrinkage.
    """
    if is_compiled(problem, settings, wire):
        return _advance_compiled(problem, settings, state, segment)
    return sum(_iterate(problem, settings, state, segment.part(j, j + 1), wire) for j in range(segment.n_batches))


def _advance_compiled(problem: Problem, settings: Settings, state: State, segment: Segment) -> float:
    dtype = settings.precision.carrier
    batches = Batches(
        rows=segment.rows,
        size=min(settings.sampling.batch_size, len(segment.rows)),  # the kernel allocates for so many
        y=problem.y.to(dtype),
        w=problem.weights_as(dtype),
        offset=problem.offset_as(dtype),
        rates=segment.rates,
        mix=segment.mix,
        l2=settings.penalty.l2,
        l1=settings.penalty.l1,
        momentum=settings.momentum,
        mean=settings.gradient == "mean",
        narrow=not settings.precision.is_plain("margin"),
    )
    return problem.columns.sgd(batches, problem.family.kernel_code, state.weights)


def _iterate(problem: Problem, settings: Settings, state: State, batch: Segment, wire: Wire) -> float:
    p, weights, eta = settings.precision, state.weights, float(batch.rates[0])
    index = torch.from_numpy(batch.rows).to(weights.x.device)
    Y = problem.columns.take(batch.rows, p.carrier)
    margin = p.format("margin")
    z = margin.round(wire.all_reduce(margin.round(Y.margins(weights.x))))
    if problem.offset is not None:
        z = z + problem.offset_as(p.carrier)[index]
    z = z + weights.intercept.value
    y, w = problem.y[index].to(p.carrier), problem.weights_as(p.carrier)[index]
    r, loss = residuals(problem.family, z, y, w, p.format("residual"))

    scale = float(batch.scales(settings.gradient)[0])
    slope = Y.combine(scale * r.T, p) + settings.penalty.l2 * weights.x
    if settings.momentum:
        weights.momentum.mul_(settings.momentum).add_(slope)
        slope = weights.momentum
    x = settings.penalty.shrink(weights.x - eta * slope, eta)
    weights.x.copy_(p.format("weights").round(x))
    mix = float(batch.mix[0]) if len(batch.mix) else None
    if mix is not None:
        weights.average.add_(mix * (weights.x - weights.average))
    step_intercept(weights.intercept, scale * r.sum(0), eta, settings.momentum, mix)
    return loss
