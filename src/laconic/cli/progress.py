"""A progress bar on stderr, for people only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(n_steps: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Call what this yields with a step's name before each of `n_steps` steps. No bar if `quiet` or no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    disable = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=disable, transient=True) as bar:
        task = bar.add_task("", total=n_steps)
        begun = 0

        def begin(label: str) -> None:
            nonlocal begun
            bar.update(task, description=label, completed=begun)
            begun += 1

        yield begin
