"""Solvers over blocks of columns: SGD, and CA-SGD, which takes the same steps with fewer messages."""

from laconic.glm.solvers.solve import solve
from laconic.glm.solvers.state import Callback, Diverged, Outcome, Progress, Solution, State, begin

__all__ = [
    "Callback",
    "Diverged",
    "Outcome",
    "Progress",
    "Solution",
    "State",
    "begin",
    "solve",
]
