"""A progress bar over rows."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def rows_progress(n_rows: int, *, quiet: bool, bytes_per_row: float = 0.0) -> Iterator[Callable[[int], None]]:
    """Call what this yields with the number of rows that were done. No bar if `quiet` or no terminal.

    bytes_per_row  to count in bytes instead of rows
    """
    if quiet or not sys.stderr.isatty():
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    unit = bytes_per_row or 1.0
    count = DownloadColumn() if bytes_per_row else MofNCompleteColumn()
    with Progress(BarColumn(), count, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=int(n_rows * unit))
        yield lambda n: bar.advance(task, n * unit)
