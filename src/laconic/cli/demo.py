"""`laconic demo`."""

import json
from typing import Annotated

import typer

from laconic.cli.bad_input import bad_input
from laconic.cli.numbers import whole_number
from laconic.cli.progress import progress


def demo(
    bucket_size: Annotated[int, typer.Option(parser=whole_number(), help="Values that share one norm.")] = 8192,
    streams: Annotated[
        int, typer.Option(parser=whole_number(), help="Streams of random numbers to average the variance over.")
    ] = 20,
    seed: Annotated[
        int, typer.Option(parser=whole_number(least=0), help="Seed of the network and its mini-batches.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Every scheme on a real gradient: what it loses, what it sends, how fast.

    Trains a small network on scikit-learn's digits for a moment and compresses its gradient. Under a minute; the
    first run also compiles the kernels.
    """
    from rich.console import Console

    from laconic import bench
    from laconic.cli import demo_tables as tables

    with bad_input():
        contenders = [scheme for scheme in bench.schemes(bucket_size) if scheme.name != "sign"]
    with progress(1 + len(contenders), quiet=quiet) as begin:
        begin("training")
        snapshot = bench.digits_gradient(seed=seed)
        rows = []
        for scheme in contenders:
            begin(scheme.label)
            rows.append(bench.survey(scheme, snapshot.gradient, n_streams=streams))
    if as_json:
        made = bench.document("demo", rows, bench.Environment.here(), findings=bench.findings(rows))
        typer.echo(json.dumps(made, indent=2, allow_nan=False))
        return
    console = Console(highlight=False)
    for shown in tables.tables(rows, snapshot, bucket_size):
        console.print(shown)
