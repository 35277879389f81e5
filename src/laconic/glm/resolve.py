"""Choices that are ours to make, "auto": solver, s, step size and recipe. One place for all fits."""

from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from laconic.data.errors import BadTable
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm.columns import SparseColumns, is_wide
from laconic.glm.options import DEFAULTS, DIRECT, MOST_PRODUCTS, OF_SGD, FitOptions
from laconic.glm.precision import (
    AUTO,
    KNOBS,
    ChosenRecipe,
    Precision,
    is_auto,
    precision_for,
    recipe,
    tolerance_of,
)
from laconic.glm.problem import Problem
from laconic.glm.ranks import gather_array
from laconic.planner import DEFAULT, GlmJob, GlmOption, best_s
from laconic.planner.glm import blocks_per_average, cost

SAMPLED_BATCHES = 16
OUTLIER = 10.0
"""A row so many times as large as others sets no step size."""
LARGEST_SAMPLE = 128
"""Rows looked at of a larger batch; fewer rows make the estimate larger, so the step smaller."""
TYPICAL_FEATURES, TYPICAL_ROWS = 1000, 2**30
"""Of data about which nothing is known: columns on all ranks, and rows, of which an epoch has enough for any s."""
LARGEST_S = 64
LARGEST_BATCH = 2**12
"""Values of a batch up to which SGD in one launch is the faster way on a GPU."""
LARGEST_BLOCK = 512
"""Rows of a block on a GPU, in one process."""
_way = attrgetter(*OF_SGD)
FEW_VALUES = 2**25
"""Values of X up to which classes are fitted by Newton's method however many columns there are."""
WORTH_IT = 2**24
"""Values of X on a rank from which on shorter formats can save more than it costs to choose them."""


def resolve(
    options: FitOptions,
    problem: Problem,
    comm: Communicator,
    eta0: float | None = None,
    steepest: float | None = None,
) -> FitOptions:
    """The options with a solver, an s, a recipe and a step size that suit the problem where these are "auto".

    "auto" is Newton's method in one process, on a CPU where X is sparse or has few columns, or few values and classes
    for targets, on a GPU always, where a pass over the rows costs far less than an epoch of SGD; unless something was
    asked for that only SGD heeds, or there is an L1 penalty and the Hessian is too large to be formed. Otherwise it is
    SGD in one process, unless CA-SGD pays there: on a GPU, where a block of s iterations costs a few launches instead
    of a few per iteration, and where batches are not so small that SGD runs in one launch. The recipe is the one to
    begin with; `find_recipe` may find a cheaper one. A step size is cut to three digits, so that it does not depend on
    the order in which ranks add.

    eta0      a step size that is known already, where it is "auto"
    steepest  likewise, the loss's `steepness`
    """
    columns, on_gpu = problem.columns, problem.columns.device.type == "cuda"
    solver, s, size = options.solver, options.s, options.batch_size
    tol = None if options.tol is None or options.tol < 0 else options.tol
    own_way = _way(options) != _way(DEFAULTS) or tol is None
    n_weights, alone = (columns.n + 1) * problem.family.n_outputs, comm.size == 1 and comm.peers.size == 1
    newton_lacks = "" if problem.validation is None else "rows held back"
    if options.l1 and (where := _forms_no_hessian(problem, n_weights, alone=alone, on_gpu=on_gpu)):
        newton_lacks = f"absolute values in the penalty {where}"
    plain = not (own_way or newton_lacks)
    polish = options.polish if options.polish != AUTO else plain and solver == AUTO
    if solver == AUTO:
        small = problem.family.n_outputs == 1 and columns.n * size <= LARGEST_BATCH
        few = on_gpu or n_weights <= DIRECT or isinstance(columns, SparseColumns)
        few = few or is_wide(columns, problem.n_train)
        few = few or (problem.family.classifies and columns.m * columns.n <= FEW_VALUES)
        solver = "sgd" if comm.size == 1 and (small or not on_gpu) else "ca_sgd"
        exact = is_auto(options.recipe) or recipe(options.recipe).is_plain(*KNOBS)
        if plain and few and exact and alone:
            solver = "newton"
    if newton_lacks and (solver == "newton" or options.polish is True):
        name = Option("solver", "newton") if solver == "newton" else Option("polish", True)
        raise InvalidOption(name, f" has no {newton_lacks}; take ", Option("solver", "sgd"))
    if s == AUTO:
        s = auto_s(size, comm.size, on_gpu=on_gpu)
    precision = precision_for(options.recipe, columns.dtype)
    found: dict[str, Any] = {"solver": solver, "s": s, "recipe": precision, "tol": tol, "polish": bool(polish)}
    if options.average_every == AUTO and comm.peers.size == 1:
        found["average_every"] = 1
    if options.eta0 == AUTO and (solver == "newton" or eta0 is not None):
        found["eta0"] = 1.0 if solver == "newton" else eta0
    if attrgetter(*found)(options) != tuple(found.values()):
        options = replace(options, **found)
    if options.average_every == AUTO:
        options = replace(options, average_every=auto_average_every(problem, options, comm))
    if options.eta0 == AUTO:
        own = float(f"{auto_eta0(problem, options, comm, steepest):.3g}")
        eta0 = float(min(gather_array(np.array(own), comm.peers)))  # that of the steepest team
        options = replace(options, eta0=eta0)
    return options


