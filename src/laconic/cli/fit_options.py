"""Options that commands on files share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli.numbers import whole_number

if TYPE_CHECKING:
    from laconic.glm.job import Source

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
    str | None, typer.Option(metavar="NAME,...", help="Columns to turn into one column a category (CSV, Parquet).")
]
Drop = Annotated[str | None, typer.Option(metavar="NAME,...", help="Columns to leave out (CSV, Parquet).")]
Dense = Annotated[bool, typer.Option("--dense", help="Take a LIBSVM file as a dense matrix.")]
NFeatures = Annotated[
    int | None,
    typer.Option(parser=whole_number(), help="Columns in all, where a LIBSVM file does not use the last ones."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a report as JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


def names(text: str | None) -> tuple[str, ...]:
    """What is between the commas.

    >>> names("a, b"), names(None)
    (('a', 'b'), ())
    """
    return () if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def source(given: Mapping[str, Any]) -> "Source":
    """The file and what its columns are, from a command's options by name."""
    from laconic.glm.job import Source

    same = {name: given[name] for name in ("target", "weight", "offset", "exposure", "n_features", "dense")}
    return Source(str(given["data"]), one_hot=names(given["one_hot"]), drop=names(given["drop"]), **same)
