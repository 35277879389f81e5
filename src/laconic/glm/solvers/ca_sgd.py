"""Communication-avoiding SGD: the iterates of SGD, with one AllReduce every s iterations."""

from collections.abc import Sequence

import numpy as np
import torch

from laconic.glm.options import FitOptions, shrink
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire
from laconic.glm.solvers.state import Segment, each_output
from laconic.kernels.glm import Block, Combination, Intercept, Weights, triangle_size
from laconic.kernels.reference.recurrence import recurrence as reference_recurrence


def advance(
    problem: Problem,
    models: Sequence[FitOptions],
    weights: Weights,
    wire: Wire,
    segments: Sequence[Segment],
    iteration: int,
) -> np.ndarray:
    """Step through the batches of a segment, s at a time, changing the weights; returns Σ w φ of each model.

    Models, as in `sgd.advance`, share rows and Gram matrices, hence most of a message.
    """
    step, n = models[0].step, segments[0].n_batches
    losses = []
    for j in range(0, n, step):
        parts = [segment.part(j, min(j + step, n)) for segment in segments]
        losses.append(_outer_iteration(problem, models, weights, parts, wire, iteration + j))
    total: np.ndarray = np.stack(losses).sum(0)
    return total


def is_compiled(problem: Problem, options: FitOptions) -> bool:
    """Whether the recurrence is a compiled kernel: on the CPU, in a precision that it knows."""
    plain = options.precision.is_plain("recurrence", "residual")
    return plain and problem.family.kernel_code is not None and problem.columns.device.type == "cpu"


def _outer_iteration(
    problem: Problem,
    models: Sequence[FitOptions],
    weights: Weights,
    parts: Sequence[Segment],
    wire: Wire,
    iteration: int,
) -> np.ndarray:
    """s iterations:

    1. take the sb sampled rows Y; v = Y x, and the strictly lower block triangle of G = Y Yᵀ;
    2. one AllReduce of both;
    3. the recurrence (see `kernels.glm`), on every rank alike and without a message;
    4. x_p ← A_xx x_p + A_xu u_p + Y_pᵀ p_x, likewise momentum and average; then the L1 shrinkage.
    """
    options, batches = models[0], parts[0]
    p = options.precision
    Y = problem.columns.take(batches.rows, p.carrier)
    margin = p.format("margin")
    v = margin.round(Y.margins(torch.cat([weights.x, weights.momentum])))
    triangle = torch.empty(triangle_size(batches.cuts), dtype=p.carrier, device=v.device)
    Y.gram(batches.cuts, p, triangle)
    v, triangle = wire.sum(v, triangle, iteration)
    block = _block(problem, models, parts, margin.round(v), triangle)
    moved = _recur(problem, options, block, weights.intercept)

    step = Y.combine(moved.p.flatten(0, 1), p).view(3, *weights.x.shape)
    vectors = (weights.x, weights.momentum, weights.average)
    new = [_combine(moved, row, vectors) + step[row] for row, old in enumerate(vectors) if len(old)]
    for old, value in zip([old for old in vectors if len(old)], new, strict=True):
        old.copy_(value)
    eta, _, l1 = each_output(models, parts, weights)
    x = weights.x if l1 is None else shrink(weights.x, eta.sum(0) * l1)
    x = p.format("weights").round(x)
    if len(weights.average):  # the newest iterate enters the average as it is left, shrunk and rounded
        weights.average.add_(float(batches.mix[-1]) * (x - weights.x))
    weights.x.copy_(x)
    return moved.loss


def _combine(moved: Combination, row: int, vectors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    used = [(a, v) for a, v in zip(moved.A[row], vectors, strict=True) if len(v) and a.any()]
    terms = [torch.from_numpy(a.repeat(len(v) // len(a))).to(v)[:, None] * v for a, v in used]
    return sum(terms[1:], start=terms[0]) if terms else torch.zeros_like(vectors[0])


def _block(
    problem: Problem, models: Sequence[FitOptions], parts: Sequence[Segment], v: torch.Tensor, triangle: torch.Tensor
) -> Block:
    options, batches, several = models[0], parts[0], len(models) > 1
    dtype, n_outputs = options.precision.carrier, len(models) * problem.family.n_outputs
    index = torch.from_numpy(batches.rows).to(v.device)
    offset = problem.offset_as(dtype)
    return Block(
        cuts=batches.cuts,
        margins=v[:, :n_outputs].contiguous(),
        momenta=v[:, n_outputs:].contiguous(),
        triangle=triangle,
        y=problem.y[index].to(dtype),
        w=problem.weights_as(dtype)[index],
        offset=offset[index].repeat(1, len(models)) if len(offset) else v.new_zeros(len(index), n_outputs),
        rates=np.stack([part.rates for part in parts], 1) if several else batches.rates,
        scales=batches.scales(options.gradient),
        mix=batches.mix,
        l2=np.array([own.l2 for own in models]) if several else options.l2,
        momentum=options.momentum,
    )


def _recur(problem: Problem, options: FitOptions, block: Block, intercept: Intercept) -> Combination:
    p = options.precision
    if is_compiled(problem, options) and block.rates.ndim == 1:
        from laconic.kernels.cpu.recurrence import recurrence  # Numba is loaded where it is first needed

        return recurrence(block, problem.family.kernel_code, intercept)
    return reference_recurrence(block, problem.family, intercept, p.format("recurrence"), p.format("residual"))
