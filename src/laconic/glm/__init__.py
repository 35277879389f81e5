"""Generalised linear models over blocks of columns, trained with few messages and few bits."""

from laconic.glm.columns import Columns, DenseColumns, PinnedColumns, SparseColumns
from laconic.glm.families import Family, registry
from laconic.glm.families.registry import *  # noqa: F403 (each is listed there, and only there)
from laconic.glm.model import Model
from laconic.glm.options import FitOptions
from laconic.glm.precision import KNOBS, RECIPES, Precision, recipe
from laconic.glm.problem import Problem
from laconic.glm.resolve import auto_eta0, auto_s
from laconic.glm.solvers import Callback, Diverged, Outcome, Progress, Solution, State, begin, solve
from laconic.glm.sweep import path

__all__ = [
    "KNOBS",
    "RECIPES",
    "Callback",
    "Columns",
    "DenseColumns",
    "Diverged",
    "Family",
    "FitOptions",
    "Model",
    "Outcome",
    "PinnedColumns",
    "Precision",
    "Problem",
    "Progress",
    "Solution",
    "SparseColumns",
    "State",
    "auto_eta0",
    "auto_s",
    "begin",
    "path",
    "recipe",
    "solve",
]
__all__ += registry.__all__
