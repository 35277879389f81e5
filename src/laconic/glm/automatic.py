"""Defaults that depend on the problem: the step size, and how many iterations share a message."""

import torch

from laconic.data.errors import BadTable
from laconic.errors import Option
from laconic.exchange import Communicator
from laconic.glm.problem import Problem
from laconic.glm.sampling import Sampling
from laconic.glm.solvers.settings import Settings
from laconic.glm.solvers.wire import Wire
from laconic.planner import DEFAULT, GlmJob, best_s

SAMPLED_BATCHES = 16
LARGEST_SAMPLE = 128
"""Rows looked at of a larger batch; fewer rows make the estimate larger, so the step smaller."""
TYPICAL_FEATURES, TYPICAL_ROWS = 1000, 2**30
"""Of data about which nothing is known: columns on all ranks, and rows, of which an epoch has enough for any s."""
LARGEST_S = 64
LARGEST_BATCH = 2**12
"""Values of a batch up to which SGD in one launch is the faster way on a GPU."""
LARGEST_BLOCK = 512
"""Rows of a block on a GPU, in one process."""


def auto_s(batch_size: int, n_ranks: int, n_features: int = TYPICAL_FEATURES, *, on_gpu: bool = False) -> int:
    """How many iterations share a message: 1 in one process, else what the planner's cost model says for typical rates.

    In one process on a GPU, where iterations share launches: as many as make up a block of 512 rows.

    The rates are constants (`planner.DEFAULT`), not measured: s must be the same on all ranks, and after a restart.
    `laconic plan` measures, and tells the s to give instead.

    >>> auto_s(32, 1), auto_s(32, 4), auto_s(8, 4), auto_s(4096, 4)
    (1, 16, 64, 1)
    >>> auto_s(32, 1, on_gpu=True)
    16
    """
    if n_ranks == 1:
        return max(1, LARGEST_BLOCK // batch_size) if on_gpu else 1
    job = GlmJob(max(TYPICAL_ROWS, batch_size), max(1, n_features), batch_size=batch_size)
    return best_s(job, DEFAULT.what_if(n_ranks), most=LARGEST_S)


def pays_in_blocks(problem: Problem, batch_size: int) -> bool:
    """Whether CA-SGD pays in one process: on a GPU, unless batches are so small that SGD runs in one launch.

    A block of s iterations costs a few launches there, instead of a few an iteration.
    """
    small = problem.n_outputs == 1 and problem.columns.n * batch_size <= LARGEST_BATCH
    return problem.columns.device.type == "cuda" and not small


def auto_eta0(problem: Problem, settings: Settings, comm: Communicator) -> float:
    """A step size that is safe for the steepest of a few batches: 1 / (κ g max_j λ_max(W_j (Y_j Y_jᵀ + 1 1ᵀ)) + λ).

    κ is the family's curvature and g the factor of a batch's gradient, 1 / b for a mean. The Hessian of the loss of
    batch j has no eigenvalue larger than κ g λ_max, so a step of its inverse never overshoots on that batch; the ones
    stand for the intercept. With momentum μ the step is (1 − μ) times that. One AllReduce of 16 Gram matrices.

    An X so large that no number is left for the step is `BadTable`.
    """
    b = min(settings.sampling.batch_size, problem.n_rows, LARGEST_SAMPLE)
    n_batches = min(SAMPLED_BATCHES, problem.n_rows // b)
    order = Sampling("shuffle", seed=settings.sampling.seed).epoch(problem.n_rows, 0)[: n_batches * b]
    rows = order if problem.rows is None else problem.rows[order]
    gram = problem.columns.take(rows, torch.float64).batch_grams(n_batches)
    gram = Wire(comm).all_reduce(gram) + (1.0 if settings.fit_intercept else 0.0)
    if not bool(torch.isfinite(gram).all()):
        raise BadTable("X is so large that products of its rows overflow float64; standardise its columns")
    index = torch.from_numpy(rows)
    w = problem.weights_as(torch.float64)[index]
    root = w.reshape(n_batches, b).sqrt()
    steepest = float(torch.linalg.eigvalsh(root[:, :, None] * gram * root[:, None, :]).max())
    scale = 1.0 / b if settings.gradient == "mean" else settings.sampling.batch_size / b
    curvature = problem.family.curvature(problem.y[index][w > 0]) * scale * steepest + settings.penalty.l2
    eta0 = (1 - settings.momentum) / curvature if curvature > 0 else 1.0
    carrier = settings.precision.carrier
    if not torch.tensor(eta0, dtype=carrier):
        what = f"X is so large that a step has to be {eta0:.1g}, which is 0 in {str(carrier).removeprefix('torch.')}"
        raise BadTable(f"{what}; standardise its columns, or take ", Option("recipe", "fp64"))
    return eta0
