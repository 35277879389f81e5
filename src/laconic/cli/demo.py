"""`laconic demo`."""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from laconic.atomic_write import atomic_write
from laconic.cli.errors import BadInput, bad_input
from laconic.cli.numbers import whole_number
from laconic.cli.progress import progress

PAGE = Path("laconic-demo.html")
TITLE = "laconic demo"


def demo(
    bucket_size: Annotated[int, typer.Option(parser=whole_number(), help="Values that share one norm.")] = 8192,
    streams: Annotated[
        int, typer.Option(parser=whole_number(), help="Streams of random numbers to average the variance over.")
    ] = 20,
    seed: Annotated[
        int, typer.Option(parser=whole_number(least=0), help="Seed of the network and its mini-batches.")
    ] = 0,
    ranks: Annotated[
        int, typer.Option(parser=whole_number(least=0), help="Local ranks that train a small network; 0 for none.")
    ] = 4,
    steps: Annotated[int, typer.Option(parser=whole_number(), help="Steps of training.")] = 40,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE.html", help=f"Where the page goes: {PAGE}, or none with --json."),
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no page.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Compress a real gradient with every scheme, then train with some: error, bytes and speed.

    Trains a small network on scikit-learn's digits for a moment and compresses its gradient; trains another with some
    of the schemes; then four local ranks train a small convolutional network with fp32, bf16 and 4-bit gradients, and
    fit a logistic regression with a message every iteration, then every 32. Writes a page of charts, as `laconic
    report` does. Takes about a minute; the first run also compiles the kernels.
    """
    from laconic.bench.demo import Demo
    from laconic.report import Run, show, terminal
    from laconic.report import report as make_page

    if report and no_report:
        raise BadInput("--report says where the page goes, --no-report that there is none; give one of them")
    page = None if no_report else report or (None if as_json else PAGE)
    with ExitStack() as stack:
        with bad_input():
            parts = Demo.of(bucket_size, streams, seed, ranks, steps)
            first = os.environ.get("RANK", "0") == "0"
            file = stack.enter_context(atomic_write(page)) if page and first else None
        with progress(parts.n_parts, quiet=quiet) as begin:
            document = parts.run(begin)
        if document is None:
            return
        if file:
            file.write(make_page(TITLE, [Run("demo", "demo", document)])[0])
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    show(terminal("demo", document))
    if page:
        typer.echo(f"\nCharts of all this: {page.resolve()}")
