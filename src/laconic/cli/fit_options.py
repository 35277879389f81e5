"""Options that commands on files share, and those of a fit."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli.numbers import number_or_text, whole_number
from laconic.glm.options import FitOptions

if TYPE_CHECKING:
    from laconic.glm.source import Source

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
    list[str] | None,
    typer.Option(metavar="NAME,...", help="Columns to turn into one column per category (CSV, Parquet)."),
]
Drop = Annotated[list[str] | None, typer.Option(metavar="NAME,...", help="Columns to leave out (CSV, Parquet).")]
Dense = Annotated[bool, typer.Option("--dense", help="Take a LIBSVM file as a dense matrix.")]
NFeatures = Annotated[
    int | None,
    typer.Option(parser=whole_number(), help="Columns of the matrix, if a LIBSVM file does not use the last ones."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a report as JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


def names(given: Sequence[str] | None) -> tuple[str, ...]:
    """The names of an option that takes a list and may be repeated: `--drop a --drop b` is `--drop a,b`.

    >>> names(["a, b", "c"]), names(None)
    (('a', 'b', 'c'), ())
    """
    return tuple(name.strip() for name in ",".join(given or ()).split(",") if name.strip())


def source(given: Mapping[str, Any]) -> "Source":
    """The file and what its columns are, from a command's options by name."""
    from laconic.glm.source import Source

    return Source(
        str(given["data"]),
        given["target"],
        given["weight"],
        given["offset"],
        given["exposure"],
        names(given["one_hot"]),
        names(given["drop"]),
        given["n_features"],
        given["dense"],
    )


def of_fit(name: str, *flags: str, **more: Any) -> Any:
    """An option of a fit, with what `FitOptions` says of it."""
    return typer.Option(*flags, help=FitOptions.help_of(name), **more)


def fit_options(given: Mapping[str, Any], **more: Any) -> FitOptions:
    """A fit's options from a command's, by name; those that the command does not have are as `more` says."""
    named = {"fit_intercept": given["intercept"]} | {
        field.name: given[field.name] for field in fields(FitOptions) if field.name in given
    }
    return FitOptions(**named | {name: number_or_text(given[name]) for name in ("s", "eta0")} | more)
