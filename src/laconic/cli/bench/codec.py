"""`laconic bench codec`."""

from typing import TYPE_CHECKING, Annotated

import typer

from laconic.cli.bench.options import AsJson, BucketSize, Output, Quiet
from laconic.cli.bench.running import Destination, Found, Tell, run_suite
from laconic.cli.fit_options import names
from laconic.cli.numbers import whole_number

if TYPE_CHECKING:
    from laconic.bench import Options


def codec(
    size: Annotated[int, typer.Option(parser=whole_number(), help="Number of float32 values, as 1000000 or 2**20.")] = 2
    ** 26,
    bucket_size: BucketSize = 8192,
    repeats: Annotated[int, typer.Option(parser=whole_number(), help="Timed rounds of each operation.")] = 11,
    problem: Annotated[
        str, typer.Option(help="normal (random values) or digits (a network's gradient, repeated).")
    ] = "normal",
    schemes: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Only these: fp32, bf16, qsgd, nuqsgd, qsgdinf, sign, ef-sign."),
    ] = None,
    coders: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these: fixed, elias, huffman, rans.")
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Speed and size of every scheme and coder, next to a torch copy of the same values.

    Takes a few minutes at the default size. Every operation is checked before it is timed.
    """
    from laconic import bench

    def options() -> "Options":
        return bench.Options(
            problem=problem,
            size=size,
            bucket_size=bucket_size,
            repeats=repeats,
            schemes=bench.NAMES if schemes is None else names(schemes),
            coders=bench.CODERS if coders is None else names(coders),
        )

    run_suite("codec", options, _run, Destination(output, as_json, quiet))


def _run(options: "Options", tell: Tell) -> Found:
    from laconic.bench.codec import suite
    from laconic.cli.bench import codec_tables as tables

    rows = suite.codec_rows(options, tell)
    return Found(rows, lambda here: tables.page(rows, options, here))
