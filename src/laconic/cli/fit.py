"""`laconic fit DATA`: its options, its progress bar and what it prints."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from laconic.cli import fit_options as o
from laconic.cli.command import resumable
from laconic.cli.errors import BadInput
from laconic.cli.numbers import whole_number
from laconic.cli.progress import bar
from laconic.errors import InvalidOption, Option
from laconic.glm.options import AUTO, DEFAULTS

if TYPE_CHECKING:
    from laconic.glm.fit_file import FileFit

TIMEOUT_SECONDS = 30 * 24 * 3600.0
METRICS = {"accuracy": "accuracy", "log_loss": "log-loss", "r2": "R²", "mse": "mean squared error", "d2": "D²"}


def fit(
    data: Annotated[
        Path, typer.Argument(help="LIBSVM, CSV, Parquet, .npy, .npz, or a store made by `laconic convert`.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the model goes (safetensors).")],
    family: Annotated[str | None, o.of_fit("family")] = DEFAULTS.family,
    tweedie_power: Annotated[float, o.of_fit("tweedie_power")] = DEFAULTS.tweedie_power,
    target: o.Target = None,
    weight: o.Weight = None,
    offset: o.Offset = None,
    exposure: o.Exposure = None,
    one_hot: o.OneHot = None,
    drop: o.Drop = None,
    dense: o.Dense = False,
    n_features: o.NFeatures = None,
    standardize: Annotated[bool, o.of_fit("standardize", "--standardize")] = DEFAULTS.standardize,
    recipe: Annotated[str, o.of_fit("recipe")] = AUTO,
    solver: Annotated[str, o.of_fit("solver")] = DEFAULTS.solver,
    s: Annotated[str, o.of_fit("s", metavar="N")] = AUTO,
    batch_size: Annotated[int, o.of_fit("batch_size", parser=whole_number())] = DEFAULTS.batch_size,
    alpha: Annotated[float, o.of_fit("alpha")] = DEFAULTS.alpha,
    l1_ratio: Annotated[float, o.of_fit("l1_ratio")] = DEFAULTS.l1_ratio,
    intercept: Annotated[bool, o.of_fit("fit_intercept")] = DEFAULTS.fit_intercept,
    eta0: Annotated[str, o.of_fit("eta0", metavar="NUMBER")] = AUTO,
    learning_rate: Annotated[str, o.of_fit("learning_rate")] = DEFAULTS.learning_rate,
    momentum: Annotated[float, o.of_fit("momentum")] = DEFAULTS.momentum,
    max_iter: Annotated[int, o.of_fit("max_iter", parser=whole_number())] = DEFAULTS.max_iter,
    tol: Annotated[float, o.of_fit("tol")] = cast(float, DEFAULTS.tol),
    seed: Annotated[int, o.of_fit("seed", parser=whole_number(least=0))] = DEFAULTS.seed,
    ranks: Annotated[
        int | None, typer.Option(parser=whole_number(most=1024), help="Local processes to share the columns among.")
    ] = None,
    device: Annotated[str | None, o.of_fit("device")] = DEFAULTS.device,
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
        report = _on_ranks(make_job(given), ranks, quiet=quiet)
    if report is None:
        return
    if as_json:
        typer.echo(json.dumps(report, indent=2, allow_nan=False))
        return
    for line in lines(report):
        typer.echo(line)


def make_job(given: Mapping[str, Any]) -> "FileFit":
    """The options by name as a job for the ranks."""
    from laconic.glm.fit_file import FileFit

    if given["resume"] and given["checkpoint"] is None:
        raise BadInput("--resume needs --checkpoint FOLDER, where the fit was saved")
    return FileFit(
        o.source(given),
        str(given["output"]),
        o.fit_options(given),
        test=None if given["test"] is None else str(given["test"]),
        checkpoint=None if given["checkpoint"] is None else str(given["checkpoint"]),
        checkpoint_every=given["checkpoint_every"],
        resume=given["resume"],
    )


def _on_ranks(job: "FileFit", ranks: int | None, *, quiet: bool) -> dict[str, Any] | None:
    """The report of rank 0; None on the other ranks of torchrun."""
    from laconic.exchange.launch import Host, inside_torchrun, join_ranks, start_ranks
    from laconic.glm.fit_file import fit_file

    size = int(os.environ["WORLD_SIZE"]) if inside_torchrun() else ranks or 1
    if ranks not in (None, size):
        raise BadInput(f"torchrun has started {size} ranks and --ranks says {ranks}; leave --ranks out")
    if size > 1 and (job.options.device or "").startswith("cuda"):
        why = f" is for one process, and there are {size}; fit on one, or leave "
        raise InvalidOption(Option("device", job.options.device), why, Option("device"), " out")
    arguments, limit = {"job": asdict(job)}, TIMEOUT_SECONDS
    if inside_torchrun():
        joined = join_ranks(f"{__name__}:run_showing", arguments | {"quiet": quiet}, timeout_seconds=limit)
        return None if joined is None else cast(dict[str, Any], joined[0])
    with fit_progress(quiet=quiet) as show:
        if size == 1:
            return fit_file(job, show)
        results = start_ranks(
            "laconic.glm.fit_file:run_job", arguments, [Host()] * size, timeout_seconds=limit, progress=show
        )
        return cast(dict[str, Any], results[0])


def run_showing(progress: Callable[[str], None], *, job: Mapping[str, Any], quiet: bool) -> dict[str, Any]:
    """What a rank of torchrun does: the fit, with a bar if it is the first."""
    from laconic.glm.fit_file import run_job

    with fit_progress(quiet=quiet or os.environ.get("RANK") != "0") as show:
        return run_job(show, job=job)


@contextmanager
def fit_progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A progress bar: call what this yields with a fit's progress (JSON). No bar if `quiet` or no terminal."""
    from rich.progress import BarColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}"))
    with bar(None, *columns, quiet=quiet, label="reading", loss="") as (shown, task):

        def show(text: str) -> None:
            now = json.loads(text)
            done, total = now["epoch"] + now["fraction"], now["n_epochs"]
            loss = f"loss {now['loss']:.6g}, {now['iterations_per_second']:,.0f} iterations/s" if "loss" in now else ""
            epoch = min(now["epoch"] + 1, total)
            shown.update(task, description=f"epoch {epoch} of {total}", completed=done, total=total, loss=loss)

        yield (lambda text: None) if shown.disable else show


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """A report as lines of text."""
    classes = report["classes"]
    what = report["family"] + (f", {len(classes)} classes ({_some(classes)})" if classes else "")
    yield f"{report['data']}: {report['n_rows']:,} rows × {report['n_features']:,} columns; {what}"
    s = report["settings"]
    ranks = f" on {report['ranks']} ranks" if report["ranks"] > 1 else ""
    yield (
        f"ran {report['ran']}{ranks}; batches of {s['batch_size']}, {s['learning_rate']} steps of {s['eta0']:.3g}, "
        f"alpha {s['alpha']:g}" + (", standardized columns" if s["standardize"] else "")
    )
    if report["recipe_explained"] is not None and report["recipe_measured"]:
        yield f"recipe: {report['recipe_explained']}"
    yield f"{report['epochs']} epochs, {report['iterations']:,} iterations: {report['because']}"
    yield f"loss {report['loss']:.6g}; {metrics(report['metrics'])}"
    if report["test_metrics"] is not None:
        yield f"test: {metrics(report['test_metrics'])}"
    sent = (
        f"; {report['messages']:,} messages, {report['bytes_sent']:,} bytes sent a rank" if report["ranks"] > 1 else ""
    )
    yield f"{report['seconds']:.2f} s, of these {report['fit_seconds']:.2f} s fitting{sent}"
    yield f"model: {report['model']}"


def metrics(found: Mapping[str, float]) -> str:
    """Figures in a line.

    >>> metrics({"accuracy": 0.85, "log_loss": 0.324})
    'accuracy 0.8500, log-loss 0.3240'
    """
    return ", ".join(f"{METRICS.get(name, name)} {value:.4f}" for name, value in found.items())


def _some(classes: list[Any]) -> str:
    return ", ".join(map(str, classes[:4])) + (", ..." if len(classes) > 4 else "")
