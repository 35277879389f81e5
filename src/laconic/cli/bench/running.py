"""What every bench command does: look at what was asked for, run it, write one JSON document, show a page."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import typer

from laconic.atomic_write import atomic_write
from laconic.cli.errors import bad_input
from laconic.cli.progress import progress

Tell = Callable[[str], None]


class Options(Protocol):
    """What to run; the parts are a progress bar's."""

    @property
    def n_parts(self) -> int: ...


O = TypeVar("O", bound=Options)  # noqa: E741


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a suite.

    page  what a person is shown, given where it was measured
    said  what else the document says
    """

    rows: Sequence[Any]
    page: Callable[[Any], Iterable[Any]]
    said: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where it goes, and how much is said on the way.

    output   file for the document, too
    as_json  print the document, not the page
    quiet    no progress bar
    commit   to be written down; None for git's answer
    """

    output: Path | None
    as_json: bool
    quiet: bool
    commit: str | None = None


def run_suite(name: str, make: Callable[[], O], run: Callable[[O, Tell], Found | None], to: Destination) -> None:
    """Make the options, where complaints are about what the user gave; run them; write and print what was found.

    run  gives None on the ranks of torchrun other than the first
    """
    first = os.environ.get("RANK", "0") == "0"
    with ExitStack() as stack:
        with bad_input():
            options = make()
            file = stack.enter_context(atomic_write(to.output)) if to.output and first else None
        here = _environment(getattr(options, "device", "cpu"), to.commit)
        begin = stack.enter_context(progress(options.n_parts, quiet=to.quiet or not first))
        found = run(options, begin)
        if found is None:
            return
        text = _document(name, found, here)
        if file:
            file.write(text + "\n")
    _show(text if to.as_json else None, found.page(here))


def _environment(device: str, commit: str | None) -> Any:
    from laconic.measure.environment import Environment, GPUEnvironment

    return Environment.here(commit) if device == "cpu" else GPUEnvironment.here(device, commit)


def _document(suite: str, found: Found, here: Any) -> str:
    from laconic import bench

    made = bench.document(suite, found.rows, here, **found.said)
    return json.dumps(made, indent=2, allow_nan=False)


def _show(text: str | None, page: Iterable[Any]) -> None:
    """Print the document, or else the page."""
    from laconic.report import show

    if text is not None:
        typer.echo(text)
    else:
        show(page)
