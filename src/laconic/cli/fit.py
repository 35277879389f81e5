"""`laconic fit DATA`: its options, some of which other commands on files share, its progress bar and what it prints."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from laconic.cli.errors import BadInput, Interrupted
from laconic.cli.numbers import number_or_text, whole_number
from laconic.cli.progress import bar
from laconic.glm.options import DEFAULTS, FitOptions
from laconic.glm.precision import AUTO

if TYPE_CHECKING:
    from laconic.data import Source
    from laconic.glm.fit import FileFit

TIMEOUT_SECONDS = 30 * 24 * 3600.0
METRICS = {"accuracy": "accuracy", "log_loss": "log-loss", "r2": "R²", "mse": "mean squared error", "d2": "D²"}


Target = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column of y (CSV, Parquet), or the file or array of it (.npy, .npz)."),
]
Weight = Annotated[str | None, typer.Option(metavar="NAME", help="Column of the rows' weights.")]
Offset = Annotated[str | None, typer.Option(metavar="NAME", help="Column that is added to the margins.")]
Exposure = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column of exposures; their logarithm is the offset.")
]
OneHot = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME,...", help="Columns to turn into one column per category (CSV, Parquet)."),
]
Drop = Annotated[list[str] | None, typer.Option(metavar="NAME,...", help="Columns to leave out (CSV, Parquet).")]
Dense = Annotated[bool, typer.Option("--dense", help="Take a LIBSVM file as a dense matrix.")]
NFeatures = Annotated[
    int | None,
    typer.Option(parser=whole_number(), help="Columns of the matrix, if a LIBSVM file does not use the last ones."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a report as JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


def of_fit(name: str, *flags: str, **more: Any) -> Any:
    """An option of a fit, with what `FitOptions` says of it."""
    return typer.Option(*flags, help=FitOptions.help_of(name), **more)


def fit(
    data: Annotated[
        Path, typer.Argument(help="LIBSVM, CSV, Parquet, .npy, .npz, or a store made by `laconic convert`.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the model goes (safetensors).")],
    family: Annotated[str | None, of_fit("family")] = DEFAULTS.family,
    tweedie_power: Annotated[float, of_fit("tweedie_power")] = DEFAULTS.tweedie_power,
    target: Target = None,
    weight: Weight = None,
    offset: Offset = None,
    exposure: Exposure = None,
    one_hot: OneHot = None,
    drop: Drop = None,
    dense: Dense = False,
    n_features: NFeatures = None,
    standardize: Annotated[bool, of_fit("standardize", "--standardize")] = DEFAULTS.standardize,
    recipe: Annotated[str, of_fit("recipe")] = AUTO,
    solver: Annotated[str, of_fit("solver")] = DEFAULTS.solver,
    s: Annotated[str, of_fit("s", metavar="N")] = AUTO,
    batch_size: Annotated[int, of_fit("batch_size", parser=whole_number())] = DEFAULTS.batch_size,
    alpha: Annotated[float, of_fit("alpha")] = DEFAULTS.alpha,
    l1_ratio: Annotated[float, of_fit("l1_ratio")] = DEFAULTS.l1_ratio,
    intercept: Annotated[bool, of_fit("fit_intercept")] = DEFAULTS.fit_intercept,
    eta0: Annotated[str, of_fit("eta0", metavar="NUMBER")] = AUTO,
    learning_rate: Annotated[str, of_fit("learning_rate")] = DEFAULTS.learning_rate,
    momentum: Annotated[float, of_fit("momentum")] = DEFAULTS.momentum,
    max_iter: Annotated[int, of_fit("max_iter", parser=whole_number())] = DEFAULTS.max_iter,
    tol: Annotated[float, of_fit("tol")] = cast(float, DEFAULTS.tol),
    seed: Annotated[int, of_fit("seed", parser=whole_number(least=0))] = DEFAULTS.seed,
    ranks: Annotated[
        int | None, typer.Option(parser=whole_number(most=1024), help="Local processes to share the columns among.")
    ] = None,
    device: Annotated[str | None, of_fit("device")] = DEFAULTS.device,
    share_gpu: Annotated[
        bool, typer.Option("--share-gpu", help="Let ranks share GPUs, where there are fewer GPUs than ranks.")
    ] = False,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Rows to judge the model by.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Save the fit's state here, to go on from with --resume.")
    ] = None,
    checkpoint_every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.0, help="Seconds after which --checkpoint saves within an epoch, too."),
    ] = 300.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, if there is one.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a generalised linear model to a file.

    Under torchrun, uses its ranks: each reads its own columns.
    """
    given = dict(locals())
    from laconic.glm.checkpoint import MANIFEST
    from laconic.glm.fit import FileFit

    if resume and checkpoint is None:
        raise BadInput("--resume needs --checkpoint FOLDER, where the fit was saved")
    saved = (None if checkpoint is None else str(checkpoint), checkpoint_every, resume)
    judged = None if test is None else str(test)
    job = FileFit(file_source(given), str(output), fit_options(given), judged, *saved)
    try:
        report = _on_ranks(job, ranks, share_gpu=share_gpu, quiet=quiet)
    except KeyboardInterrupt as error:
        if checkpoint is None or not (checkpoint / MANIFEST).exists():
            raise
        how = f"the same command with --resume goes on from what {checkpoint} holds"
        raise Interrupted(f"interrupted; {how}") from error
    if report is None:
        return
    if as_json:
        typer.echo(json.dumps(report, indent=2, allow_nan=False))
        return
    for line in lines(report):
        typer.echo(line)


