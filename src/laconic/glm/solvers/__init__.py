"""Solvers over blocks of columns: SGD, and CA-SGD, which says the same with fewer messages."""

from laconic.glm.solvers.history import Callback, Diverged, Outcome, Progress, Solution
from laconic.glm.solvers.settings import Settings
from laconic.glm.solvers.solve import begin, solve
from laconic.glm.solvers.state import State

__all__ = ["Callback", "Diverged", "Outcome", "Progress", "Settings", "Solution", "State", "begin", "solve"]
