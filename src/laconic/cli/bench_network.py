"""`laconic bench exchange` and `laconic bench ddp`: suites of several ranks."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from laconic.cli.bad_input import bad_input
from laconic.cli.bench_output import publish, show
from laconic.cli.numbers import whole_number
from laconic.cli.progress import progress

if TYPE_CHECKING:
    from laconic.bench import DDPOptions, ExchangeOptions

O = TypeVar("O", "DDPOptions", "ExchangeOptions")  # noqa: E741

Ranks = Annotated[
    int | None,
    typer.Option(parser=whole_number(), help="Ranks to start, each a process; 4 if not given, torchrun's under it."),
]
Rate = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="Emulate a host for each rank, on links of this rate: 1gbit, 100mbit, 20mbit. Needs root and iproute2. "
        "Otherwise loopback, unlimited.",
    ),
]
Repeats = Annotated[int, typer.Option(parser=whole_number(), help="Timed rounds.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the rows here as JSON, too.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the rows as JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


def exchange(
    ranks: Ranks = None,
    rate: Rate = None,
    size: Annotated[int, typer.Option(parser=whole_number(), help="Number of float32 values a rank.")] = 2**22,
    bucket_size: Annotated[int, typer.Option(parser=whole_number(), help="Values that share one norm.")] = 8192,
    piece: Annotated[
        int | None, typer.Option(parser=whole_number(), help="Values that go through the pipeline together.")
    ] = None,
    repeats: Repeats = 11,
    codec: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Only these besides the baselines: nuqsgd, nuqsgd-4-rans, ef-sign, ..."),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Average one tensor over ranks, everything included, next to fp32 and bf16 all-reduce.

    All ranks must end with the same bits, and near the mean, before a time counts. Under torchrun, uses its ranks.
    """
    from laconic import bench
    from laconic.cli import bench_network_tables as tables
    from laconic.exchange import PIECE_VALUES

    def options() -> bench.ExchangeOptions:
        return bench.ExchangeOptions(
            ranks=bench.n_ranks(ranks, rate),
            rate=rate,
            size=size,
            bucket_size=bucket_size,
            piece_values=PIECE_VALUES if piece is None else piece,
            repeats=repeats,
            codecs=_names(codec),
        )

    _suite("exchange", options, bench.exchange_rows, tables.exchange, output, as_json=as_json, quiet=quiet)


def ddp(
    ranks: Ranks = None,
    rate: Rate = None,
    size: Annotated[int, typer.Option(parser=whole_number(), help="Parameters of the network, at least.")] = 2**22,
    batch_size: Annotated[int, typer.Option(parser=whole_number(), help="Samples a rank and step.")] = 16,
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
    from laconic.cli import bench_network_tables as tables

    def options() -> bench.DDPOptions:
        return bench.DDPOptions(
            ranks=bench.n_ranks(ranks, rate),
            rate=rate,
            size=size,
            batch_size=batch_size,
            repeats=repeats,
            seeds=seeds,
            codecs=_names(codec),
        )

    _suite("ddp", options, bench.ddp_rows, tables.ddp, output, as_json=as_json, quiet=quiet)


def _suite(
    name: str,
    make_options: Callable[[], O],
    run: Callable[[O, Callable[[str], None]], list[Any] | None],
    table: Callable[[Sequence[Any]], Any],
    output: Path | None,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Check what was asked for, run it, print it."""

    from laconic import bench
    from laconic.bench import network_goals
    from laconic.cli import bench_network_tables as tables

    with ExitStack() as stack:
        with bad_input():
            options = make_options()
            file = stack.enter_context(bench.replacing(output)) if output and _is_first() else None
        environment = bench.Environment.here()
        begin = stack.enter_context(progress(options.n_parts, quiet=quiet or not _is_first()))
        rows = run(options, begin)
        if rows is None:
            return
        outcomes = bench.network_outcomes(rows)
        text = publish(name, rows, environment, outcomes, network_goals.SETTING, file, options=asdict(options))
    show(text, tables.page(rows, outcomes, options, environment, table), as_json=as_json)


def _is_first() -> bool:
    """Whether this process prints and writes: rank 0 of torchrun, or not under torchrun at all."""
    return os.environ.get("RANK", "0") == "0"


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
