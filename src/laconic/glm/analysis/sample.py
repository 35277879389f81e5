"""One outer iteration to look at: s batches of a problem, and the iterate that meets them."""

from dataclasses import dataclass

import numpy as np
import torch

from laconic.data.partition import column_cuts
from laconic.glm.columns import Columns, DenseColumns, DenseRows, Rows, SparseColumns, SparseRows
from laconic.glm.families import Family
from laconic.glm.problem import Problem
from laconic.glm.solvers import Settings, State
from laconic.glm.solvers.segment import segment


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """s batches, k rows in all, and the weights that meet them; float64.

    Y          (k, n) the rows, without columns that are zero in all of them
    sparse     whether the solver would meet them as a sparse matrix
    column_cuts  where each rank's columns begin, and where the last's end
    cuts       (s + 1,) where each batch begins
    rates      (s,) η; scales (s,) g, 1 / b for a mean gradient
    l2         λ
    y, w       (k,); offset (k, C)
    x          (C, n) weights of those columns, and
    idle       (C, ·) those of all others, which only shrink
    intercept  (C,), and whether it is fitted
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

    def parts(self, dtype: torch.dtype = torch.float64) -> list[Columns]:
        """Each rank's columns, stored as `dtype`."""
        blocks = [self.Y[:, a:b] for a, b in zip(self.column_cuts[:-1], self.column_cuts[1:], strict=True)]
        if self.sparse:
            from scipy.sparse import csr_matrix

            return [SparseColumns.of(csr_matrix(block.numpy()), dtype) for block in blocks]
        return [DenseColumns(block.to(dtype)) for block in blocks]


def take_sample(problem: Problem, settings: Settings, state: State, n_ranks: int) -> Sample:
    """The next s batches from where a state stands, as n_ranks ranks would share the columns."""
    order = settings.sampling.epoch(problem.n_rows, state.epoch)
    part = segment(problem, settings, state, order, settings.step)
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
        scales=part.scales(settings.gradient),
        l2=settings.penalty.l2,
        y=problem.y[index].double(),
        w=problem.weights_as(torch.float64)[index],
        offset=offset[index] if len(offset) else torch.zeros(len(index), problem.n_outputs, dtype=torch.float64),
        x=x[:, active],
        idle=x[:, idle],
        intercept=state.weights.intercept.value.double().clone(),
        fitted=settings.fit_intercept,
    )


def _dense(rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
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
