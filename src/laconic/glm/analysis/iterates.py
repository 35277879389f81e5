"""Outer iterations of a real fit to look at: at its start, and on the way."""

from copy import deepcopy
from dataclasses import replace

import numpy as np

from laconic.glm.analysis.sample import Sample, take_sample
from laconic.glm.attempts import solve_with_smaller_steps
from laconic.glm.precision import recipe
from laconic.glm.problem import Problem
from laconic.glm.solvers import Progress, Settings, State, begin, solve


def samples(
    problem: Problem, settings: Settings, *, n_ranks: int, n_blocks: int, smaller: bool = False
) -> tuple[list[Sample], Settings]:
    """Blocks at even distances in the first epoch of a float64 fit, the start and the end included.

    smaller  whether to take a smaller step, from the start, where the loss diverges

    Returns them and the settings that were used: without momentum, averaging and L1, which the analysis leaves out.
    """
    settings = replace(
        settings, solver="ca_sgd", precision=recipe("fp64"), momentum=0.0, average=None, max_iter=1, tol=None
    )
    settings = replace(settings, penalty=replace(settings.penalty, alpha=settings.penalty.l2, l1_ratio=0.0))
    states, settings = solve_with_smaller_steps(settings, lambda tried: _states(problem, tried), chosen=smaller)
    chosen = np.unique(np.linspace(0, len(states) - 1, n_blocks).round().astype(int))
    return [take_sample(problem, settings, states[i], n_ranks) for i in chosen], settings


def _states(problem: Problem, settings: Settings) -> list[State]:
    state = begin(problem, settings)
    found = [deepcopy(state)]

    def keep(progress: Progress) -> None:
        found.append(deepcopy(progress.state))

    solve(problem, replace(settings, solver="sgd"), state=state, callbacks=[keep])
    return found