def _forms_no_hessian(problem: Problem, n_weights: int, *, alone: bool, on_gpu: bool) -> str:
    """Where no Hessian is formed for absolute values, in words; "" where one is."""
    if not alone or on_gpu:
        return "on a GPU" if alone else "on several ranks"
    if n_weights > DIRECT:
        return f"of more than {DIRECT} weights; here are {n_weights:,}"
    heavy = problem.family.n_outputs > 1 and problem.n_train * n_weights**2 > MOST_PRODUCTS
    return f"of {n_weights} weights of several classes with {problem.n_train:,} rows" if heavy else ""


def auto_s(batch_size: int, n_ranks: int, n_features: int = TYPICAL_FEATURES, *, on_gpu: bool = False) -> int:
    """How many iterations share a message: 1 in one process, else what the planner's cost model says for typical rates.

    In one process on a GPU, where iterations share launches: as many as make up a block of 512 rows.

    The rates are constants (`planner.DEFAULT`), not measured: s must be the same on all ranks, and after a restart.
    `laconic plan` measures, and recommends an s.

    >>> auto_s(32, 1), auto_s(32, 4), auto_s(8, 4), auto_s(4096, 4)
    (1, 16, 64, 1)
    >>> auto_s(32, 1, on_gpu=True)
    16
    """
    if n_ranks == 1:
        return max(1, LARGEST_BLOCK // batch_size) if on_gpu else 1
    job = GlmJob(max(TYPICAL_ROWS, batch_size), max(1, n_features), batch_size=batch_size)
    return best_s(job, DEFAULT.what_if(n_ranks), most=LARGEST_S)


def one_process_seconds(problem: Problem, options: FitOptions, epochs: int) -> float:
    """What as many epochs of SGD would take in one process with all columns, by the planner's typical rates."""
    columns, n_outputs = problem.columns, problem.family.n_outputs
    density = columns.matrix[0].numel() / max(1, columns.m * columns.n) if isinstance(columns, SparseColumns) else 1.0
    family, b = "multinomial" if n_outputs > 1 else "logistic", min(options.batch_size, problem.n_rows)
    job = GlmJob(problem.n_rows, problem.n_features, density or 1.0, family, n_outputs, b)
    return epochs * job.batches * cost(job, GlmOption("sgd", "fp32", alone=True), DEFAULT).seconds


def auto_average_every(problem: Problem, options: FitOptions, comm: Communicator) -> int:
    """Blocks between two averages of teams: averages take a tenth of the time, by the planner's typical rates.

    An epoch ends with an average in any case.
    """
    rows, n, C = max(TYPICAL_ROWS, options.batch_size), max(1, problem.n_features), problem.family.n_outputs
    job = GlmJob(rows, n, family="multinomial" if C > 1 else "logistic", n_outputs=C, batch_size=options.batch_size)
    one = GlmOption(options.solver, "fp32", options.step)
    return blocks_per_average(job, one, comm.peers.size, DEFAULT.what_if(comm.size))


def auto_eta0(problem: Problem, options: FitOptions, comm: Communicator, steepest: float | None = None) -> float:
    """A step size that is safe for the steepest of a few batches, and for nearly every row:

        1 / (κ g max(max_j λ_max(W_j (Y_j Y_jᵀ + 1 1ᵀ)), max_i w_i (‖a_i‖² + 1)) + λ)

    κ is the family's curvature and g the factor of a batch's gradient, 1 / b for a mean. The Hessian of the loss of
    batch j has no eigenvalue larger than κ g λ_max, so a step of its inverse never overshoots on that batch; the ones
    stand for the intercept. The second maximum is over all rows, in one pass, but for the largest of every thousand; a
    row ten times as large as these sets no step, since the solver returns where such a row throws it far off. With
    momentum μ the step is (1 − μ) times that. AllReduces of 16 Gram matrices and of the rows' sizes.

    Raises `BadTable` for an X so large that no number is left for the step.

    steepest  all of the denominator but λ, where it is known
    """
    curvature = (steepness(problem, options, comm) if steepest is None else steepest) + options.l2
    eta0 = (1 - options.momentum) / curvature if curvature > 0 else 1.0
    carrier = options.precision.carrier
    if not torch.tensor(eta0, dtype=carrier):
        what = f"X is so large that a step has to be {eta0:.1g}, which is 0 in {str(carrier).removeprefix('torch.')}"
        raise BadTable(f"{what}; standardise its columns, or take ", Option("recipe", "fp64"))
    return eta0


def steepness(problem: Problem, options: FitOptions, comm: Communicator) -> float:
    """The largest curvature of the loss that a step has to be safe for, without the penalty's; see `auto_eta0`."""
    b = min(options.batch_size, problem.n_rows, LARGEST_SAMPLE)
    n_batches = min(SAMPLED_BATCHES, problem.n_rows // b)
    order = replace(options, sampling="shuffle", shuffle=True).order(problem.n_rows, 0)[: n_batches * b]
    rows: np.ndarray = order if problem.rows is None else problem.rows[order]
    gram = problem.columns.take(rows, torch.float64).batch_grams(n_batches)
    if comm.size > 1:
        comm.all_reduce(gram)()
    gram = gram + (1.0 if options.fit_intercept else 0.0)
    if not bool(torch.isfinite(gram).all()):
        raise BadTable("X is so large that products of its rows overflow float64; standardise its columns")
    index = torch.from_numpy(rows)
    w = problem.weights_as(torch.float64)[index]
    sizes, usual = _row_sizes(problem, options, comm)
    counted = torch.where(sizes[torch.from_numpy(order)] <= OUTLIER * usual, w, 0.0)
    root = counted.reshape(n_batches, b).sqrt()
    steepest = max(usual, float(torch.linalg.eigvalsh(root[:, :, None] * gram * root[:, None, :]).max()))
    scale = 1.0 / b if options.gradient == "mean" else options.batch_size / b
    return problem.family.curvature(problem.y[index][w > 0], w[w > 0]) * scale * steepest


def _row_sizes(problem: Problem, options: FitOptions, comm: Communicator) -> tuple[torch.Tensor, float]:
    """w (‖a‖² + 1) of the rows to train on, and the largest but for one in a thousand."""
    columns, rows, dtype = problem.columns, problem.rows, options.precision.carrier
    sizes = torch.empty(problem.n_train, dtype=torch.float64, device=columns.device)
    ones = torch.ones(1, columns.n, dtype=dtype, device=columns.device)
    for part, Y in columns.blocks(rows, dtype):
        sizes[part] = Y.squared().margins(ones)[:, 0]
    if comm.size > 1:
        comm.all_reduce(sizes)()
    w = problem.weights_as(torch.float64)
    sizes = (sizes + options.fit_intercept) * (w if rows is None else w[torch.from_numpy(rows)])
    kept = max(1, len(sizes) - 1 - len(sizes) // 1000)
    return sizes, float(sizes.kthvalue(kept).values)


def find_recipe(asked: "str | Precision", problem: Problem, options: FitOptions, comm: Communicator) -> ChosenRecipe:
    """The recipe asked for, or the one to take, and why; every rank calls this with its options resolved.

    "auto" is float64 for a float64 X, as scikit-learn has it. Otherwise it is float32, unless CA-SGD runs on several
    ranks and X is so large that it can matter: then, as with a tolerance of one's own ("auto:1e-3"), the cheapest
    recipe whose measured error meets the tolerance (by default a hundredth of a step) is used.
    """
    from laconic.glm.analysis import choice

    own = options.precision
    name = own.short_name()
    if not is_auto(asked):
        return ChosenRecipe(own, f"{name}: as asked for")
    if problem.columns.device.type != "cpu":
        return ChosenRecipe(own, f"{name}: X lies on a GPU, where no recipe is looked for yet")
    if asked != AUTO:
        try:
            return choice.auto_precision(problem, options, tolerance_of(str(asked)), comm, strict=True)
        except ValueError as error:
            raise InvalidOption(Option("recipe", asked), f": {error}") from error
    if own.data == "fp64":
        return ChosenRecipe(own, "fp64: X is float64")
    if options.solver == "sgd" or comm.size == 1:
        return ChosenRecipe(own, f"{name}: X has no more, and in one process shorter formats save no messages")
    n_values = torch.tensor([problem.columns.m * problem.columns.n])
    comm.whole.all_reduce(n_values)()
    if int(n_values) // comm.whole.size < WORTH_IT:  # the mean rank's, which all ranks agree on
        return ChosenRecipe(own, f"{name}: X is too small for shorter formats to save time")
    return choice.auto_precision(problem, options, choice.TOLERANCE, comm, strict=False)
