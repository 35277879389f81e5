"""How good a model is on some rows: one function of margins and targets for the command line and the estimators."""

from dataclasses import dataclass, field

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.glm.families import Family
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire, gather_array
from laconic.glm.solvers.state import State

ALONE = Communicator()
ROWS_AT_ONCE = 1 << 14
"""Of margins that are summed over ranks."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Figures of some rows.

    loss     the mean of φ, by weight
    score    the share of labels that are right, or D²: the share of the deviance that the features explain
    metrics  the score, and the mean loss of a classifier or deviance of a regression, by the family's names for them
    """

    n_rows: int
    loss: float
    score: float
    metrics: dict[str, float]


@dataclass(slots=True)
class ScoredRows:
    """Rows that may come in blocks, to be scored; scores do not depend on how the rows are cut into blocks.

    Kept are a number or two per row; sums are taken at the end, over all rows at once.

    n_rows   that will come
    n_added  that came so far

    >>> from laconic.glm import Gaussian
    >>> rows = ScoredRows(Gaussian(), 3)
    >>> y = torch.tensor([1.0, 2.0, 3.0])
    >>> rows.add(y[:, None] + 0.5, y)
    >>> rows.scores().metrics
    {'r2': 0.625, 'mse': 0.25}
    """

    family: Family
    n_rows: int
    n_added: int = 0
    kept: dict[str, torch.Tensor] = field(default_factory=dict)

    def add(
        self,
        z: torch.Tensor,
        y: torch.Tensor,
        w: torch.Tensor | None = None,
        offset: torch.Tensor | None = None,
    ) -> None:
        """Rows with these margins (offset included), targets, weights (by default 1) and offsets.

        Of a classifier, a target below 0 is a class that the model does not know: never right, of infinite loss.
        """
        z, y = z.double().cpu(), y.double().cpu()
        rows: dict[str, torch.Tensor] = {} if w is None else {"weight": w.double().cpu()}
        if self.family.classifies:
            rows["loss"] = torch.where(y >= 0, self.family.loss(z, y.clamp(min=0)), torch.inf)
            rows["judged"] = most_likely(z) == y
        else:
            rows |= {"loss": self.family.loss(z, y), "judged": self.family.deviance(z, y), "y": y}
            rows |= {} if offset is None else {"offset": by_output(offset.double().cpu())}
        part = slice(self.n_added, self.n_added + len(y))
        for name, values in rows.items():
            if name not in self.kept:  # one tensor for all blocks, between whose own memory theirs would be scattered
                self.kept[name] = torch.ones(self.n_rows, *values.shape[1:], dtype=values.dtype)
            self.kept[name][part] = values
        self.n_added = part.stop

    def scores(self, comm: Communicator = ALONE) -> Scores:
        """Of these rows and those of all other ranks, which have rows of their own; every rank calls this.

        D² = 1 − Σ w d(z, y) / Σ w d(c + offset, y), with d the deviance and c the best constant: 1 for a perfect model,
        0 for one that knows the intercept and the offset only. Of squared errors this is R².
        """
        names = self.family.metrics
        if not self.n_added:
            return Scores(0, 0.0, 0.0, dict.fromkeys(names, 0.0))
        rows = {}
        for name, values in self.kept.items():
            own = values[: self.n_added]
            whole = own if comm.size == 1 else np.concatenate(gather_array(own.numpy(), comm))
            rows[name] = torch.as_tensor(whole)
        w = rows.get("weight")
        loss, score, n_rows = _mean(rows["loss"], w), _mean(rows["judged"], w), len(rows["loss"])
        if self.family.classifies:
            return Scores(n_rows, loss, score, {names[0]: score, names[1]: loss})
        d2 = self._d2(score, w, rows["y"], rows.get("offset"))
        return Scores(n_rows, loss, d2, {names[0]: d2, names[1]: score})

    def _d2(self, deviance: float, w: torch.Tensor | None, y: torch.Tensor, offset: torch.Tensor | None) -> float:
        used = y if w is None else y[w > 0]
        if offset is None and bool((used == used[:1]).all()):  # a constant explains them all
            return float(deviance == 0)
        null = self.family.null(y, y.new_ones(1).expand(len(y)) if w is None else w, offset)
        margins = null.expand(len(y), -1) if offset is None else offset + null
        return 1 - deviance / _mean(self.family.deviance(margins, y), w)


def _mean(values: torch.Tensor, w: torch.Tensor | None) -> float:
    if w is None:
        return float(values.sum(dtype=torch.float64)) / max(1, len(values))
    used, total = w > 0, float(w.sum())  # a row of weight 0 counts for nothing, even where its loss is infinite
    return float((w * values)[used].sum()) / total if total else 0.0


def by_output(offset: torch.Tensor) -> torch.Tensor:
    """Offsets (m,) or (m, C) as they are added to margins: (m, 1) or (m, C)."""
    return offset[:, None] if offset.dim() == 1 else offset


def most_likely(z: torch.Tensor) -> torch.Tensor:
    """Numbers of classes (m,) from margins: the second of two where its margin is positive, or the largest."""
    return (z[:, 0] > 0).long() if z.shape[1] == 1 else z.argmax(1)


def training_scores(problem: Problem, state: State, comm: Communicator) -> Scores:
    """Scores of the training rows, by their weights as given; margins are summed over ranks a block at a time."""
    scored, wire, weights = ScoredRows(problem.family, problem.columns.m), Wire(comm), problem.weights
    coef, intercept, step = state.coef, state.intercept, None if comm.size == 1 else ROWS_AT_ONCE
    for rows, Y in problem.columns.blocks(None, coef.dtype, step):
        z = wire.all_reduce(Y.margins(coef)) + intercept
        offset = None if problem.offset is None else problem.offset[rows]
        z = z if offset is None else z + by_output(offset.to(z.dtype))
        scored.add(z, problem.y[rows], None if weights is None else weights[rows], offset)
    return scored.scores(comm.peers)
