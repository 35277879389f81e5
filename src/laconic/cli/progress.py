"""Progress bars on stderr, shown only in a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any


@contextmanager
def progress(n_steps: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Give a function to call with a step's name before each of `n_steps` steps."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn())
    with bar(n_steps, *columns, quiet=quiet) as (shown, task):
        begun = 0

        def begin(label: str) -> None:
            nonlocal begun
            shown.update(task, description=label, completed=begun)
            begun += 1

        yield begin


@contextmanager
def rows_progress(n_rows: int, *, quiet: bool, bytes_per_row: float = 0.0) -> Iterator[Callable[[int], None]]:
    """Give a function to call with the number of rows that were done; `bytes_per_row` to count in bytes instead."""
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn

    unit = bytes_per_row or 1.0
    count = DownloadColumn() if bytes_per_row else MofNCompleteColumn()
    with bar(int(n_rows * unit), BarColumn(), count, quiet=quiet) as (shown, task):
        yield lambda n: shown.advance(task, n * unit)


@contextmanager
def bar(total: int | None, *columns: Any, quiet: bool, label: str = "", **fields: Any) -> Iterator[tuple[Any, Any]]:
    """A bar with these columns and the elapsed time, and its task; disabled if `quiet` or no terminal."""
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    disable = quiet or not sys.stderr.isatty()
    made = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=disable, transient=True)
    with nullcontext() if disable else made:  # some versions of rich end even a disabled bar with a line
        yield made, made.add_task(label, total=total, **fields)
