"""What a fitted estimator keeps to go on from: plain arrays of all columns, on every rank."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.glm.estimators.gather import gather_columns
from laconic.glm.sampling import Sampling
from laconic.glm.solvers import Outcome, Solution, State


@dataclass(frozen=True, slots=True)
class Saved:
    """The state of a fit.

    arrays     weights, momentum and average of all columns, (C, n) each, and of the intercept, (C,)
    numbers    everything else of `State`
    n_rows     rows it was fitted to
    sampling   of its rows
    converged  whether nothing was left to do
    """

    arrays: dict[str, np.ndarray]
    numbers: dict[str, Any]
    n_rows: int
    sampling: Sampling
    converged: bool

    @classmethod
    def of(cls, solution: Solution, first: int, n: int, n_rows: int, sampling: Sampling, comm: Communicator) -> "Saved":
        """From a rank's columns, which begin at `first` of n; every rank must call this."""
        arrays = {
            name: (gather_columns(t, first, n, comm) if t.dim() == 2 else t.clone()).cpu().numpy()
            for name, t in solution.state.tensors().items()
        }
        numbers = solution.state.numbers()
        return cls(arrays, numbers, n_rows, sampling, solution.outcome is Outcome.CONVERGED)

    @property
    def shape(self) -> tuple[int, ...]:
        """(C, n)."""
        return self.arrays["x"].shape

    @property
    def coef(self) -> np.ndarray:
        """(C, n): the average where iterates are averaged, otherwise the last iterate."""
        return self.arrays["average"] if len(self.arrays["average"]) else self.arrays["x"]

    @property
    def intercept(self) -> np.ndarray:
        """(C,), chosen as `coef` is."""
        return self.arrays["intercept.average" if len(self.arrays["average"]) else "intercept.value"]

    def put_into(self, state: State, first: int) -> None:
        """Into a state of a rank's columns, which begin at `first`: arrays that both have, and the counters."""
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


def begin_run(state: State) -> None:
    """New data, or a new run over the same: the weights stay, what was found about the loss does not."""
    state.factor, state.best_loss, state.stalls = 1.0, math.inf, 0
    begin_epoch(state)


def begin_epoch(state: State) -> None:
    """Forget an epoch that was left in its middle."""
    state.batch, state.epoch_loss, state.epoch_weight = 0, 0.0, 0.0
