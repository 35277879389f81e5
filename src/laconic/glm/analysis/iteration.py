"""One outer iteration of CA-SGD: s batches and the weights that meet them, run without rounding and with it.

`follow` runs it in float64 by SGD's own formulas, as the bounds need it. `outer_iteration` runs it by the solver's
kernels in any precision, on any number of ranks in one process; a measured error is the distance of two precisions.
"""

from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy.sparse
import torch

from laconic.data.partition import column_cuts
from laconic.exchange import Communicator
from laconic.glm.columns import Columns, DenseColumns, SparseColumns
from laconic.glm.families import Family
from laconic.glm.options import FitOptions
from laconic.glm.precision import RECIPES, Precision
from laconic.glm.problem import Problem
from laconic.glm.resolve import resolve
from laconic.glm.rows import DenseRows, SampledRows, SparseRows
from laconic.glm.solvers import Diverged, Progress, State, begin, solve
from laconic.glm.solvers.state import segment
from laconic.kernels.formats import Format
from laconic.kernels.glm import Block, Intercept, triangle_size
from laconic.kernels.reference.recurrence import recurrence

ATTEMPTS, SMALLER_STEP = 7, 0.25
"""How often to begin again after the loss diverged, and by how much the step shrinks each time."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One outer iteration: s batches, k rows in all, and the weights that meet them; float64.

    Y            (k, n) the rows, without columns that are zero in all of them
    sparse       whether the solver would meet them as a sparse matrix
    column_cuts  where each rank's columns begin, and where the last's end
    cuts         (s + 1,) where each batch begins
    rates        (s,) η; scales (s,) g, 1 / b for a mean gradient
    l2           λ
    y, w         (k,); offset (k, C)
    x            (C, n) weights of those columns, and
    idle         (C, ·) those of all others, which only shrink
    intercept    (C,), and whether it is fitted
    """

    Y: torch.Tensor
    sparse: bool
    column_cuts: tuple[int, ...]
    family: Family
    cuts: np.ndarray
    rates: np.ndarray
    scales: np.ndarray
    l2: float
    y: torch.Tensor
    w: torch.Tensor
    offset: torch.Tensor
    x: torch.Tensor
    idle: torch.Tensor
    intercept: torch.Tensor
    fitted: bool

    @property
    def n_batches(self) -> int:
        """s."""
        return len(self.rates)

    def batch(self, j: int) -> slice:
        """Rows of batch j."""
        return slice(int(self.cuts[j]), int(self.cuts[j + 1]))

    @property
    def batch_of_row(self) -> torch.Tensor:
        """(k,) the number of each row's batch."""
        sizes = torch.from_numpy(np.diff(self.cuts))
        return torch.repeat_interleave(torch.arange(len(sizes)), sizes)

    def parts(self, dtype: torch.dtype = torch.float64) -> list[Columns]:
        """Each rank's columns, stored as `dtype`."""
        blocks = [self.Y[:, a:b] for a, b in pairwise(self.column_cuts)]
        if self.sparse:
            return [SparseColumns.of(scipy.sparse.csr_matrix(block.numpy()), dtype) for block in blocks]
        return [DenseColumns(block.to(dtype)) for block in blocks]


def take_sample(problem: Problem, options: FitOptions, state: State, n_ranks: int) -> Sample:
    """The next s batches from where a state stands, as n_ranks ranks would share the columns."""
    order = options.order(problem.n_rows, state.epoch)
    part = segment(problem, options, state, order, options.step)
    Y, active = _dense(problem.columns.take(part.rows, torch.float64))
    index, x = torch.from_numpy(part.rows).long(), state.weights.x.double()
    offset = problem.offset_as(torch.float64)
    idle = torch.ones(x.shape[1], dtype=torch.bool)
    idle[active] = False
    return Sample(
        Y=Y,
        sparse=isinstance(problem.columns, SparseColumns),
        column_cuts=tuple(column_cuts(Y.shape[1], n_ranks)),
        family=problem.family,
        cuts=part.cuts,
        rates=part.rates,
        scales=part.scales(options.gradient),
        l2=options.l2,
        y=problem.y[index].double(),
        w=problem.weights_as(torch.float64)[index],
        offset=offset[index] if len(offset) else torch.zeros(len(index), problem.family.n_outputs, dtype=torch.float64),
        x=x[:, active],
        idle=x[:, idle],
        intercept=state.weights.intercept.value.double().clone(),
        fitted=options.fit_intercept,
    )


def _dense(rows: SampledRows) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows' columns that are not all zero, and which these are."""
    if isinstance(rows, DenseRows):
        return rows.Y.contiguous(), torch.arange(rows.Y.shape[1])
    if not isinstance(rows, SparseRows):
        raise TypeError(f"rows of an unknown kind: {type(rows).__name__}")
    values, columns, begins = rows.matrix
    active, place = torch.unique(columns.long(), return_inverse=True)
    Y = torch.zeros(len(begins) - 1, len(active), dtype=torch.float64)
    row = torch.repeat_interleave(torch.arange(len(Y)), begins.diff())
    Y.index_put_((row, place), values.double(), accumulate=True)
    return Y, active


