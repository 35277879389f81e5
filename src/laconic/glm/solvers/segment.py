"""Segments of an epoch: the batches between two callbacks, with their step sizes."""

from dataclasses import dataclass

import numpy as np

from laconic.glm.problem import Problem
from laconic.glm.solvers.settings import Settings
from laconic.glm.solvers.state import State


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive batches of an epoch, from the state's next one on.

    rows   (k,) rows of the matrix, one batch after another
    cuts   (n + 1,) where each batch begins in `rows`, and where the last ends
    rates  (n,) step sizes
    mix    (n,) share of the newest iterate in the average: 1 until averaging begins; (0,) without averaging
    """

    rows: np.ndarray
    cuts: np.ndarray
    rates: np.ndarray
    mix: np.ndarray

    @property
    def n_batches(self) -> int:
        """Batches, which is iterations."""
        return len(self.rates)

    def scales(self, gradient: str) -> np.ndarray:
        """What each batch's sum of gradients is multiplied by."""
        return 1.0 / np.diff(self.cuts) if gradient == "mean" else np.ones(self.n_batches)

    def part(self, first: int, last: int) -> "Segment":
        """Batches [first, last)."""
        begin, end = self.cuts[first], self.cuts[last]
        mix = self.mix[first:last] if len(self.mix) else self.mix
        return Segment(self.rows[begin:end], self.cuts[first : last + 1] - begin, self.rates[first:last], mix)


def segment(problem: Problem, settings: Settings, state: State, order: np.ndarray, n_batches: int) -> Segment:
    """The next `n_batches` batches, or what is left of the epoch.

    order  of the problem's rows in this epoch
    """
    size = settings.sampling.batch_size
    rows = order[state.batch * size : (state.batch + n_batches) * size]
    if problem.rows is not None:
        rows = problem.rows[rows]
    cuts = np.append(np.arange(0, len(rows), size), len(rows))
    t = state.iteration + np.arange(len(cuts) - 1)
    rates = state.factor * settings.schedule.rates(t)
    if settings.average is None:
        return Segment(rows, cuts, rates, np.empty(0))
    return Segment(rows, cuts, rates, 1.0 / np.maximum(1.0, t + 1.0 - settings.average))
