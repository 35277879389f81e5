"""What every bench command does with its rows: one JSON document, in a file if asked for, and a page for people."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    from laconic.bench import Outcome


def publish(
    suite: str,
    rows: Sequence[Any],
    environment: Any,
    outcomes: "Sequence[Outcome]",
    goals_for: str,
    file: TextIO | None,
    /,
    **more: Any,
) -> str:
    """The document as text; also into the file, where there is one.

    goals_for  the setting that the goals were stated for
    more       what else the document says
    """
    from laconic import bench

    goals = [asdict(outcome) for outcome in outcomes]
    made = bench.document(suite, rows, environment, **more, goals=goals, goals_for=goals_for)
    text = json.dumps(made, indent=2, allow_nan=False)
    if file:
        file.write(text + "\n")
    return text


def show(text: str, page: Iterable[Any], *, as_json: bool) -> None:
    """Print the document, or the page."""
    from rich.console import Console

    if as_json:
        typer.echo(text)
        return
    console = Console(highlight=False)
    for shown in page:
        console.print(shown)