def samples(
    problem: Problem, options: FitOptions, *, n_ranks: int, n_blocks: int, smaller: bool = False
) -> tuple[list[Sample], FitOptions]:
    """Outer iterations at even distances in the first epoch of a float64 fit, its start and end included.

    smaller  whether to begin again with a smaller step where the loss diverges

    Returns them and the options that were used: without momentum, averaging and L1, which the analysis leaves out.
    """
    options = replace(options, solver="ca_sgd", recipe="fp64", momentum=0.0, average=False, tol=None)
    options = resolve(replace(options, alpha=options.l2, l1_ratio=0.0), problem, Communicator())
    for attempt in range(ATTEMPTS + 1):
        try:
            states = _states(problem, options)
            break
        except Diverged:
            if not smaller or attempt == ATTEMPTS:
                raise
            options = replace(options, eta0=float(options.eta0) * SMALLER_STEP)
    chosen = np.unique(np.linspace(0, len(states) - 1, n_blocks).round().astype(int))
    return [take_sample(problem, options, states[i], n_ranks) for i in chosen], options


def _states(problem: Problem, options: FitOptions) -> list[State]:
    state = begin(problem, options)
    states = [deepcopy(state)]

    def keep(progress: Progress) -> None:
        states.append(deepcopy(progress.state))

    solve(problem, replace(options, solver="sgd"), state=state, callbacks=[keep], last_epoch=1)
    return states


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """An outer iteration without rounding, k rows in s batches: the quantities that the bounds are made of; float64.

    gram       (k, k) G = Y Yᵀ as the recurrence meets it, and
    products   (k, k) the same of the rows as the update meets them; they differ where Gram operands are rounded
    shrink     (s + 1,) A_j = Π_{t<j} ρ_t, ρ = 1 − ηλ
    rho        (s,)
    c          (k,) η g of each row's batch
    v          (k, C) Y x; z (k, C) margins with offset and intercept; r (k, C) residuals
    hessian    (k, C, C) w φ''(z)
    weights    (s + 1, C, n) x before each batch, and at the end
    movement   ‖(x', b') − (x, b)‖
    size       ‖(x', b')‖
    """

    sample: Sample
    gram: torch.Tensor
    products: torch.Tensor
    shrink: torch.Tensor
    rho: torch.Tensor
    c: torch.Tensor
    v: torch.Tensor
    z: torch.Tensor
    slope: torch.Tensor
    r: torch.Tensor
    hessian: torch.Tensor
    weights: torch.Tensor
    movement: float
    size: float

    def decay(self, j: int) -> torch.Tensor:
        """κ = c Π_{i<t<j} ρ_t of the rows of batches before j, (first,): p_i before batch j is −κ_i r_i."""
        first = int(self.sample.cuts[j])
        later = torch.flip(torch.cumprod(torch.flip(self.rho[1:j], [0]), 0), [0]) if j > 1 else self.rho[:0]
        later = torch.cat([later, self.rho.new_ones(1)]) if j else later
        return self.c[:first] * later[self.sample.batch_of_row[:first]]

    def coefficients(self, j: int) -> torch.Tensor:
        """p (first, C) of the rows before batch j; j = s gives all of them, at the end."""
        kappa = self.decay(j)
        return -kappa[:, None] * self.r[: len(kappa)]

    def summary(self) -> dict[str, float]:
        """Sizes of the quantities that the bounds are made of, for a report."""
        return {
            "movement": self.movement,
            "weights_norm": self.size,
            "start_norm": float(self.sample.x.norm()),
            "largest_row_norm": float(self.products.diagonal().max().clamp(min=0).sqrt()),
            "gram_norm": float(self.products.norm()),
            "largest_margin": float(self.z.abs().max()),
            "largest_residual": float(self.r.abs().max()),
            "lipschitz": float(self.hessian.abs().sum(2).max()),
            "eta": float(self.sample.rates[0]),
        }


