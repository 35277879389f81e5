"""The recipe of a fit, where it is ours to choose."""

from dataclasses import replace
from typing import Any

import torch

from laconic.exchange import Communicator
from laconic.glm.analysis.auto import TOLERANCE, Found, auto_precision
from laconic.glm.columns import Columns, DenseColumns, SparseColumns
from laconic.glm.estimators.parameters import is_auto, tolerance_of
from laconic.glm.problem import Problem
from laconic.glm.solvers import Settings

WORTH_IT = 2**24
"""Values of X on a rank from which on shorter formats can save more than it costs to choose them."""


def choose_recipe(
    estimator: Any, problem: Problem, settings: Settings, comm: Communicator, *, going_on: bool
) -> tuple[Problem, Settings]:
    """The problem and its settings with the recipe to use; sets `recipe_` and `recipe_explained_`.

    "auto" is float64 for a float64 X, as scikit-learn has it. Otherwise it is float32, unless CA-SGD runs on several
    ranks and X is so large that it can matter: then, as with a tolerance of one's own ("auto:1e-3"), the cheapest
    recipe whose measured error meets the tolerance (by default a hundredth of a step) is used. A fit that goes on keeps
    the recipe it began with.
    """
    if going_on and is_auto(estimator.recipe) and hasattr(estimator, "recipe_"):
        found = Found(estimator.recipe_, estimator.recipe_explained_)
    else:
        found = _find(estimator.recipe, problem, settings, comm)
    estimator.recipe_, estimator.recipe_explained_ = found.precision, found.explained
    if found.precision == settings.precision:
        return problem, settings
    columns = stored_as(problem.columns, found.precision.format("data").storage)
    return replace(problem, columns=columns), replace(settings, precision=found.precision)


def _find(chosen: Any, problem: Problem, settings: Settings, comm: Communicator) -> Found:
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
    if problem.columns.m * _widest(problem, comm) < WORTH_IT:
        return Found(own, f"{own.short_name()}: X is too small for shorter formats to save time")
    return auto_precision(problem, settings, TOLERANCE, comm, strict=False)


def _widest(problem: Problem, comm: Communicator) -> int:
    """Columns of a rank, as all ranks count them: their mean."""
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
