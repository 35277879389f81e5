"""SGD over column blocks, one AllReduce per iteration: the specification of CA-SGD's iterates."""

import torch

from laconic.glm.options import FitOptions
from laconic.glm.problem import Problem
from laconic.glm.solvers.state import Segment, State
from laconic.glm.solvers.wire import Wire
from laconic.kernels.glm import Batches
from laconic.kernels.reference.recurrence import residuals, step_intercept

COMPILED_MARGINS = ("bf16",)
"""Formats that the compiled loop can round margins to, besides the carrier."""


def is_compiled(problem: Problem, options: FitOptions, wire: Wire) -> bool:
    """Whether the whole run of iterations is one compiled kernel: one process, and a precision that it knows."""
    p = options.precision
    return (
        wire.comm.size == 1
        and problem.columns.compiled
        and problem.family.kernel_code is not None
        and p.is_plain("residual", "update", "weights")
        and (p.is_plain("margin") or (p.margin in COMPILED_MARGINS and p.carrier == torch.float32))
    )


def advance(problem: Problem, options: FitOptions, state: State, wire: Wire, segment: Segment) -> float:
    """Step through the batches of a segment, changing the state's weights; returns Σ w φ.

    Per iteration: 1. z = AllReduce(A_p[I] x_p) + offset + b; 2. r = w φ'(z, y); 3. u ← μ u + g A_p[I]ᵀ r + λ x,
    x ← x − η u, and the L1 shrinkage.
    """
    return sum(_iterate(problem, options, state, segment.part(j, j + 1), wire) for j in range(segment.n_batches))


def advance_compiled(problem: Problem, options: FitOptions, state: State, wire: Wire, segment: Segment) -> float:
    """The same, as one compiled kernel, where `is_compiled`."""
    dtype = options.precision.carrier
    batches = Batches(
        rows=segment.rows,
        size=min(options.batch_size, len(segment.rows)),  # the kernel allocates for so many
        y=problem.y.to(dtype),
        w=problem.weights_as(dtype),
        offset=problem.offset_as(dtype),
        rates=segment.rates,
        mix=segment.mix,
        l2=options.l2,
        l1=options.l1,
        momentum=options.momentum,
        mean=options.gradient == "mean",
        narrow=not options.precision.is_plain("margin"),
    )
    return problem.columns.sgd(batches, problem.family.kernel_code, state.weights)


def _iterate(problem: Problem, options: FitOptions, state: State, batch: Segment, wire: Wire) -> float:
    p, weights, eta = options.precision, state.weights, float(batch.rates[0])
    index = torch.from_numpy(batch.rows).to(weights.x.device)
    Y = problem.columns.take(batch.rows, p.carrier)
    margin = p.format("margin")
    z = margin.round(wire.all_reduce(margin.round(Y.margins(weights.x))))
    if problem.offset is not None:
        z = z + problem.offset_as(p.carrier)[index]
    z = z + weights.intercept.value
    y, w = problem.y[index].to(p.carrier), problem.weights_as(p.carrier)[index]
    r, loss = residuals(problem.family, z, y, w, p.format("residual"))

    scale = float(batch.scales(options.gradient)[0])
    slope = Y.combine(scale * r.T, p) + options.l2 * weights.x
    if options.momentum:
        weights.momentum.mul_(options.momentum).add_(slope)
        slope = weights.momentum
    x = options.shrink(weights.x - eta * slope, eta)
    weights.x.copy_(p.format("weights").round(x))
    mix = float(batch.mix[0]) if len(batch.mix) else None
    if mix is not None:
        weights.average.add_(mix * (weights.x - weights.average))
    step_intercept(weights.intercept, scale * r.sum(0), eta, options.momentum, mix)
    return loss
