"""SGD over column blocks, one AllReduce per iteration: the specification of CA-SGD's iterates."""

from collections.abc import Sequence

import numpy as np
import torch

from laconic.glm.options import FitOptions, shrink
from laconic.glm.precision import Precision
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire
from laconic.glm.solvers.state import Segment, each_output
from laconic.kernels.glm import Batches, Weights
from laconic.kernels.reference.recurrence import residuals, step_intercept


def is_compiled(problem: Problem, options: FitOptions, wire: Wire) -> bool:
    """Whether the whole run of iterations is one compiled kernel: one process, and a precision that it knows."""
    p = options.precision
    return (
        wire.comm.size == 1
        and problem.columns.compiled
        and problem.family.kernel_code is not None
        and p.is_plain("residual", "update", "weights")
        and (p.is_plain("margin") or (p.margin == "bf16" and p.carrier == torch.float32))
    )


def advance(
    problem: Problem, models: Sequence[FitOptions], weights: Weights, wire: Wire, segments: Sequence[Segment]
) -> np.ndarray:
    """Step through the batches of a segment, changing the weights; returns Σ w φ of each model.

    Per iteration: 1. z = AllReduce(A_p[I] x_p) + offset + b; 2. r = w φ'(z, y); 3. u ← μ u + g A_p[I]ᵀ r + λ x,
    x ← x − η u, and the L1 shrinkage.

    models    options of models that differ in penalty and step size alone: they share rows, messages and products of
              matrices
    weights   (M C, n), those of the models below each other
    segments  of each model; they differ in nothing but the rates
    """
    eta, l2, l1 = each_output(models, segments, weights)
    parts = [segments[0].part(j, j + 1) for j in range(segments[0].n_batches)]
    losses = [_iterate(problem, models, weights, batch, wire, eta[j], l2, l1) for j, batch in enumerate(parts)]
    total: np.ndarray = np.stack(losses).sum(0)
    return total


def advance_compiled(problem: Problem, options: FitOptions, weights: Weights, segment: Segment) -> float:
    """The same for one model, as one compiled kernel, where `is_compiled`."""
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
    return problem.columns.sgd(batches, problem.family.kernel_code, weights)


def _iterate(
    problem: Problem,
    models: Sequence[FitOptions],
    weights: Weights,
    batch: Segment,
    wire: Wire,
    eta: torch.Tensor,
    l2: torch.Tensor,
    l1: torch.Tensor | None,
) -> np.ndarray:
    options, x = models[0], weights.x
    p, index = options.precision, torch.from_numpy(batch.rows).to(x.device)
    Y = problem.columns.take(batch.rows, p.carrier)
    margin = p.format("margin")
    z = margin.round(wire.all_reduce(margin.round(Y.margins(x))))
    if problem.offset is not None:
        z = z + problem.offset_as(p.carrier)[index].repeat(1, len(models))
    z = z + weights.intercept.value
    y, w = problem.y[index].to(p.carrier), problem.weights_as(p.carrier)[index]
    r, loss = _residuals(problem, p, z, y, w, len(models))

    scale = float(batch.scales(options.gradient)[0])
    if options.momentum:
        weights.momentum.mul_(options.momentum).add_(Y.combine(scale * r.T, p)).addcmul_(l2, x)
        x.sub_(eta * weights.momentum)
    else:
        Y.add_combination(-scale * eta * r.T, p, x.mul_(1 - eta * l2))
    if l1 is not None:
        x.copy_(shrink(x, eta * l1))
    if not p.is_plain("weights"):
        x.copy_(p.format("weights").round(x))
    mix = float(batch.mix[0]) if len(batch.mix) else None
    if mix is not None:
        weights.average.add_(mix * (x - weights.average))
    step_intercept(weights.intercept, scale * r.sum(0), eta[:, 0], options.momentum, mix)
    return loss


def _residuals(
    problem: Problem, precision: Precision, z: torch.Tensor, y: torch.Tensor, w: torch.Tensor, n_models: int
) -> tuple[torch.Tensor, np.ndarray]:
    """Of one model as the specification has them; of several, compiled where that is the same."""
    family = problem.family
    if n_models == 1 or z.device.type != "cpu" or family.kernel_code is None or not precision.is_plain("residual"):
        return residuals(family, z, y, w, precision.format("residual"), n_models)
    from laconic.kernels.cpu.links import residuals_of_models  # Numba is loaded where it is first needed

    r, losses = torch.empty_like(z), np.zeros(n_models)
    residuals_of_models(int(family.kernel_code), z.numpy(), y.numpy(), w.numpy(), r.numpy(), losses)
    return r, losses
