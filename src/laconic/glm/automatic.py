"""Defaults that depend on the problem: the step size, and how many iterations share a message."""

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.glm.precision import recipe
from laconic.glm.problem import Problem
from laconic.glm.solvers.settings import Settings
from laconic.glm.solvers.wire import Wire
from laconic.kernels.recurrence import triangle_size

SAMPLED_BATCHES = 16
LARGEST_GRAM = 512
"""Rows of a block beyond which its Gram matrix costs more than the messages it saves, on most machines and networks."""


def auto_s(batch_size: int, n_ranks: int) -> int:
    """How many iterations share a message: 1 in one process, else the largest power of two with s · b ≤ 512.

    >>> auto_s(32, 1), auto_s(32, 4), auto_s(8, 4), auto_s(4096, 4)
    (1, 16, 64, 1)
    """
    if n_ranks == 1:
        return 1
    return int(2 ** np.floor(np.log2(max(1, LARGEST_GRAM // batch_size))))


def auto_eta0(problem: Problem, settings: Settings, comm: Communicator) -> float:
    """A step size that is safe for the steepest of a few batches: 1 / (κ g max_j λ_max(W_j (Y_j Y_jᵀ + 1 1ᵀ)) + λ).

    κ is the family's curvature and g the factor of a batch's gradient, 1 / b for a mean. The Hessian of the loss of
    batch j has no eigenvalue larger than κ g λ_max, so a step of its inverse never overshoots on that batch; the ones
    stand for the intercept. With momentum μ the step is (1 − μ) times that. One AllReduce of 16 Gram matrices.
    """
    b = min(settings.sampling.batch_size, problem.n_rows)
    n_batches = min(SAMPLED_BATCHES, problem.n_rows // b)
    order = np.random.Generator(np.random.Philox(key=settings.sampling.seed)).permutation(problem.n_rows)
    rows = order[: n_batches * b] if problem.rows is None else problem.rows[order[: n_batches * b]]
    index = torch.from_numpy(rows)
    gram = _batch_grams(problem, rows.reshape(n_batches, b))
    gram = Wire(comm).all_reduce(gram) + (1.0 if settings.fit_intercept else 0.0)
    root = problem.weights_as(torch.float64)[index].reshape(n_batches, b).sqrt()
    steepest = float(torch.linalg.eigvalsh(root[:, :, None] * gram * root[:, None, :]).max())
    scale = 1.0 / b if settings.gradient == "mean" else 1.0
    curvature = problem.family.curvature(problem.y[index]) * scale * steepest + settings.penalty.l2
    return (1 - settings.momentum) / curvature if curvature > 0 else 1.0


def _batch_grams(problem: Problem, batches: np.ndarray) -> torch.Tensor:
    """This rank's part of Y_j Y_jᵀ for each batch j of rows, (n_batches, b, b) float64."""
    n_batches, b = batches.shape
    grams = torch.zeros(n_batches, b, b, dtype=torch.float64)
    cuts = np.arange(b + 1)
    lower = torch.tril_indices(b, b, -1)
    for j, rows in enumerate(batches):
        Y = problem.columns.take(rows, torch.float64)
        triangle = torch.empty(triangle_size(cuts), dtype=torch.float64)
        Y.gram(cuts, recipe("fp64"), triangle)
        grams[j][lower[0], lower[1]] = triangle
        grams[j] += grams[j].T.clone()
        grams[j] += torch.diag(Y.squares())
    return grams
