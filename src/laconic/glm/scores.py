"""How good a model is on some rows: one function of margins and targets for the command line and the estimators."""

from dataclasses import dataclass, field

import torch

from laconic.exchange import Communicator
from laconic.glm.families import Family
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire, gather_array
from laconic.glm.solvers.state import State

Column = list[torch.Tensor]
ROWS_AT_ONCE = 1 << 14
"""Of margins that are summed over ranks."""


@dataclass(slots=True)
class Scores:
    """Figures of rows that may come in blocks; they do not depend on how the rows are cut into blocks.

    Kept are a few float64 numbers per row; sums are taken at the end, over all rows at once.

    >>> from laconic.glm import Gaussian
    >>> scores = Scores(Gaussian())
    >>> y = torch.tensor([1.0, 2.0, 3.0])
    >>> scores.add(y[:, None] + 0.5, y)
    >>> scores.summary()
    {'r2': 0.625, 'mse': 0.25}
    """

    family: Family
    weights: Column = field(default_factory=list)
    losses: Column = field(default_factory=list)
    judged: Column = field(default_factory=list)
    targets: Column = field(default_factory=list)
    offsets: Column = field(default_factory=list)

    def add(
        self,
        z: torch.Tensor,
        y: torch.Tensor,
        w: torch.Tensor | None = None,
        offset: torch.Tensor | None = None,
    ) -> None:
        """Rows with these margins (offset included), targets, weights and offsets.

        Of a classifier, a target below 0 is a class that the model does not know: never right, of infinite loss.
        """
        z, y = z.double().cpu(), y.double().cpu()
        self.weights.append(torch.ones_like(y) if w is None else w.double().cpu())
        if self.family.classifies:
            known = y >= 0
            self.losses.append(torch.where(known, self.family.loss(z, y.clamp(min=0)), torch.inf))
            self.judged.append((most_likely(z) == y).double())
            return
        self.losses.append(self.family.loss(z, y))
        self.judged.append(self.family.deviance(z, y))
        self.targets.append(y)
        if offset is not None:
            self.offsets.append(by_output(offset.double().cpu()))

    def gather(self, comm: Communicator) -> None:
        """Add the rows of all other ranks; every rank calls this, each with rows of its own."""
        for column in (self.weights, self.losses, self.judged, self.targets, self.offsets):
            if column and comm.size > 1:
                column[:] = map(torch.from_numpy, gather_array(torch.cat(column).numpy(), comm))

    @property
    def n_rows(self) -> int:
        """Rows that were added."""
        return sum(map(len, self.weights))

    @property
    def loss(self) -> float:
        """The mean of φ, by weight."""
        return self._mean(self.losses)

    @property
    def score(self) -> float:
        """The share of labels that are right, or D²: the share of the deviance that the features explain.

        D² = 1 − Σ w d(z, y) / Σ w d(c + offset, y), with d the deviance and c the best constant: 1 for a perfect model,
        0 for one that knows the intercept and the offset only. Of squared errors this is R².
        """
        judged = self._mean(self.judged)
        if self.family.classifies or not self.targets:
            return judged
        y, w = torch.cat(self.targets), torch.cat(self.weights)
        offset = torch.cat(self.offsets) if self.offsets else None
        used = y[w > 0]
        if offset is None and bool((used == used[:1]).all()):  # a constant explains them all
            return float(judged == 0)
        null = self.family.null(y, w, offset)
        margins = null.expand(len(y), -1) if offset is None else offset + null
        return 1 - judged / self._mean([self.family.deviance(margins, y)])

    def summary(self) -> dict[str, float]:
        """The score, and the mean loss of a classifier or deviance of a regression, by the family's names for them."""
        first, second = self.family.metrics
        return {first: self.score, second: self.loss if self.family.classifies else self._mean(self.judged)}

    def _mean(self, column: Column) -> float:
        w = torch.cat(self.weights) if self.weights else torch.zeros(0, dtype=torch.float64)
        used = w > 0  # a row of weight 0 counts for nothing, even where its loss is infinite
        total = float(w.sum())
        return float((w * torch.cat(column))[used].sum()) / total if total else 0.0


def by_output(offset: torch.Tensor) -> torch.Tensor:
    """Offsets (m,) or (m, C) as they are added to margins: (m, 1) or (m, C)."""
    return offset[:, None] if offset.dim() == 1 else offset


def most_likely(z: torch.Tensor) -> torch.Tensor:
    """Numbers of classes (m,) from margins: the second of two where its margin is positive, or the largest."""
    return (z[:, 0] > 0).long() if z.shape[1] == 1 else z.argmax(1)


def training_scores(problem: Problem, state: State, comm: Communicator) -> Scores:
    """Scores of the training rows, by their weights as given; margins are summed over ranks a block at a time."""
    scores, wire, weights = Scores(problem.family), Wire(comm), problem.weights
    coef, intercept, step = state.coef, state.intercept, None if comm.size == 1 else ROWS_AT_ONCE
    for rows, Y in problem.columns.blocks(None, coef.dtype, step):
        z = wire.all_reduce(Y.margins(coef)) + intercept
        offset = None if problem.offset is None else problem.offset[rows]
        z = z if offset is None else z + by_output(offset.to(z.dtype))
        scores.add(z, problem.y[rows], None if weights is None else weights[rows], offset)
    scores.gather(comm.peers)
    return scores
