"""Knobs that round the Gram matrix: its accumulator, and its way over the wire."""

from itertools import pairwise

import torch

from laconic.glm.analysis.disturbance import Disturbance, rank_margins
from laconic.glm.analysis.rounding import half_ulp, known, summed
from laconic.glm.analysis.trajectory import Trajectory
from laconic.glm.columns.dense import ACCUMULATOR_COLUMNS
from laconic.kernels.formats import Format


class GramAccumulate(Disturbance):
    """Each rank's accumulator, rounded after every few columns (once, of a sparse matrix).

    `path` is that of operands in the same format: an accumulator is never shorter than what it adds.
    """

    def __init__(self, path: Trajectory, fmt: Format) -> None:
        super().__init__(path, fmt)
        rounded, cuts = fmt.round(self.sample.Y), self.sample.column_cuts
        self.entries = torch.zeros_like(path.gram)
        for a, b in pairwise(cuts):
            step = max(1, b - a) if self.sample.sparse else ACCUMULATOR_COLUMNS
            total, error = torch.zeros_like(path.gram), torch.zeros_like(path.gram)
            for first in range(a, b, step):
                part = rounded[:, first : min(first + step, b)]
                total = total + part @ part.T
                exact = torch.where(error == 0, known(total, fmt), torch.inf)
                error = error + torch.minimum(exact, half_ulp(total.abs() + error, fmt))
            self.entries += error

    def margin(self, j: int, before: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        return self._through(self.entries, j, moved)

    def rounded(self) -> tuple[torch.Tensor, ...]:
        return (self.path.gram,)


class GramWire(Disturbance):
    """The AllReduce of margins and Gram matrix: nothing on one rank."""

    def __init__(self, path: Trajectory, fmt: Format) -> None:
        super().__init__(path, fmt)
        self.entries, self.error = torch.zeros_like(path.gram), torch.zeros_like(path.v)
        cuts = self.sample.column_cuts
        if len(cuts) > 2:
            blocks = [self.sample.Y[:, a:b] for a, b in pairwise(cuts)]
            self.entries = summed(torch.stack([block @ block.T for block in blocks]), fmt)
            self.error = summed(rank_margins(path), fmt)

    def margin(self, j: int, before: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        own = self.path.shrink[j].abs() * self.error[self.sample.batch(j)]
        return own + self._through(self.entries, j, moved)

    def rounded(self) -> tuple[torch.Tensor, ...]:
        return (rank_margins(self.path), self.path.gram)
