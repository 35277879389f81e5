"""The progress bar of a fit, and the job that shows one on rank 0 of torchrun."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def fit_progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Call what this yields with what a fit tells (JSON). No bar if `quiet` or no terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda said: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None, said="")

        def show(said: str) -> None:
            told = json.loads(said)
            done, total = told["epoch"] + told["fraction"], told["n_epochs"]
            figures = (
                f"loss {told['loss']:.6g}, {told['iterations_per_second']:,.0f} iterations/s" if "loss" in told else ""
            )
            epoch = min(told["epoch"] + 1, total)
            bar.update(task, description=f"epoch {epoch} of {total}", completed=done, total=total, said=figures)

        yield show


def fit_showing(tell: Callable[[str], None], *, task: Mapping[str, Any], quiet: bool) -> dict[str, Any]:
    """What a rank of torchrun does: the fit, with a bar if it is the first."""
    from laconic.glm import job

    with fit_progress(quiet=quiet or os.environ.get("RANK") != "0") as show:
        return job.fit(show, task=task)
