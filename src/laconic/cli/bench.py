"""`laconic bench SUITE`."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from laconic.cli import bench_decentralised, bench_glm, bench_kernels, bench_network, bench_papers, bench_plan
from laconic.cli.bad_input import bad_input
from laconic.cli.bench_output import publish, show
from laconic.cli.numbers import whole_number
from laconic.cli.progress import progress

app = typer.Typer(help="Re-run our benchmarks on this machine.")
app.command()(bench_network.exchange)
app.command()(bench_network.ddp)
app.command()(bench_decentralised.decentralised)
app.command()(bench_glm.glm)
app.command()(bench_kernels.kernels)
app.command()(bench_plan.plan)
app.command()(bench_papers.papers)


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Re-run our benchmarks on this machine."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command()
def codec(
    size: Annotated[int, typer.Option(parser=whole_number(), help="Number of float32 values, as 1000000 or 2**20.")] = 2
    ** 26,
    bucket_size: Annotated[int, typer.Option(parser=whole_number(), help="Values that share one norm.")] = 8192,
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
    output: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the rows here as JSON, too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Speed and size of every scheme and coder, next to a torch copy of the same values.

    Takes a few minutes at the default size. Every operation is checked before it is timed.
    """
    from laconic import bench
    from laconic.bench.codec import goals
    from laconic.cli import bench_tables as tables

    with ExitStack() as stack:
        with bad_input():
            options = bench.Options(
                problem=problem,
                size=size,
                bucket_size=bucket_size,
                repeats=repeats,
                schemes=bench.NAMES if schemes is None else _names(schemes),
                coders=bench.CODERS if coders is None else _names(coders),
            )
            file = stack.enter_context(bench.replacing(output)) if output else None
        parts = bench.steps(options)
        environment, rows = bench.Environment.here(), []
        begin = stack.enter_context(progress(len(parts), quiet=quiet))
        for part in parts:
            begin(part.label)
            rows += part.run()
        outcomes = bench.outcomes(rows)
        text = publish("codec", rows, environment, outcomes, goals.SETTING, file)
    show(text, tables.tables(rows, outcomes, options, environment), as_json=as_json)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
