"""What a fitted estimator keeps to go on from: plain arrays of all columns, on every rank."""

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.glm.columns import CHUNK_VALUES
from laconic.glm.fit import Fit
from laconic.glm.options import FitOptions
from laconic.glm.problem import Problem
from laconic.glm.ranks import gather_columns
from laconic.glm.solvers import State, begin

LARGER = 10.0
"""Times that a column must grow for its weight to shrink."""
_rows = attrgetter("batch_size", "sampling", "shuffle", "seed")
"""What decides on the rows of each batch."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The state of a fit.

    arrays     weights, momentum and average of all columns, (C, n) each, and of the intercept, (C,)
    numbers    everything else of `State`
    n_rows     rows it was fitted to
    options    that it was fitted with
    converged  whether nothing was left to do
    scaling    mean and deviation (2, n) of all columns, by which they were scaled; zeros and ones where they were not
    sizes      (1, n) root mean squares of all columns, about, the largest of all parts of the data so far
    """

    arrays: dict[str, np.ndarray]
    numbers: dict[str, Any]
    n_rows: int
    options: FitOptions
    converged: bool
    scaling: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, fitted: Fit, comm: Communicator, before: "Saved | None") -> "Saved":
        """From a rank's part of a fit, and what was saved before it; every rank must call this."""
        problem, state = fitted.problem, fitted.solution.state
        place = problem.first, problem.n_features, comm
        kept, alone = state.tensors().items(), comm.size == 1  # where the state's own arrays are nobody else's
        arrays = {n: (t if alone or t.dim() < 2 else gather_columns(t, *place)).cpu().numpy() for n, t in kept}
        scaling = gather_columns(_scaling(problem), *place).numpy()
        sizes = gather_columns(_sizes(problem), *place).numpy()
        sizes = sizes if before is None else np.maximum(sizes, before.sizes)
        return cls(arrays, state.numbers(), problem.n_rows, fitted.options, fitted.solution.converged, scaling, sizes)

    def start(self, problem: Problem, options: FitOptions, *, one_epoch: bool, adaptive: bool) -> State:
        """A state for a rank's columns: where this fit ended.

        adaptive  whether steps over parts of the data shrink with the root of the number of parts

        An epoch that was left in its middle is forgotten where its batches were others. New data, or a new run over the
        same, keeps the weights, and forgets what was found about the loss.
        """
        state = begin(problem, options)
        self._put_into(state, problem, intercept=options.fit_intercept)
        if one_epoch:
            self._shrink(state, problem)
            state.factor = (1 + state.epoch) ** -0.5 if adaptive else state.factor
        run_again = not one_epoch and (self.converged or bool(state.ended) or self.n_rows != problem.n_rows)
        if run_again:
            state.factor, state.best_loss, state.stalls, state.returns = 1.0, math.inf, 0, 0
        if one_epoch or run_again:
            state.polishing, state.ended = False, ""
        if one_epoch or run_again or _rows(self.options) != _rows(options):
            state.batch, state.epoch_loss, state.epoch_weight = 0, 0.0, 0.0
        return state

    def _shrink(self, state: State, problem: Problem) -> None:
        """Columns of this part that are far larger than ever before: weights learnt from small ones count for less.

        A weight is multiplied by (size then / size now)², as in normalised online learning (Ross, Mineiro & Langford,
        UAI 2013), and so little that the margins stay those of columns of the size that is seen now.
        """
        then = torch.from_numpy(self.sizes[0, problem.first :][: problem.columns.n])
        now = _sizes(problem)[0].cpu()
        factor = torch.where((then > 0) & (now > LARGER * then), (then / now).square(), 1.0)
        for t in state.tensors().values():
            if t.dim() == 2 and len(t):
                t.mul_(factor.to(t))

    def _rescale(self, state: State, problem: Problem) -> None:
        """Weights of columns that were scaled as then, as weights of columns that are scaled as now."""
        then, now = torch.from_numpy(self.scaling[:, problem.first :][:, : problem.columns.n]), _scaling(problem)
        if torch.equal(then, now):
            return
        t = state.tensors()
        for name in ("x", "momentum", "average", "best", "entry"):
            if len(t[name]):
                plain = t[name].cpu().double() / then[1]
                t[name].copy_(plain * now[1])
                t[f"intercept.{'value' if name == 'x' else name}"].add_((plain @ (now[0] - then[0])).to(t[name]))

    def _put_into(self, state: State, problem: Problem, *, intercept: bool) -> None:
        """Arrays that both have, and the counters."""
        first = problem.first
        for name, t in state.tensors().items():
            array = self.arrays[name]
            if name.endswith("average") and not len(self.arrays["average"]):
                array = self.arrays["x" if name == "average" else "intercept.value"]  # averaging begins now
            if len(array) == len(t) and (intercept or not name.startswith("intercept")):
                part = array[:, first : first + t.shape[1]] if array.ndim == 2 else array
                t.copy_(torch.from_numpy(part))
        self._rescale(state, problem)
        for name, value in self.numbers.items():
            if name not in ("fitted", "history"):
                setattr(state, name, value)
        state.history = [dict(row) for row in self.numbers["history"]]


def _sizes(problem: Problem) -> torch.Tensor:
    """Root mean squares (1, n_p) of a rank's columns, from some of the rows where there are many."""
    columns = problem.columns
    step = 1 + columns.m * columns.n // CHUNK_VALUES
    rows = None if step == 1 else np.arange(0, columns.m, step)
    ((part, Y),) = columns.blocks(rows, torch.float64, columns.m)
    ones = torch.full((1, part.stop), 1 / part.stop, dtype=torch.float64, device=columns.device)
    return Y.squared().combine(ones).sqrt()


def _scaling(problem: Problem) -> torch.Tensor:
    """Mean and deviation of a rank's columns, (2, n_p)."""
    if problem.scaling is None:
        return torch.tensor([[0.0], [1.0]], dtype=torch.float64).repeat(1, problem.columns.n)
    return torch.stack([problem.scaling.mean, problem.scaling.deviation])
