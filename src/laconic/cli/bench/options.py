"""Options that bench commands share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from laconic.cli.errors import BadInput
from laconic.cli.fit_options import names
from laconic.cli.numbers import whole_number

Ranks = Annotated[
    int | None,
    typer.Option(parser=whole_number(), help="Ranks to start, each a process; 4 if not given, torchrun's under it."),
]
Rate = Annotated[
    str | None,
    typer.Option(
        "--rate",
        metavar="RATE",
        help="Emulate a host for each rank, on links of this rate: 1gbit, 100mbit, 20mbit. Needs root and iproute2. "
        "Otherwise loopback, unlimited.",
    ),
]
Repeats = Annotated[int, typer.Option(parser=whole_number(), help="Timed rounds.")]
BucketSize = Annotated[int, typer.Option(parser=whole_number(), help="Values that share one norm.")]
SamplesAStep = Annotated[int, typer.Option(parser=whole_number(), help="Samples a rank and step.")]
Commit = Annotated[
    str | None, typer.Option(metavar="HASH", help="Commit of this copy, to be written down; by default git's answer.")
]
Output = Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the rows here as JSON, too.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the rows as JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


def numbers(text: str) -> list[int]:
    """Whole numbers between commas.

    >>> numbers("8, 2**4")
    [8, 16]
    """
    return [whole_number()(word) for word in names(text)]


def refuse(given: Mapping[str, Any], names: Sequence[str], why: str) -> None:
    """A complaint about the first of these options that was given, where it would not count."""
    for name in names:
        if given[name] is not None and given[name] is not False:
            raise BadInput(f"--{'recipe' if name == 'recipes' else name.replace('_', '-')} {why}")
