"""The recipe of an estimator's fit."""

from typing import Any

from laconic.exchange import Communicator
from laconic.glm.analysis.auto import Found
from laconic.glm.auto_recipe import find_recipe, is_auto, with_recipe
from laconic.glm.problem import Problem
from laconic.glm.solvers import Settings


def choose_recipe(
    estimator: Any, problem: Problem, settings: Settings, comm: Communicator, *, going_on: bool
) -> tuple[Problem, Settings]:
    """The problem and its settings with the recipe to use; sets `recipe_` and `recipe_explained_`.

    A fit that goes on keeps the recipe it began with.
    """
    if going_on and is_auto(estimator.recipe) and hasattr(estimator, "recipe_"):
        found = Found(estimator.recipe_, estimator.recipe_explained_)
    else:
        found = find_recipe(estimator.recipe, problem, settings, comm)
    estimator.recipe_, estimator.recipe_explained_ = found.precision, found.explained
    return with_recipe(problem, settings, found)
