"""Communication-avoiding SGD: the iterates of SGD, with one AllReduce every s iterations."""

import torch

from laconic.glm.options import FitOptions
from laconic.glm.problem import Problem
from laconic.glm.solvers.state import Segment, State
from laconic.glm.solvers.wire import Wire
from laconic.kernels.glm import Block, Combination, Intercept, triangle_size
from laconic.kernels.reference.recurrence import recurrence as reference_recurrence


def advance(problem: Problem, options: FitOptions, state: State, wire: Wire, segment: Segment) -> float:
    """Step through the batches of a segment, s at a time, changing the state's weights; returns Σ w φ."""
    blocks = range(0, segment.n_batches, options.step)
    return sum(
        _outer_iteration(problem, options, state, segment.part(j, min(j + options.step, segment.n_batches)), wire, j)
        for j in blocks
    )


def is_compiled(problem: Problem, options: FitOptions) -> bool:
    """Whether the recurrence is a compiled kernel: on the CPU, in a precision that it knows."""
    plain = options.precision.is_plain("recurrence", "residual")
    return plain and problem.family.kernel_code is not None and problem.columns.device.type == "cpu"


def _outer_iteration(
    problem: Problem, options: FitOptions, state: State, batches: Segment, wire: Wire, done: int
) -> float:
    """s iterations:

    1. take the sb sampled rows Y; v = Y x, and the strictly lower block triangle of G = Y Yᵀ;
    2. one AllReduce of both;
    3. the recurrence (see `kernels.glm`), on every rank alike and without a message;
    4. x_p ← A_xx x_p + A_xu u_p + Y_pᵀ p_x, likewise momentum and average; then the L1 shrinkage.
    """
    p, weights = options.precision, state.weights
    Y = problem.columns.take(batches.rows, p.carrier)
    margin = p.format("margin")
    v = margin.round(Y.margins(torch.cat([weights.x, weights.momentum])))
    triangle = torch.empty(triangle_size(batches.cuts), dtype=p.carrier, device=v.device)
    Y.gram(batches.cuts, p, triangle)
    v, triangle = wire.sum(v, triangle, state.iteration + done)
    block = _block(problem, options, batches, margin.round(v), triangle)
    moved = _recur(problem, options, block, weights.intercept)

    step = Y.combine(moved.p.flatten(0, 1), p).view(3, *weights.x.shape)
    vectors = (weights.x, weights.momentum, weights.average)
    new = [_combine(moved, row, vectors) + step[row] for row, old in enumerate(vectors) if len(old)]
    for old, value in zip([old for old in vectors if len(old)], new, strict=True):
        old.copy_(value)
    x = p.format("weights").round(options.shrink(weights.x, float(batches.rates.sum())))
    if len(weights.average):  # the newest iterate enters the average as it is left, shrunk and rounded
        weights.average.add_(float(batches.mix[-1]) * (x - weights.x))
    weights.x.copy_(x)
    return moved.loss


def _combine(moved: Combination, row: int, vectors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    terms = [float(a) * v for a, v in zip(moved.A[row], vectors, strict=True) if len(v) and a != 0]
    return sum(terms[1:], start=terms[0]) if terms else torch.zeros_like(vectors[0])


def _block(problem: Problem, options: FitOptions, batches: Segment, v: torch.Tensor, triangle: torch.Tensor) -> Block:
    dtype, n_outputs = options.precision.carrier, problem.family.n_outputs
    index = torch.from_numpy(batches.rows).to(v.device)
    offset = problem.offset_as(dtype)
    return Block(
        cuts=batches.cuts,
        margins=v[:, :n_outputs].contiguous(),
        momenta=v[:, n_outputs:].contiguous(),
        triangle=triangle,
        y=problem.y[index].to(dtype),
        w=problem.weights_as(dtype)[index],
        offset=offset[index] if len(offset) else v.new_zeros(len(index), n_outputs),
        rates=batches.rates,
        scales=batches.scales(options.gradient),
        mix=batches.mix,
        l2=options.l2,
        momentum=options.momentum,
    )


def _recur(problem: Problem, options: FitOptions, block: Block, intercept: Intercept) -> Combination:
    p = options.precision
    if is_compiled(problem, options):
        from laconic.kernels.cpu.recurrence import recurrence  # Numba is loaded where it is first needed

        return recurrence(block, problem.family.kernel_code, intercept)
    return reference_recurrence(block, problem.family, intercept, p.format("recurrence"), p.format("residual"))
