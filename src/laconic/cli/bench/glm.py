"""Options about the rows of generalised linear models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli import fit_options as o
from laconic.cli.bench.options import refuse
from laconic.cli.numbers import whole_number

if TYPE_CHECKING:
    from laconic.bench.glm.data import Given

Problem = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="epsilon, susy, higgs, synth, poisson-synth (synthetic), or all; all."),
]
Scale = Annotated[float | None, typer.Option(help="Part of the rows of the synthetic problems; 0.05.")]
Blocks = Annotated[
    str | None,
    typer.Option(
        "--s",
        metavar="N,...",
        help="Iterations that share a message in ca_sgd; 1,8,32,64,128.",
    ),
]
Recipes = Annotated[
    str | None,
    typer.Option("--recipe", metavar="NAME,...", help="Precision of ca_sgd: fp32, C, D, fp64; the first three."),
]
BatchSize = Annotated[int | None, typer.Option(parser=whole_number(), help="Rows of a batch; 8.")]
Iterations = Annotated[
    int | None,
    typer.Option(parser=whole_number(), help="Iterations of a round, a multiple of every s; 256."),
]
Data = Annotated[Path | None, typer.Option(metavar="FILE", help="Rows of a file, of any format that fit takes.")]
FamilyName = Annotated[str | None, typer.Option("--family", help="Of the file's target: logistic, linear or poisson.")]
Positive = Annotated[str | None, typer.Option(metavar="CLASS", help="The class that counts as 1, the others as 0.")]
Standardize = Annotated[bool, typer.Option("--standardize", help="Scale the file's columns.")]
OF_FILES = ("family", "target", "positive", "weight", "offset", "exposure", "one_hot", "drop", "dense", "standardize")
"""Options about --data."""
SYNTHETIC = ("problem", "scale")
"""Options by what they are about: whoever gives one where it would not count is told so."""


def file_given(given: dict[str, Any]) -> "Given | None":
    """The file that was asked for, if one was."""
    from laconic.bench.glm.data import Given
    from laconic.glm.source import Source

    if given["data"] is None:
        refuse(given, OF_FILES, "is for files; give one with --data")
        return None
    refuse(given, SYNTHETIC, "is of the synthetic problems; leave it out beside --data")
    source = Source(
        str(given["data"]),
        given["target"],
        given["weight"],
        given["offset"],
        given["exposure"],
        o.names(given["one_hot"]),
        o.names(given["drop"]),
        dense=given["dense"],
    )
    name = given["data"].name.split(".")[0]
    return Given(name, 1.0, source, given["family"], given["positive"], given["standardize"])
