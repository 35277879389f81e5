"""The outer iterations that are analysed: s batches of a problem, and the weights that meet them."""

from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy.sparse
import torch

from laconic.data.partition import column_cuts
from laconic.exchange import Communicator
from laconic.glm.columns import Columns, DenseColumns, DenseRows, SampledRows, SparseColumns, SparseRows
from laconic.glm.families import Family
from laconic.glm.options import FitOptions
from laconic.glm.problem import Problem
from laconic.glm.resolve import resolve
from laconic.glm.solvers import Progress, State, begin, solve, solve_with_smaller_steps
from laconic.glm.solvers.state import segment


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
    states, options = solve_with_smaller_steps(options, lambda tried: _states(problem, tried), chosen=smaller)
    chosen = np.unique(np.linspace(0, len(states) - 1, n_blocks).round().astype(int))
    return [take_sample(problem, options, states[i], n_ranks) for i in chosen], options


def _states(problem: Problem, options: FitOptions) -> list[State]:
    state = begin(problem, options)
    states = [deepcopy(state)]

    def keep(progress: Progress) -> None:
        states.append(deepcopy(progress.state))

    solve(problem, replace(options, solver="sgd"), state=state, callbacks=[keep], last_epoch=1)
    return states
