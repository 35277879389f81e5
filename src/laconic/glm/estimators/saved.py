"""What a fitted estimator keeps to go on from: plain arrays of all columns, on every rank."""

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.glm.fit import Fit
from laconic.glm.options import FitOptions
from laconic.glm.problem import Problem
from laconic.glm.solvers import Outcome, State, begin
from laconic.glm.solvers.wire import gather_columns

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
    """

    arrays: dict[str, np.ndarray]
    numbers: dict[str, Any]
    n_rows: int
    options: FitOptions
    converged: bool

    @classmethod
    def of(cls, fitted: Fit, comm: Communicator) -> "Saved":
        """From a rank's part of a fit; every rank must call this."""
        problem, state = fitted.problem, fitted.solution.state
        place = problem.first, problem.n_features, comm
        whole = {name: gather_columns(t, *place) if t.dim() == 2 else t for name, t in state.tensors().items()}
        arrays = {name: t.cpu().numpy().copy() for name, t in whole.items()}
        converged = fitted.solution.outcome is Outcome.CONVERGED
        return cls(arrays, state.numbers(), problem.n_rows, fitted.options, converged)

    @property
    def coef(self) -> np.ndarray:
        """(C, n): the average where iterates are averaged, otherwise the last iterate."""
        return self.arrays["average"] if len(self.arrays["average"]) else self.arrays["x"]

    @property
    def intercept(self) -> np.ndarray:
        """(C,), chosen as `coef` is."""
        return self.arrays["intercept.average" if len(self.arrays["average"]) else "intercept.value"]

    def start(self, problem: Problem, options: FitOptions, *, one_epoch: bool) -> State:
        """A state for a rank's columns: where this fit ended.

        An epoch that was left in its middle is forgotten where its batches were others. New data, or a new run over the
        same, keeps the weights, and forgets what was found about the loss.
        """
        state = begin(problem, options)
        self._put_into(state, problem.first)
        run_again = not one_epoch and (self.converged or self.n_rows != problem.n_rows)
        if run_again:
            state.factor, state.best_loss, state.stalls = 1.0, math.inf, 0
        if one_epoch or run_again or _rows(self.options) != _rows(options):
            state.batch, state.epoch_loss, state.epoch_weight = 0, 0.0, 0.0
        return state

    def _put_into(self, state: State, first: int) -> None:
        """Arrays that both have, and the counters."""
        for name, t in state.tensors().items():
            array = self.arrays[name]
            if name.endswith("average") and not len(self.arrays["average"]):
                array = self.arrays["x" if name == "average" else "intercept.value"]  # averaging begins now
            if len(array) == len(t):
                part = array[:, first : first + t.shape[1]] if array.ndim == 2 else array
                t.copy_(torch.from_numpy(part))
        for name, value in self.numbers.items():
            if name not in ("fitted", "history"):
                setattr(state, name, value)
        state.history = [dict(row) for row in self.numbers["history"]]
