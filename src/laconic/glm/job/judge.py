"""How good a solution is, on the rows it was fitted to and on others."""

from dataclasses import replace

import numpy as np
import torch

from laconic.data import BadTable, Table
from laconic.exchange import Communicator
from laconic.glm.job.prepared import Prepared
from laconic.glm.job.source import Source, rows_for
from laconic.glm.job.target import codes
from laconic.glm.model import Model
from laconic.glm.scores import Scores
from laconic.glm.solvers import State
from laconic.glm.solvers.wire import Wire

CHUNK_VALUES = 1 << 20


def training_scores(data: Prepared, state: State, comm: Communicator) -> Scores:
    """Scores of the training rows, from margins that are summed over ranks a block of rows at a time."""
    problem, wire = data.problem, Wire(comm)
    scores = Scores(problem.family)
    step = max(1, min(65536, CHUNK_VALUES // data.n_features))
    for first in range(0, problem.columns.m, step):
        rows = slice(first, min(first + step, problem.columns.m))
        Y = problem.columns.take(np.arange(rows.start, rows.stop), state.coef.dtype)
        z = wire.all_reduce(Y.margins(state.coef)) + state.intercept
        offset = None if problem.offset is None else problem.offset[rows]
        z = z if offset is None else z.double() + offset.reshape(len(z), -1)
        scores.add(z, problem.y[rows], None if problem.weights is None else problem.weights[rows], offset)
    return scores


def scores_of_file(model: Model, like: Source, path: str) -> dict[str, float]:
    """Scores of the rows of another file with the same columns, on this rank alone."""
    scores = Scores(model.kind)
    source = replace(like, path=path)
    rows, blocks = rows_for(model, source)
    if not rows.has_target:
        raise BadTable(f"{source.path} has no target to judge by")
    n_before = 0
    for block in blocks:
        scores.add(*_with_targets(model, rows.classes, block, n_before))
        n_before += block.n_rows
    return scores.summary()


def _with_targets(
    model: Model, labels: "tuple[str, ...] | None", block: Table, first_row: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    z = model.margins(block.X, block.offset)
    y = block.y if model.classes is None else codes(block.y, labels, model.classes, torch.float64, first_row)
    return z, y, block.sample_weight, block.offset
