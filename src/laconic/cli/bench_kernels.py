"""`laconic bench kernels`."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli.bad_input import bad_input
from laconic.cli.bench_output import publish, show
from laconic.cli.numbers import whole_number
from laconic.cli.progress import progress

if TYPE_CHECKING:
    from laconic.bench.environment import GPUEnvironment
    from laconic.bench.goals import Outcome
    from laconic.bench.kernels import KernelOptions, KernelRow


def kernels(
    device: Annotated[str, typer.Option(help="The GPU to run on: cuda, cuda:1, ...")] = "cuda",
    size: Annotated[int, typer.Option(parser=whole_number(), help="Number of values, far above the cache.")] = 2**28,
    bucket_size: Annotated[int, typer.Option(parser=whole_number(), help="Values that share one norm.")] = 8192,
    repeats: Annotated[int, typer.Option(parser=whole_number(), help="Timed rounds of each kernel.")] = 21,
    schemes: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these: nuqsgd, qsgd, qsgdinf, sign.")
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="Commit of this copy, to be written down; by default git's answer."),
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the rows here as JSON, too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Bytes a second of every GPU kernel, next to a copy on the same GPU. Needs a CUDA GPU.

    Every kernel is compared with the reference before it is timed.
    """
    from laconic import bench
    from laconic.bench import kernel_goals
    from laconic.bench import kernels as suite

    with ExitStack() as stack:
        with bad_input():
            options = suite.KernelOptions(
                device=device,
                size=size,
                bucket_size=bucket_size,
                repeats=repeats,
                schemes=suite.NAMES if schemes is None else [s.strip() for s in schemes.split(",") if s.strip()],
            )
            file = stack.enter_context(bench.replacing(output)) if output else None
        environment = suite.GPUEnvironment.here(device, commit)
        begin = stack.enter_context(progress(suite.n_parts(options), quiet=quiet))
        rows = suite.kernel_rows(options, begin)
        outcomes = kernel_goals.kernel_outcomes(rows)
        text = publish("kernels", rows, environment, outcomes, suite.SETTING, file, options=asdict(options))
    show(text, _page(rows, outcomes, options, environment), as_json=as_json)


def _page(
    rows: "Sequence[KernelRow]", outcomes: "Sequence[Outcome]", options: "KernelOptions", here: "GPUEnvironment"
) -> Iterator[Any]:
    from laconic.bench.kernels import SETTING
    from laconic.cli import bench_tables

    yield (
        f"{here.gpu}; CUDA {here.cuda}, python {here.python}, torch {here.torch}, triton {here.triton}, "
        f"laconic {here.laconic}, commit {(here.commit or 'none')[:12]}; {here.date}"
    )
    yield (
        f"{options.size} values, buckets of {options.bucket_size}, medians of {options.repeats} rounds; "
        "20th and 80th percentiles are in --json\n"
    )
    yield _table(rows)
    yield ""
    yield bench_tables.goals(outcomes, SETTING)


def _table(rows: "Sequence[KernelRow]") -> Any:
    from laconic.report import Column, number, table

    columns: list[Column[KernelRow]] = [
        Column("contender", lambda row: row.contender, "left"),
        Column("operation", lambda row: row.operation, "left"),
        Column("P", lambda row: str(row.n_payloads or "–")),
        Column("ms", lambda row: number(1e3 * row.seconds.median, 4)),
        Column("GB/s", lambda row: number(row.gb_per_second, 4)),
        Column("÷copy", lambda row: number(row.ratio_to_copy.median)),
        Column("20–80 %", lambda row: f"{number(row.ratio_to_copy.p20)}–{number(row.ratio_to_copy.p80)}"),
    ]
    return table("GPU kernels", columns, rows, "GB/s of the bytes that must be read and written once.")
