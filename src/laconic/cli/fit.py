"""`laconic fit DATA`."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from laconic.cli import fit_options as o
from laconic.cli.command import resumable
from laconic.cli.errors import BadInput
from laconic.cli.fit_progress import fit_progress
from laconic.cli.fit_text import lines
from laconic.cli.numbers import AUTO, positive_or_auto, whole_number, whole_or_auto

if TYPE_CHECKING:
    from laconic.glm.job import Task

TIMEOUT_SECONDS = 30 * 24 * 3600.0


def fit(
    data: Annotated[
        Path, typer.Argument(help="LIBSVM, CSV, Parquet, .npy, .npz, or a store made by `laconic convert`.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the model goes (safetensors).")],
    family: Annotated[
        str | None,
        typer.Option(help="logistic, multinomial, linear or poisson; by default logistic where y has two values."),
    ] = None,
    target: o.Target = None,
    weight: o.Weight = None,
    offset: o.Offset = None,
    exposure: o.Exposure = None,
    one_hot: o.OneHot = None,
    drop: o.Drop = None,
    dense: o.Dense = False,
    n_features: o.NFeatures = None,
    standardize: Annotated[
        bool,
        typer.Option("--standardize", help="Fit to columns of mean 0 and variance 1 (a sparse X is not centred)."),
    ] = False,
    recipe: Annotated[
        str, typer.Option(help="Precision: fp32, fp64, C, D, auto, or auto:1e-3 for the cheapest that errs by no more.")
    ] = "fp32",
    solver: Annotated[str, typer.Option(help="sgd, ca_sgd, or auto: sgd in one process, ca_sgd on ranks.")] = AUTO,
    s: Annotated[str, typer.Option(metavar="N", help="Iterations that share a message, or auto.")] = AUTO,
    batch_size: Annotated[int, typer.Option(parser=whole_number(), help="Rows of a batch.")] = 32,
    alpha: Annotated[float, typer.Option(help="Strength of the penalty.")] = 1e-4,
    l1_ratio: Annotated[float, typer.Option(help="Share of the penalty that is on absolute values.")] = 0.0,
    intercept: Annotated[bool, typer.Option(help="Whether there is an intercept.")] = True,
    eta0: Annotated[str, typer.Option(metavar="NUMBER", help="First step size, or auto.")] = AUTO,
    learning_rate: Annotated[str, typer.Option(help="constant, invscaling, cosine or adaptive.")] = "adaptive",
    momentum: Annotated[float, typer.Option(help="From 0 to less than 1.")] = 0.0,
    max_iter: Annotated[int, typer.Option(parser=whole_number(), help="Epochs, at most.")] = 100,
    tol: Annotated[
        float, typer.Option(help="Stop when epochs no longer lower the loss by more; negative: run all epochs.")
    ] = 1e-4,
    seed: Annotated[int, typer.Option(parser=whole_number(least=0), help="Of the order of the rows.")] = 0,
    ranks: Annotated[
        int | None, typer.Option(parser=whole_number(most=1024), help="Local processes to share the columns among.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where to compute, in one process: cpu, cuda, or auto for a GPU where there is one.")
    ] = "cpu",
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Rows to judge the model by.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Save the fit's state here, to go on from with --resume.")
    ] = None,
    checkpoint_every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.0, help="Seconds after which --checkpoint saves within an epoch, too."),
    ] = 300.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, if there is one.")] = False,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """Fit a generalised linear model to a file.

    Under torchrun, uses its ranks: each reads its own columns.
    """
    given = dict(locals())
    with resumable(checkpoint):
        task = make_task(given)
        report = _on_ranks(task, ranks, quiet=quiet)
    if report is None:
        return
    if as_json:
        typer.echo(json.dumps(report, indent=2, allow_nan=False))
        return
    for line in lines(report):
        typer.echo(line)


def make_task(given: dict[str, Any]) -> "Task":
    """The options as a task."""
    from laconic.glm.job import Task

    if given["resume"] and given["checkpoint"] is None:
        raise BadInput("--resume needs --checkpoint FOLDER, where the fit was saved")
    same = ["family", "standardize", "recipe", "batch_size", "alpha", "l1_ratio", "intercept", "learning_rate"]
    same += ["momentum", "max_iter", "seed", "device", "checkpoint_every", "resume"]
    return Task(
        data=o.source(given),
        output=str(given["output"]),
        test=None if given["test"] is None else str(given["test"]),
        solver=None if given["solver"] == AUTO else given["solver"],
        s=whole_or_auto("--s", given["s"]),
        eta0=positive_or_auto("--eta0", given["eta0"]),
        tol=None if given["tol"] < 0 else given["tol"],
        checkpoint=None if given["checkpoint"] is None else str(given["checkpoint"]),
        **{name: given[name] for name in same},
    )


def _on_ranks(task: "Task", ranks: int | None, *, quiet: bool) -> dict[str, Any] | None:
    """The report of rank 0; None on the other ranks of torchrun."""
    from laconic.exchange.launch import Host, inside_torchrun, join_ranks, start_ranks
    from laconic.glm import job

    arguments = {"task": asdict(task)}
    if inside_torchrun():
        size = int(os.environ["WORLD_SIZE"])
        if ranks not in (None, size):
            raise BadInput(f"torchrun has started {size} ranks and --ranks says {ranks}; leave --ranks out")
        joined = join_ranks(
            "laconic.cli.fit_progress:fit_showing", arguments | {"quiet": quiet}, timeout_seconds=TIMEOUT_SECONDS
        )
        return None if joined is None else cast(dict[str, Any], joined[0])
    with fit_progress(quiet=quiet) as show:
        if ranks is None or ranks == 1:
            return job.fit(show, task=arguments["task"])
        hosts = [Host()] * ranks
        results = start_ranks("laconic.glm.job:fit", arguments, hosts, timeout_seconds=TIMEOUT_SECONDS, progress=show)
        return cast(dict[str, Any], results[0])
