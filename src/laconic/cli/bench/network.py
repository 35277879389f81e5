"""`laconic bench ddp`."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from laconic.cli.bench.options import AsJson, Output, Quiet, Ranks, Rate, Repeats, SamplesAStep
from laconic.cli.bench.running import Destination, Found, Tell, run_suite
from laconic.cli.fit_options import names
from laconic.cli.numbers import whole_number


def ddp(
    ranks: Ranks = None,
    rate: Rate = None,
    size: Annotated[int, typer.Option(parser=whole_number(), help="Parameters of the network, at least.")] = 2**22,
    batch_size: SamplesAStep = 16,
    repeats: Repeats = 30,
    seeds: Annotated[
        int, typer.Option(parser=whole_number(), help="Do it all so many times over: one loss is mostly luck.")
    ] = 1,
    codec: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Only these besides the baselines: powersgd, nuqsgd, ef-sign, ..."),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Steps of data-parallel training, next to DDP as it is and to PyTorch's own hooks.

    Every way trains the same network on the same batches. Under torchrun, uses its ranks.
    """
    from laconic import bench
    from laconic.cli.bench import network_tables as tables

    def options() -> bench.DDPOptions:
        return bench.DDPOptions(
            ranks=bench.n_ranks(ranks, rate),
            rate=rate,
            size=size,
            batch_size=batch_size,
            repeats=repeats,
            seeds=seeds,
            codecs=None if codec is None else names(codec),
        )

    run_suite("ddp", options, _with(bench.ddp_rows, tables.ddp), Destination(output, as_json, quiet))


def _with(
    run: Callable[[Any, Tell], list[Any] | None], table: Callable[[Sequence[Any]], Any]
) -> Callable[[Any, Tell], Found | None]:
    """A suite's run, and what came of it with this table."""
    from laconic.cli.bench import network_tables as tables

    def found(options: Any, tell: Tell) -> Found | None:
        rows = run(options, tell)
        if rows is None:
            return None
        said = {"options": asdict(options)}
        return Found(rows, lambda here: tables.page(rows, options, here, table), said)

    return found