def names(given: Sequence[str] | None) -> tuple[str, ...]:
    """What an option that takes a list and may be repeated has got: `--drop a --drop b` is `--drop a,b`.

    >>> names(["a, b", "c"]), names(None)
    (('a', 'b', 'c'), ())
    """
    return tuple(filter(None, map(str.strip, ",".join(given or ()).split(","))))


def file_source(given: Mapping[str, Any]) -> "Source":
    """The file and what its columns are, from a command's options by name."""
    from laconic.data import Source

    return Source(
        str(given["data"]),
        given["target"],
        given["weight"],
        given["offset"],
        given["exposure"],
        names(given["one_hot"]),
        names(given["drop"]),
        given["n_features"],
        given["dense"],
    )


def fit_options(given: Mapping[str, Any], **more: Any) -> FitOptions:
    """A fit's options from a command's, by name; those that the command does not have are as `more` says."""
    named = {
        "fit_intercept": given["intercept"],
        "s": number_or_text(given["s"]),
        "eta0": number_or_text(given["eta0"]),
    }
    for field in fields(FitOptions):
        if field.name in given:
            named.setdefault(field.name, given[field.name])
    return FitOptions(**named | more)


def _on_ranks(job: "FileFit", ranks: int | None, *, share_gpu: bool, quiet: bool) -> dict[str, Any] | None:
    """The report of rank 0; None on the other ranks of torchrun."""
    from laconic.exchange.launch import Host, device_of_ranks, inside_torchrun, join_ranks, n_ranks, start_ranks
    from laconic.glm.fit import fit_file

    size = n_ranks(ranks, default=1)
    where = device_of_ranks(job.options.device, size, share_gpu=share_gpu)
    arguments: dict[str, Any] = {"job": asdict(job)}
    limit = TIMEOUT_SECONDS
    if inside_torchrun():
        arguments["quiet"] = quiet
        joined = join_ranks(f"{__name__}:run_showing", arguments, device=where, timeout_seconds=limit)
        return None if joined is None else cast(dict[str, Any], joined[0])
    with fit_progress(quiet=quiet) as show:
        if size == 1:
            return fit_file(job, show)
        hosts, told = [Host()] * size, show or (lambda text: None)
        results = start_ranks(
            "laconic.glm.fit:run_job", arguments, hosts, device=where, timeout_seconds=limit, progress=told
        )
        return cast(dict[str, Any], results[0])


def run_showing(progress: Callable[[str], None], *, job: Mapping[str, Any], quiet: bool) -> dict[str, Any]:
    """What a rank of torchrun does: the fit, with a bar if it is the first."""
    from laconic.glm.fit import run_job

    with fit_progress(quiet=quiet or os.environ.get("RANK") != "0") as show:
        return run_job(show, job=job)


@contextmanager
def fit_progress(*, quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """A progress bar: call what this yields with a fit's progress (JSON). None if `quiet` or no terminal."""
    from rich.progress import BarColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}"))
    with bar(None, *columns, quiet=quiet, label="reading", loss="") as (shown, task):

        def show(text: str) -> None:
            now = json.loads(text)
            done, total = now["epoch"] + now["fraction"], now["n_epochs"]
            loss = f"loss {now['loss']:.6g}, {now['iterations_per_second']:,.0f} iterations/s" if "loss" in now else ""
            epoch = min(now["epoch"] + 1, total)
            shown.update(task, description=f"epoch {epoch} of {total}", completed=done, total=total, loss=loss)

        yield None if shown.disable else show


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