def follow(sample: Sample, operand: Format | None = None) -> Trajectory:
    """Run the iteration in float64, by SGD's own formulas; `operand` rounds the operands of the Gram matrix."""
    s = sample.n_batches
    rounded = sample.Y if operand is None else operand.round(sample.Y)
    gram, products = rounded @ rounded.T, sample.Y @ sample.Y.T
    rho = 1 - torch.from_numpy(sample.rates) * sample.l2
    shrink = torch.cat([rho.new_ones(1), torch.cumprod(rho, 0)])
    c = torch.from_numpy(sample.rates * sample.scales)[sample.batch_of_row]
    v, b = sample.Y @ sample.x.T, sample.intercept.clone()
    z, r, slope = torch.empty_like(v), torch.empty_like(v), torch.empty_like(v)
    p, weights = torch.zeros_like(v), [sample.x]
    for j in range(s):
        J, first = sample.batch(j), int(sample.cuts[j])
        z[J] = shrink[j] * v[J] + gram[J, :first] @ p[:first] + sample.offset[J] + b
        slope[J] = sample.family.derivative(z[J], sample.y[J])
        r[J] = torch.where(sample.w[J, None] != 0, sample.w[J, None] * slope[J], 0.0)
        p[:first] *= rho[j]
        p[J] = -c[J, None] * r[J]
        b = b - (c[J, None] * r[J]).sum(0) if sample.fitted else b
        weights.append(rho[j] * weights[-1] - (c[J, None] * r[J]).T @ sample.Y[J])
    moved = (weights[-1] - sample.x, (shrink[-1] - 1) * sample.idle, b - sample.intercept)
    ends = (weights[-1], shrink[-1] * sample.idle, b)
    norm, size = (float(sum(part.square().sum() for part in parts)) ** 0.5 for parts in (moved, ends))
    hessian = sample.w[:, None, None] * sample.family.hessian(z, sample.y)
    return Trajectory(sample, gram, products, shrink, rho, c, v, z, slope, r, hessian, torch.stack(weights), norm, size)


def outer_iteration(sample: Sample, precision: Precision) -> torch.Tensor:
    """The weights after the s batches and, as last column, the intercept: (C, n + idle + 1), float64.

    1. every rank: v_p = Y_p x_p rounded to `margin`, G_p = Y_p Y_pᵀ; 2. their sums, carried in `gram_wire`;
    3. the recurrence; 4. x_p ← A x_p + Y_pᵀ p, rounded to `weights`. The same kernels as `glm.solvers.ca_sgd`.
    """
    p = precision
    dtype, everything = p.carrier, np.arange(len(sample.Y))
    rows = [part.take(everything, dtype) for part in sample.parts(p.format("data").storage)]
    xs = [sample.x[:, a:b].to(dtype) for a, b in pairwise(sample.column_cuts)]
    margin, wire = p.format("margin"), p.format("gram_wire")
    v = margin.round(_all_reduced([margin.round(Y.margins(x)) for Y, x in zip(rows, xs, strict=True)], wire))
    triangles = [torch.empty(triangle_size(sample.cuts), dtype=dtype) for _ in rows]
    for Y, triangle in zip(rows, triangles, strict=True):
        Y.gram(sample.cuts, p, triangle)
    own = Intercept(sample.intercept.to(dtype, copy=True), torch.zeros_like(sample.intercept, dtype=dtype), v[:0, 0])
    own.fitted = sample.fitted
    block = _block(sample, v, _all_reduced(triangles, wire))
    moved = recurrence(block, sample.family, own, p.format("recurrence"), p.format("residual"))
    shrink = float(moved.A[0, 0, 0])
    steps = moved.p.flatten(0, 1)  # of weights, momentum and average in one product, as there
    xs = [shrink * x + Y.combine(steps, p)[: len(x)] for Y, x in zip(rows, xs, strict=True)]
    new = p.format("weights").round(torch.cat([*xs, shrink * sample.idle.to(dtype)], 1))
    return torch.cat([new, own.value[:, None]], 1).double()


def _all_reduced(parts: list[torch.Tensor], wire: Format) -> torch.Tensor:
    """A sum over ranks in the wire's format; one rank sends nothing."""
    if len(parts) == 1:
        return parts[0]
    total = wire.round(parts[0])
    for part in parts[1:]:
        total = wire.round(total + wire.round(part))
    return total


def _block(sample: Sample, v: torch.Tensor, triangle: torch.Tensor) -> Block:
    return Block(
        cuts=sample.cuts,
        margins=v,
        momenta=v[:, :0],
        triangle=triangle,
        y=sample.y.to(v.dtype),
        w=sample.w.to(v.dtype),
        offset=sample.offset.to(v.dtype),
        rates=sample.rates,
        scales=sample.scales,
        mix=np.empty(0),
        l2=sample.l2,
        momentum=0.0,
    )


def measured_term(sample: Sample, knob: str, name: str, movement: float) -> float:
    """‖x'(this knob in this format) − x'(float64)‖ / movement.

    An accumulator is measured between operands of its own format, which it may not be shorter than.
    """
    exact = RECIPES["fp64"]
    base = replace(exact, gram_operand=name) if knob == "gram_accumulate" else exact
    return measured_total(sample, replace(base, **{knob: name}), movement, base)


def measured_total(sample: Sample, precision: Precision, movement: float, base: Precision = RECIPES["fp64"]) -> float:
    """The same for all nine knobs at once, in the arithmetic that the recipe runs in."""
    off = (outer_iteration(sample, precision) - outer_iteration(sample, base)).norm()
    return float(off) / movement if bool(off.isfinite()) else float("inf")
