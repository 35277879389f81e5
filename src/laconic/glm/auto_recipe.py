"""Recipes that are ours to choose: "auto", and "auto:1e-3" for the cheapest within a tolerance."""

from dataclasses import replace
from typing import Any

import torch

from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm.analysis.auto import TOLERANCE, Found, auto_precision
from laconic.glm.columns import Columns, DenseColumns, SparseColumns
from laconic.glm.precision import Precision, recipe
from laconic.glm.problem import Problem
from laconic.glm.solvers import Settings

WORTH_IT = 2**24
"""Values of X on a rank from which on shorter formats can save more than it costs to choose them."""


def is_auto(chosen: "str | Precision") -> bool:
    """Whether a recipe is ours to choose: "auto", or "auto:" and a tolerance."""
    return isinstance(chosen, str) and (chosen == "auto" or chosen.startswith("auto:"))


def tolerance_of(chosen: str) -> float | None:
    """What "auto:1e-3" asks for; None for "auto" alone.

    >>> tolerance_of("auto:1e-3"), tolerance_of("auto")
    (0.001, None)
    """
    if chosen == "auto":
        return None
    try:
        tolerance = float(chosen.removeprefix("auto:"))
    except ValueError:
        tolerance = 0.0
    if not 0 < tolerance < 1:
        what = ": after 'auto:' comes the largest error of an outer iteration as a share of its step, "
        raise InvalidOption(Option("recipe", chosen), what, "between 0 and 1, such as 'auto:1e-3'")
    return tolerance


def precision_for(chosen: "str | Precision", dtype: torch.dtype) -> Precision:
    """The recipe asked for; one that is ours to choose begins with what X came in.

    float64 is computed with in float64, as scikit-learn does; bfloat16 stays so in memory, and everything else is
    float32.

    >>> precision_for("auto", torch.float64).short_name(), precision_for("auto", torch.bfloat16).short_name()
    ('fp64', 'fp32 data=bf16')
    """
    if isinstance(chosen, Precision) or not is_auto(chosen):
        return recipe(chosen)
    if dtype == torch.bfloat16:
        return replace(recipe("fp32"), data="bf16")
    return recipe("fp64" if dtype == torch.float64 else "fp32")


def find_recipe(chosen: Any, problem: Problem, settings: Settings, comm: Communicator) -> Found:
    """The recipe asked for, or the one to take, and why; every rank calls this.

    "auto" is float64 for a float64 X, as scikit-learn has it. Otherwise it is float32, unless CA-SGD runs on several
    ranks and X is so large that it can matter: then, as with a tolerance of one's own ("auto:1e-3"), the cheapest
    recipe whose measured error meets the tolerance (by default a hundredth of a step) is used.
    """
    own = settings.precision
    if not is_auto(chosen):
        return Found(own, f"{own.short_name()}: as asked for")
    if problem.columns.device.type != "cpu":
        return Found(own, f"{own.short_name()}: X lies on a GPU, where no recipe is looked for yet")
    asked = tolerance_of(chosen)
    if asked is not None:
        return auto_precision(problem, settings, asked, comm, strict=True)
    if own.data == "fp64":
        return Found(own, "fp64: X is float64")
    if settings.solver == "sgd" or comm.size == 1:
        return Found(own, f"{own.short_name()}: X has no more, and in one process shorter formats save no messages")
    if problem.columns.m * _mean_columns(problem, comm) < WORTH_IT:
        return Found(own, f"{own.short_name()}: X is too small for shorter formats to save time")
    return auto_precision(problem, settings, TOLERANCE, comm, strict=False)


def with_recipe(problem: Problem, settings: Settings, found: Found) -> tuple[Problem, Settings]:
    """The same with that recipe, X stored as it says."""
    if found.precision == settings.precision:
        return problem, settings
    columns = stored_as(problem.columns, found.precision.format("data").storage)
    return replace(problem, columns=columns), replace(settings, precision=found.precision)


def _mean_columns(problem: Problem, comm: Communicator) -> int:
    """Columns of a rank: the mean, which all ranks agree on."""
    total = torch.tensor([problem.columns.n])
    comm.all_reduce(total)()
    return int(total) // comm.size


def stored_as(columns: Columns, dtype: torch.dtype) -> Columns:
    """The same columns in another type."""
    if isinstance(columns, DenseColumns):
        return DenseColumns(columns.X.to(dtype)) if columns.X.dtype != dtype else columns
    if isinstance(columns, SparseColumns):
        values, index, begins = columns.matrix
        return SparseColumns(values.to(dtype), index, begins, columns.n) if values.dtype != dtype else columns
    return columns
