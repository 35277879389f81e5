"""A fit from a file to a model file and a report: what each rank of `laconic fit` does."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from laconic.atomic_write import check_writable
from laconic.data import BadTable
from laconic.exchange import Communicator
from laconic.extras import require
from laconic.glm.data import Data, codes
from laconic.glm.fit import Checkpointing, Fit, prepare, resolve, run
from laconic.glm.model import Model
from laconic.glm.options import FitOptions, is_auto
from laconic.glm.ranks import user_errors
from laconic.glm.resolve import require_gpu, text_format
from laconic.glm.scores import Scores, training_scores
from laconic.glm.solvers import Callback, Progress, Settings
from laconic.glm.source import Source, inputs_of, load, rows_for

OnProgress = Callable[[str], None]
PROGRESS_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class FileFit:
    """A fit to a file, as JSON values.

    data, test  rows to fit to, and a file of rows to judge by
    output      file of the model
    checkpoint  folder, or None; `checkpoint_every` and `resume` are as in `Checkpointing`
    """

    data: Source
    output: str
    options: FitOptions = field(default_factory=FitOptions)
    test: str | None = None
    checkpoint: str | None = None
    checkpoint_every: float = 300.0
    resume: bool = False

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "FileFit":
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**values, "data": Source(**values["data"]), "options": FitOptions(**values["options"])})


def run_job(on_progress: OnProgress, *, job: Mapping[str, Any]) -> dict[str, Any]:
    """`fit_file` on the ranks there are; every rank calls this. What is returned is JSON: rank 0 gives the report.

    What is the user's to mend is raised as a `LaconicError`, on every rank.
    """
    return fit_file(FileFit.from_json(job), on_progress)


def fit_file(
    job: FileFit, on_progress: OnProgress = lambda text: None, callbacks: Sequence[Callback] = ()
) -> dict[str, Any]:
    """Read this rank's columns, fit, score, and save the model on rank 0; returns the report.

    on_progress  called with JSON that says where the fit stands, some times a second
    """
    comm, began, options = Communicator.over(), time.perf_counter(), job.options
    with user_errors(comm):
        check_writable(Path(job.output))
        require("safetensors.torch", for_="saving a model", extra="glm")
        require_gpu(options.device)
        table = load(job.data, comm, text_format(options.recipe))
        names, inputs = table.feature_names, inputs_of(job.data, table)
        data = Data.of_table(table, options)
        del table  # from here on X is kept once, as it was prepared
        prepared = prepare(options, data, comm)
        del data
    on_progress(json.dumps({"n_epochs": options.max_iter, "epoch": 0, "fraction": 0.0}))
    callbacks = [_reporter(on_progress, options.max_iter), *callbacks]
    resolved = resolve(options, prepared, comm)
    del prepared
    checkpointing = None
    if job.checkpoint is not None:
        checkpointing = Checkpointing(Path(job.checkpoint), job.checkpoint_every, job.resume)
    fitted = run(options, resolved, comm, callbacks=callbacks, checkpointing=checkpointing)
    scores = training_scores(fitted.data.problem, fitted.data.weights, fitted.solution.state, comm)
    coef, intercept = fitted.coefficients(comm)
    settings = _settings(options, fitted.settings)
    classes, family = fitted.data.classes, fitted.data.problem.family.option
    model, tested = Model(coef, intercept, family, classes, names, inputs, settings, scores.summary()), None
    with user_errors(comm):
        if comm.rank == 0:
            tested = None if job.test is None else scores_of_file(model, job.data, job.test)
            model.save(job.output)
    more = {"test_metrics": tested, "seconds": time.perf_counter() - began}
    return _report(job, fitted, model, scores, comm) | more


def scores_of_file(model: Model, like: Source, path: str) -> dict[str, float]:
    """Scores of the rows of another file with the same columns, on this rank alone."""
    scores = Scores(model.kind)
    rows, blocks = rows_for(model, replace(like, path=path))
    if not rows.has_target:
        raise BadTable(f"{path} has no target to judge by")
    n_before = 0
    for block in blocks:
        z = model.margins(block.X, block.offset)
        y = block.y if model.classes is None else codes(block.y, rows.classes, model.classes, n_before)
        scores.add(z, y, block.sample_weight, block.offset)
        n_before += block.n_rows
    return scores.summary()


def _settings(options: FitOptions, settings: Settings) -> dict[str, Any]:
    """What was fitted with, as JSON values, by the names of the command line's options."""
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
        "standardize": options.standardize,
        "max_iter": settings.max_iter,
        "tol": settings.tol,
        "seed": settings.sampling.seed,
        "tweedie_power": options.tweedie_power,
    }


def _report(job: FileFit, fitted: Fit, model: Model, scores: Scores, comm: Communicator) -> dict[str, Any]:
    """The report of a fit, as JSON values."""
    state, solution, chosen = fitted.solution.state, fitted.solution, fitted.recipe
    return {
        "data": job.data.path,
        "n_rows": fitted.data.problem.columns.m,
        "n_features": fitted.data.n_features,
        "family": model.family,
        "classes": None if model.classes is None else list(model.classes),
        "ranks": comm.size,
        "ran": solution.ran,
        "settings": dict(model.settings),
        "recipe_explained": chosen.explained if is_auto(job.options.recipe) else None,
        "recipe_measured": chosen.precision != fitted.data.precision or job.options.recipe != "auto",
        "epochs": state.epoch,
        "iterations": state.iteration,
        "outcome": solution.outcome.name.lower(),
        "because": solution.outcome.value,
        "loss": scores.loss,
        "metrics": dict(model.metrics),
        "fit_seconds": state.seconds,
        "messages": state.messages,
        "bytes_sent": state.bytes_sent,
        "history": state.history,
        "model": job.output,
    }


def _reporter(on_progress: OnProgress, n_epochs: int) -> Callback:
    """A callback that says where the fit stands, some times a second."""
    last = 0.0

    def report(progress: Progress) -> None:
        nonlocal last
        if time.perf_counter() - last < PROGRESS_SECONDS:
            return
        last = time.perf_counter()
        done = {"epoch": progress.epoch, "fraction": progress.fraction, "loss": progress.loss, "n_epochs": n_epochs}
        rate = progress.iteration / max(progress.state.seconds, 1e-9)
        on_progress(json.dumps({**done, "iterations_per_second": rate}))

    return report
