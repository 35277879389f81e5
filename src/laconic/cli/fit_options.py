"""Options that commands on files share, and their words for what the readers complain about."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli.bad_input import BadInput
from laconic.cli.numbers import whole_number
from laconic.errors import LaconicError

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

_WORDS = (
    (r"; target=False reads features only", ""),
    (r"; leave zero_based= out, or True", ""),
    (r"exclude=\('([^']*)',\)", r"--drop \1"),
    (r"one_hot=\('([^']*)',\)", r"--one-hot \1"),
    (r"target='([^']*)'", r"--target \1"),
    (r"recipe='([^']*)'", r"--recipe \1"),
    (
        r"unknown recipe '([^']*)'; choose one of (.*), or pass a Precision",
        r"unknown --recipe \1; choose one of \2, auto, auto:1e-3",
    ),
    (r"device='([^']*)'", r"--device \1"),
    (r"leave device out", "leave --device out"),
    (r"\bsample_weight=", "--weight"),
    (r"\b(target|offset|dense)=", r"--\1"),
    (r"\bexclude=", "--drop"),
    (r"\bone_hot=", "--one-hot"),
    (r"\bn_features=", "--n-features"),
)


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


def in_options(message: str) -> str:
    """The readers' words for arguments as the command line's options.

    >>> in_options("leave it out with exclude=('id',) or give target=, one of these")
    'leave it out with --drop id or give --target, one of these'
    """
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message)
    return message


@contextmanager
def reading() -> Iterator[None]:
    """Around code that looks at the user's files: what it complains about is told in the command line's words."""
    try:
        yield
    except LaconicError as error:
        raise BadInput(in_options(str(error))) from error
