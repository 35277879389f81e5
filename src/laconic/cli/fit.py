"""`laconic fit DATA`: its progress bar and what it prints."""

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import typer

from laconic.cli.command import BadInput, Interrupted, Printing, bar, options_command, spell
from laconic.data.files import Source
from laconic.glm.options import DEFAULTS, JOB, FileFit, FitOptions

TIMEOUT_SECONDS = 30 * 24 * 3600.0
FASTER = 2.0
"""Predicted speedup of one process from which using ranks gives a warning; typical rates are not more precise."""
METRICS = {"log_loss": "log-loss", "log_losses": "log-losses of the classes, added", "r2": "R²"}
METRICS |= {"mse": "mean squared error", "d2": "D²"}


def run(data: dict[str, Any], options: dict[str, Any], given: dict[str, Any], printing: dict[str, Any]) -> None:
    """Fit a generalised linear model to a file.

    Under torchrun, uses its ranks: each reads its own columns.
    """
    from laconic.exchange.launch import RankKilled, n_ranks
    from laconic.glm.checkpoint import MANIFEST

    job = FileFit(Source(**data), options=FitOptions(**options), **given)
    printed = Printing(**printing)
    if job.resume and job.checkpoint is None:
        raise BadInput("--resume needs --checkpoint FOLDER, where the fit was saved")
    if job.robust and not job.summary:
        raise BadInput("--robust is of the standard errors that --summary prints: add --summary")
    if job.cv is not None and not job.alphas:
        raise BadInput("--cv is of the penalties that --alphas tries: add --alphas NUMBER,...")
    if job.alphas and job.options.alpha != DEFAULTS.alpha:
        raise BadInput("--alphas takes the best of its own penalties: leave out --alpha")
    if not job.checkpoint_every >= 0:
        raise BadInput(f"--checkpoint-every must be a number of at least 0; got {job.checkpoint_every:g}")
    if job.summary and n_ranks(job.ranks, default=1) > 1:
        raise BadInput("--summary needs all columns in one process: leave out --ranks")
    try:
        report = _on_ranks(job, quiet=printed.quiet)
    except (KeyboardInterrupt, RankKilled) as error:
        killed = isinstance(error, RankKilled)
        if job.checkpoint is None or not Path(job.checkpoint, MANIFEST).exists():
            if killed:
                raise RankKilled(f"{error}; with --checkpoint FOLDER a fit could go on, by --resume") from error
            raise
        how = f"the same command with --resume goes on from what {job.checkpoint} holds"
        raise RankKilled(f"{error}; {how}") if killed else Interrupted(f"interrupted; {how}") from error
    if report is None:
        return
    if printed.as_json:
        typer.echo(json.dumps(_finite(report), indent=2, allow_nan=False))
        return
    for line in lines(report):
        typer.echo(line)


fit = options_command(run, "fit", Source, FitOptions, (FileFit, JOB), Printing)


def _on_ranks(job: FileFit, *, quiet: bool) -> dict[str, Any] | None:
    """The report of rank 0; None on the other ranks of torchrun."""
    from laconic.exchange.launch import Host, device_of_ranks, inside_torchrun, join_ranks, n_ranks, start_ranks
    from laconic.glm.fit import fit_file

    own = not inside_torchrun()
    if own and job.ranks in (None, 1):
        with fit_progress(quiet=quiet) as show:
            return fit_file(job, show)
    size, arguments = n_ranks(job.ranks, default=1), {"job": asdict(job)}
    how: dict[str, Any] = {"timeout_seconds": TIMEOUT_SECONDS}
    how["device"] = device_of_ranks(job.options.device, size, share_gpu=job.share_gpu)
    if own:
        with fit_progress(quiet=quiet) as show:
            told = show or (lambda text: None)
            found: list[Any] | None = start_ranks(
                "laconic.glm.fit:run_job", arguments, [Host()] * size, progress=told, **how
            )
    else:
        found = join_ranks(f"{__name__}:run_showing", arguments | {"quiet": quiet}, **how)
    return None if found is None else cast(dict[str, Any], found[0])


