"""What comes of a fit: the model, and a report."""

from typing import Any

import torch

from laconic.exchange import Communicator
from laconic.glm.job.prepared import Prepared
from laconic.glm.job.source import one_hot_of
from laconic.glm.job.task import Task
from laconic.glm.model import Model
from laconic.glm.ranks import gather
from laconic.glm.scores import Scores
from laconic.glm.solvers import Settings, Solution, State


def make_model(
    task: Task, data: Prepared, settings: Settings, state: State, scores: Scores, comm: Communicator
) -> Model:
    """The whole model, on rank 0; on the others one of their own columns, not to be used."""
    coef, intercept = state.coef.cpu(), state.intercept.cpu()
    if data.scaling is not None:
        coef, shift = data.scaling.undo(coef)
        comm.all_reduce(shift)()
        intercept = (intercept.double() - shift).to(coef.dtype)
    parts = [part.view(len(coef), -1) for part in gather(comm, coef)]
    names = data.feature_names if comm.rank == 0 else None
    source = task.data
    inputs = {
        "target": source.target,
        "offset": source.offset,
        "exposure": source.exposure,
        "one_hot": one_hot_of(source, data.feature_names),
        "zero_based": data.zero_based,
    }
    return Model(
        torch.cat(parts, 1) if comm.rank == 0 else coef.clone(),
        intercept.clone(),
        data.family,
        data.classes,
        names,
        inputs,
        summary(task, settings),
        scores.summary(),
    )


def summary(task: Task, settings: Settings) -> dict[str, Any]:
    """Settings as JSON values, by the names of the command line's options."""
    return {
        "recipe": settings.precision.short_name(),
        "solver": settings.solver,
        "s": settings.s,
        "batch_size": settings.sampling.batch_size,
        "alpha": settings.penalty.alpha,
        "l1_ratio": settings.penalty.l1_ratio,
        "eta0": settings.schedule.eta0,
        "learning_rate": settings.schedule.name,
        "momentum": settings.momentum,
        "intercept": settings.fit_intercept,
        "standardize": task.standardize,
        "max_iter": settings.max_iter,
        "tol": settings.tol,
        "seed": settings.sampling.seed,
    }


def report(
    task: Task, data: Prepared, settings: Settings, solution: Solution, scores: Scores, comm: Communicator
) -> dict[str, Any]:
    """What there is to tell of a fit, as JSON values."""
    state = solution.state
    return {
        "data": task.data.path,
        "n_rows": data.problem.columns.m,
        "n_features": data.n_features,
        "family": data.family,
        "classes": None if data.classes is None else list(data.classes),
        "ranks": comm.size,
        "ran": solution.ran,
        "settings": summary(task, settings),
        "epochs": state.epoch,
        "iterations": state.iteration,
        "outcome": solution.outcome.name.lower(),
        "because": solution.outcome.value,
        "loss": scores.loss,
        "metrics": scores.summary(),
        "fit_seconds": state.seconds,
        "messages": state.messages,
        "bytes_sent": state.bytes_sent,
        "history": state.history,
        "model": task.output,
    }
