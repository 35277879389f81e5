"""Beginning again with smaller steps, where the step size was ours to choose."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from laconic.glm.solvers import Diverged, Settings

T = TypeVar("T")
ATTEMPTS, SMALLER_STEP = 7, 0.25
"""How often to begin again after the loss diverged, and by how much the step shrinks each time."""


def solve_with_smaller_steps(settings: Settings, run: Callable[[Settings], T], *, chosen: bool) -> tuple[T, Settings]:
    """What `run` finds from the start, with the settings that it took: where the loss diverges, a quarter of the step.

    Every rank sees the same loss, so all of them begin again.

    chosen  whether the step size was ours to choose; one of the user's own that diverges is told
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
