"""Defaults that depend on the problem: the step size, and how many iterations share a message."""

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.glm.problem import Problem
from laconic.glm.sampling import Sampling
from laconic.glm.solvers.settings import Settings
from laconic.glm.solvers.wire import Wire

SAMPLED_BATCHES = 16
LARGEST_SAMPLE = 128
"""Rows looked at of a larger batch; fewer rows make the estimate larger, so the step smaller."""
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
    b = min(settings.sampling.batch_size, problem.n_rows, LARGEST_SAMPLE)
    n_batches = min(SAMPLED_BATCHES, problem.n_rows // b)
    order = Sampling("shuffle", seed=settings.sampling.seed).epoch(problem.n_rows, 0)[: n_batches * b]
    rows = order if problem.rows is None else problem.rows[order]
    gram = problem.columns.take(rows, torch.float64).batch_grams(n_batches)
    gram = Wire(comm).all_reduce(gram) + (1.0 if settings.fit_intercept else 0.0)
    index = torch.from_numpy(rows)
    w = problem.weights_as(torch.float64)[index]
    root = w.reshape(n_batches, b).sqrt()
    steepest = float(torch.linalg.eigvalsh(root[:, :, None] * gram * root[:, None, :]).max())
    scale = 1.0 / b if settings.gradient == "mean" else settings.sampling.batch_size / b
    curvature = problem.family.curvature(problem.y[index][w > 0]) * scale * steepest + settings.penalty.l2
    return (1 - settings.momentum) / curvature if curvature > 0 else 1.0
