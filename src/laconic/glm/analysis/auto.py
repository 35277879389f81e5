"""A recipe for a fit that is about to begin, on however many ranks."""

from dataclasses import replace

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.exchange.agreement import gather_json
from laconic.glm.analysis.analyse import analyse
from laconic.glm.analysis.choice import choose
from laconic.glm.analysis.devices import DEVICES
from laconic.glm.analysis.sample import Sample, take_sample
from laconic.glm.precision import KNOBS, ChosenRecipe, Precision
from laconic.glm.problem import Problem
from laconic.glm.ranks import gather
from laconic.glm.solvers import Diverged, Progress, Settings, begin, solve

TOLERANCE = 1e-2
"""Of a step. Which rows a batch has changes the step by about its own size, a hundred times as much."""


def auto_precision(
    problem: Problem, settings: Settings, tolerance: float, comm: Communicator, *, strict: bool
) -> ChosenRecipe:
    """The cheapest recipe that meets a tolerance on this problem; every rank calls this, and gets the same.

    strict  whether what cannot be met or analysed is a `ValueError`, on every rank; otherwise the recipe stays

    1. a sixteenth of an epoch, as the settings have it;
    2. the outer iterations at its start and at its end, with the columns of all ranks;
    3. every knob's error on these, measured; rank 0 chooses, and tells the others.
    """
    usual = replace(settings, solver="ca_sgd")
    state = begin(problem, usual)
    taken = [take_sample(problem, usual, state, 1)]
    try:
        solve(problem, usual, comm=comm, state=state, callbacks=[_stop])
    except Diverged as error:
        return ChosenRecipe(
            settings.precision, f"{settings.precision.short_name()}: no recipe was looked for, since {error}"
        )
    taken.append(take_sample(problem, usual, state, 1))
    whole = [_whole(sample, comm) for sample in taken]
    text = _choice(whole, tolerance) if comm.rank == 0 else ""
    names, _, explained = gather_json(comm, text)[0].partition("\n")
    if not names and strict:
        raise ValueError(explained)
    if not names:
        return ChosenRecipe(settings.precision, f"{settings.precision.short_name()}: {explained}")
    return ChosenRecipe(Precision(**dict(zip(KNOBS, names.split(), strict=True))), explained)


def _stop(progress: Progress) -> bool:
    return True


def _choice(samples: list[Sample], tolerance: float) -> str:
    """The nine formats, or nothing where there is no choice, and on the second line why."""
    device = DEVICES["cpu"]
    try:
        choice = choose(analyse(samples, device, bounded=False), device, tolerance)
    except ValueError as error:
        return f"\n{error}"
    return " ".join(choice.precision.format(knob).name for knob in KNOBS) + f"\n{choice.explain()}"


def _whole(sample: Sample, comm: Communicator) -> Sample:
    """With the columns of all ranks, cut as they are."""
    if comm.size == 1:
        return sample
    k, n_outputs = sample.Y.shape[0], sample.x.shape[0]
    blocks = [part.view(-1, k).T for part in gather(comm, sample.Y.T.contiguous())]
    own, idle = (
        torch.cat([part.view(n_outputs, -1) for part in gather(comm, values.contiguous())], 1)
        for values in (sample.x, sample.idle)
    )
    cuts = tuple(np.cumsum([0, *(block.shape[1] for block in blocks)]).tolist())
    return replace(sample, Y=torch.cat(blocks, 1).contiguous(), x=own, idle=idle, column_cuts=cuts)
