"""Choices that are ours to make, "auto": solver, s, step size, recipe and device. One place for all fits."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from laconic.data.errors import BadTable
from laconic.errors import BackendUnavailable, InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm.columns import Columns, DenseColumns, PinnedColumns, SparseColumns
from laconic.glm.options import AUTO, FitOptions, is_auto, tolerance_of
from laconic.glm.precision import ChosenRecipe, Precision, recipe
from laconic.glm.problem import Penalty, Problem
from laconic.glm.settings import Sampling, Settings, schedule
from laconic.glm.solvers import Diverged
from laconic.glm.solvers.wire import Wire
from laconic.planner import DEFAULT, GlmJob, best_s

T = TypeVar("T")
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
ATTEMPTS, SMALLER_STEP = 7, 0.25
"""How often to begin again after the loss diverged, and by how much the step shrinks each time."""
WORTH_IT = 2**24
"""Values of X on a rank from which on shorter formats can save more than it costs to choose them."""
SHARE = 0.7
"""Of the GPU's free memory that a matrix may take; a larger one stays in the host's memory, page-locked."""


def settings_for(
    options: FitOptions,
    problem: Problem,
    precision: Precision,
    comm: Communicator,
    *,
    eta0: float | None = None,
    last_epoch: int | None = None,
) -> Settings:
    """The solver's settings, with a solver, an s and a step size that suit the problem where none was given.

    eta0        a step size that was found before
    last_epoch  where to stop; by default after `max_iter` epochs

    A step size is cut to three digits, so that it does not depend on the order in which ranks add.
    """
    size = options.batch_size
    solver = options.solver
    if solver == AUTO:
        solver = "sgd" if comm.size == 1 and not pays_in_blocks(problem, size) else "ca_sgd"
    on_gpu = problem.columns.device.type == "cuda"
    sampling = Sampling(options.sampling if options.shuffle else "cyclic", size, options.seed)
    n_iterations = options.max_iter * sampling.n_batches(problem.n_rows)
    eta0 = eta0 if options.eta0 == AUTO else float(options.eta0)
    first_row = 0 if options.average is True else int(options.average)  # to average from; `average` counts rows
    settings = Settings(
        solver=solver,
        s=auto_s(size, comm.size, on_gpu=on_gpu) if options.s == AUTO else int(options.s),
        sampling=sampling,
        schedule=schedule(
            options.learning_rate, eta0 or 1.0, power_t=float(options.power_t), n_iterations=n_iterations
        ),
        penalty=Penalty(float(options.alpha), float(options.l1_ratio)),
        fit_intercept=bool(options.fit_intercept),
        gradient=options.gradient,
        momentum=float(options.momentum),
        average=-(-first_row // size) if options.average else None,
        precision=precision,
        max_iter=options.max_iter if last_epoch is None else last_epoch,
        tol=None if options.tol is None or options.tol < 0 else float(options.tol),
        n_iter_no_change=options.n_iter_no_change,
    )
    if eta0 is not None:
        return settings
    found = float(f"{auto_eta0(problem, settings, comm):.3g}")
    return replace(settings, schedule=replace(settings.schedule, eta0=found))


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


def pays_in_blocks(problem: Problem, batch_size: int) -> bool:
    """Whether CA-SGD pays in one process: on a GPU, unless batches are so small that SGD runs in one launch.

    A block of s iterations costs a few launches there, instead of a few per iteration.
    """
    small = problem.n_outputs == 1 and problem.columns.n * batch_size <= LARGEST_BATCH
    return problem.columns.device.type == "cuda" and not small


def auto_eta0(problem: Problem, settings: Settings, comm: Communicator) -> float:
    """A step size that is safe for the steepest of a few batches: 1 / (κ g max_j λ_max(W_j (Y_j Y_jᵀ + 1 1ᵀ)) + λ).

    κ is the family's curvature and g the factor of a batch's gradient, 1 / b for a mean. The Hessian of the loss of
    batch j has no eigenvalue larger than κ g λ_max, so a step of its inverse never overshoots on that batch; the ones
    stand for the intercept. With momentum μ the step is (1 − μ) times that. One AllReduce of 16 Gram matrices.

    Raises `BadTable` for an X so large that no number is left for the step.
    """
    b = min(settings.sampling.batch_size, problem.n_rows, LARGEST_SAMPLE)
    n_batches = min(SAMPLED_BATCHES, problem.n_rows // b)
    order = Sampling("shuffle", seed=settings.sampling.seed).epoch(problem.n_rows, 0)[: n_batches * b]
    rows: np.ndarray = order if problem.rows is None else problem.rows[order]
    gram = problem.columns.take(rows, torch.float64).batch_grams(n_batches)
    gram = Wire(comm).all_reduce(gram) + (1.0 if settings.fit_intercept else 0.0)
    if not bool(torch.isfinite(gram).all()):
        raise BadTable("X is so large that products of its rows overflow float64; standardise its columns")
    index = torch.from_numpy(rows)
    w = problem.weights_as(torch.float64)[index]
    root = w.reshape(n_batches, b).sqrt()
    steepest = float(torch.linalg.eigvalsh(root[:, :, None] * gram * root[:, None, :]).max())
    scale = 1.0 / b if settings.gradient == "mean" else settings.sampling.batch_size / b
    curvature = problem.family.curvature(problem.y[index][w > 0], w[w > 0]) * scale * steepest + settings.penalty.l2
    eta0 = (1 - settings.momentum) / curvature if curvature > 0 else 1.0
    carrier = settings.precision.carrier
    if not torch.tensor(eta0, dtype=carrier):
        what = f"X is so large that a step has to be {eta0:.1g}, which is 0 in {str(carrier).removeprefix('torch.')}"
        raise BadTable(f"{what}; standardise its columns, or take ", Option("recipe", "fp64"))
    return eta0


def text_format(asked: "str | Precision") -> str:
    """What to read text in, for a recipe: its own format, or of one that is found on the data the widest it may be.

    >>> text_format("auto"), text_format("auto:1e-3"), text_format("C"), text_format("fp64")
    ('fp32', 'fp64', 'bf16', 'fp64')
    """
    if is_auto(asked):
        return "fp32" if asked == AUTO else "fp64"
    data = recipe(asked).data
    return data if data in ("fp64", "bf16") else "fp32"


def precision_for(asked: "str | Precision", dtype: torch.dtype) -> Precision:
    """The recipe asked for; one that is ours to choose begins with what X came in.

    float64 is computed with in float64, as scikit-learn does; bfloat16 stays so in memory, and everything else is
    float32.

    >>> precision_for("auto", torch.float64).short_name(), precision_for("auto", torch.bfloat16).short_name()
    ('fp64', 'fp32 data=bf16')
    """
    if isinstance(asked, Precision) or not is_auto(asked):
        return recipe(asked)
    if dtype == torch.bfloat16:
        return replace(recipe("fp32"), data="bf16")
    return recipe("fp64" if dtype == torch.float64 else "fp32")


def find_recipe(asked: "str | Precision", problem: Problem, settings: Settings, comm: Communicator) -> ChosenRecipe:
    """The recipe asked for, or the one to take, and why; every rank calls this.

    "auto" is float64 for a float64 X, as scikit-learn has it. Otherwise it is float32, unless CA-SGD runs on several
    ranks and X is so large that it can matter: then, as with a tolerance of one's own ("auto:1e-3"), the cheapest
    recipe whose measured error meets the tolerance (by default a hundredth of a step) is used.
    """
    from laconic.glm.analysis import choice

    own = settings.precision
    name = own.short_name()
    if isinstance(asked, Precision) or not is_auto(asked):
        return ChosenRecipe(own, f"{name}: as asked for")
    if problem.columns.device.type != "cpu":
        return ChosenRecipe(own, f"{name}: X lies on a GPU, where no recipe is looked for yet")
    tolerance = tolerance_of(asked)
    if tolerance is not None:
        try:
            return choice.auto_precision(problem, settings, tolerance, comm, strict=True)
        except ValueError as error:
            raise InvalidOption(Option("recipe", asked), f": {error}") from error
    if own.data == "fp64":
        return ChosenRecipe(own, "fp64: X is float64")
    if settings.solver == "sgd" or comm.size == 1:
        return ChosenRecipe(own, f"{name}: X has no more, and in one process shorter formats save no messages")
    if problem.columns.m * _mean_columns(problem, comm) < WORTH_IT:
        return ChosenRecipe(own, f"{name}: X is too small for shorter formats to save time")
    return choice.auto_precision(problem, settings, choice.TOLERANCE, comm, strict=False)


def _mean_columns(problem: Problem, comm: Communicator) -> int:
    """Columns of a rank: the mean, which all ranks agree on."""
    total = torch.tensor([problem.columns.n])
    comm.all_reduce(total)()
    return int(total) // comm.size


def stored_as(problem: Problem, precision: Precision) -> Problem:
    """The problem with X stored as a recipe says."""
    columns, dtype = problem.columns, precision.format("data").storage
    if isinstance(columns, DenseColumns) and columns.X.dtype != dtype:
        columns = DenseColumns(columns.X.to(dtype))
    elif isinstance(columns, SparseColumns) and columns.matrix[0].dtype != dtype:
        values, index, begins = columns.matrix
        columns = SparseColumns(values.to(dtype), index, begins, columns.n)
    return replace(problem, columns=columns)


def require_gpu(device: str | None) -> None:
    """Raise `BackendUnavailable` where a GPU was asked for and there is none: before anything is read."""
    if device is not None and device.startswith("cuda") and not torch.cuda.is_available():
        asked = Option("device", device)
        raise BackendUnavailable(asked, ", but there is no CUDA GPU here; leave ", Option("device"), " out")


def placed(problem: Problem, device: str | None, n_ranks: int = 1) -> Problem:
    """The problem in the memory that `device` says: None for where its columns are.

    "auto" is a GPU where there is one and it can be used: one process, a dense X.

    >>> from laconic.glm.families import Gaussian
    >>> placed(Problem(DenseColumns(torch.ones(2, 2)), Gaussian(), torch.ones(2)), "cpu").y.device
    device(type='cpu')
    """
    if device == AUTO:
        usable = torch.cuda.is_available() and n_ranks == 1 and isinstance(problem.columns, DenseColumns)
        device = "cuda" if usable else None
    columns = problem.columns if device is None else _placed_columns(problem.columns, device)
    weights = None if problem.weights is None else problem.weights.to(columns.device)
    offset = None if problem.offset is None else problem.offset.to(columns.device)
    return replace(problem, columns=columns, y=problem.y.to(columns.device), weights=weights, offset=offset)


def _placed_columns(columns: Columns, device: str) -> Columns:
    wanted = torch.device(device)
    if wanted == columns.device:
        return columns
    if not isinstance(columns, DenseColumns):
        why = " needs a dense X, and this one is sparse: pass it dense (a LIBSVM file with "
        raise InvalidOption(
            Option("device", device), why, Option("dense", True), "), or leave ", Option("device"), " out"
        )
    require_gpu(device)
    if wanted.type == "cuda" and columns.X.device.type == "cpu":
        free, _ = torch.cuda.mem_get_info(wanted)
        if columns.X.numel() * columns.X.element_size() > SHARE * free:
            return PinnedColumns(columns.X, wanted)
    return DenseColumns(columns.X.to(wanted))


def solve_with_smaller_steps(settings: Settings, run: Callable[[Settings], T], *, chosen: bool) -> tuple[T, Settings]:
    """What `run` finds from the start, with the settings that it took: where the loss diverges, a quarter of the step.

    Every rank sees the same loss, so all of them begin again.

    chosen  whether the step size was ours to choose; with one of the user's own, `Diverged` is raised
    """
    for _ in range(ATTEMPTS):
        try:
            return run(settings), settings
        except Diverged:
            if not chosen:
                raise
            settings = _smaller(settings)
    return run(settings), settings


def as_before(settings: Settings, eta0: object) -> Settings:
    """The settings with the step size that a former run had come to; as they are, if that is none of ours."""
    tried = settings
    for _ in range(ATTEMPTS):
        tried = _smaller(tried)
        if tried.schedule.eta0 == eta0:
            return tried
    return settings


def _smaller(settings: Settings) -> Settings:
    schedule = settings.schedule
    return replace(settings, schedule=replace(schedule, eta0=schedule.eta0 * SMALLER_STEP))
