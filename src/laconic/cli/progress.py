"""Progress bars on stderr, shown only in a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress(n_steps: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Give a function to call with a step's name before each of `n_steps` steps."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn())
    with _bar(n_steps, *columns, quiet=quiet) as (bar, task):
        begun = 0

        def begin(label: str) -> None:
            nonlocal begun
            bar.update(task, description=label, completed=begun)
            begun += 1

        yield begin


@contextmanager
def rows_progress(n_rows: int, *, quiet: bool, bytes_per_row: float = 0.0) -> Iterator[Callable[[int], None]]:
    """Give a function to call with the number of rows that were done; `bytes_per_row` to count in bytes instead."""
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn

    unit = bytes_per_row or 1.0
    count = DownloadColumn() if bytes_per_row else MofNCompleteColumn()
    with _bar(int(n_rows * unit), BarColumn(), count, quiet=quiet) as (bar, task):
        yield lambda n: bar.advance(task, n * unit)


@contextmanager
def _bar(total: int, *columns: Any, quiet: bool) -> Iterator[tuple[Any, Any]]:
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    disable = quiet or not sys.stderr.isatty()
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=disable, transient=True) as bar:
        yield bar, bar.add_task("", total=total)