def run_showing(progress: Callable[[str], None], *, job: Mapping[str, Any], quiet: bool) -> dict[str, Any]:
    """Run the fit on a rank of torchrun, with a progress bar on the first."""
    from laconic.glm.fit import run_job

    with fit_progress(quiet=quiet or os.environ.get("RANK") != "0") as show:
        return run_job(show, job=job)


@contextmanager
def fit_progress(*, quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """A progress bar; yields a function to call with a fit's progress (JSON), or None if `quiet` or no terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}"))
    with bar(None, *columns, quiet=False, label="reading", loss="") as (shown, task):

        def show(text: str) -> None:
            now = json.loads(text)
            done, total = now["epoch"] + now["fraction"], now["n_epochs"]
            loss = f"loss {now['loss']:.6g}, {now['iterations_per_second']:,.0f} iterations/s" if "loss" in now else ""
            epoch = min(now["epoch"] + 1, total)
            shown.update(task, description=f"epoch {epoch} of {total}", completed=done, total=total, loss=loss)

        yield show


def _finite(value: Any) -> Any:
    """JSON values with None for numbers that JSON does not have, such as the score of an overflow."""
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """A report as lines of text."""
    classes = report["classes"]
    what = report["family"] + (f", {len(classes)} classes ({_some(classes)})" if classes else "")
    yield f"{report['data']}: {report['n_rows']:,} rows × {report['n_features']:,} columns; {what}"
    yield from report["notes"]
    s = report["settings"]
    ranks = f" on {report['ranks']} ranks" if report["ranks"] > 1 == s["teams"] else ""
    steps = f"batches of {s['batch_size']}, {s['learning_rate']} steps of {s['eta0']:.3g}, "
    yield f"ran {report['ran']}{ranks}; {'' if s['solver'] == 'newton' else steps}alpha {s['alpha']:g}"
    yield from _penalties(report.get("alphas") or (), s["alpha"])
    if report["recipe_explained"] is not None and report["recipe_measured"]:
        yield f"recipe: {report['recipe_explained']}"
    counts = {"epoch": report["epochs"], "iteration": report["iterations"]}
    yield ", ".join(f"{n:,} {what}{'s' * (n != 1)}" for what, n in counts.items()) + f": {report['because']}"
    yield from report["explained"][1:]
    if report["gap"] is not None and not report["converged"]:
        from laconic.glm.solvers import Outcome

        advice = Outcome[report["outcome"].upper()].advice.message(spell)
        yield f"warning: the fit did not converge; {advice}"
    yield f"loss {report['loss']:.6g}; {metrics(report['metrics'])}"
    if report["summary"] is not None:
        from laconic.glm.summary import table

        yield from table(report["summary"])
    if report["test_metrics"] is not None:
        yield f"test: {metrics(report['test_metrics'])}"
    sent = f"; {report['messages']:,} messages, {report['bytes_sent']:,} bytes sent per rank"
    seconds = f"{report['seconds']:.2f} s, of these {report['fit_seconds']:.2f} s fitting"
    yield seconds + (sent if report["ranks"] > 1 else "")
    if (alone := report["one_process_seconds"]) is not None:
        faster = FASTER * alone < report["fit_seconds"]
        said = f"one process would take about {alone:.2g} s for as many epochs, by typical rates"
        yield f"warning: {said}: fit without ranks" if faster else said
    yield f"model: {report['model']}"


def _penalties(tried: Sequence[Mapping[str, float]], chosen: float) -> Iterator[str]:
    """Lines of a table of the penalties tried."""
    for j, row in enumerate(tried):
        names = [name for name in row if name != "alpha"]
        if j == 0:
            yield "".join(f"{METRICS.get(name, name):>20}" for name in ("alpha", *names)) + "   (rows held out)"
        best = "   taken" if row["alpha"] == chosen else ""
        yield f"{row['alpha']:>20g}" + "".join(f"{row[name]:>20.6g}" for name in names) + best


def metrics(found: Mapping[str, float]) -> str:
    """Metrics as one line of text.

    >>> metrics({"accuracy": 0.85, "log_loss": 0.324})
    'accuracy 0.8500, log-loss 0.3240'
    """
    return ", ".join(f"{METRICS.get(name, name)} {value:.4f}" for name, value in found.items())


def _some(classes: list[Any]) -> str:
    return ", ".join(map(str, classes[:4])) + (", ..." if len(classes) > 4 else "")
