"""The table of `python -m benchmarks kernels`."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from benchmarks.goals.outcome import Outcome, goals_table
from benchmarks.kernels.row import KernelRow
from benchmarks.kernels.suite import SETTING, KernelOptions
from laconic.cli.bench.tables import between, machine
from laconic.measure.environment import GPUEnvironment
from laconic.report.table import Column, number, table


def page(
    rows: Sequence[KernelRow], outcomes: Sequence[Outcome], options: KernelOptions, here: GPUEnvironment
) -> Iterator[RenderableType]:
    """All that a person is shown."""
    yield machine(here)
    yield (
        f"{options.size} values, buckets of {options.bucket_size}, medians of {options.repeats} rounds; "
        "20th and 80th percentiles are in --json\n"
    )
    yield kernels(rows)
    yield from goals_table(outcomes, SETTING)


def kernels(rows: Sequence[KernelRow]) -> RenderableType:
    """One line a kernel."""
    columns: list[Column[KernelRow]] = [
        Column("contender", lambda row: row.contender, "left"),
        Column("operation", lambda row: row.operation, "left"),
        Column("P", lambda row: str(row.n_payloads or "–")),
        Column("ms", lambda row: number(1e3 * row.seconds.median, 4)),
        Column("GB/s", lambda row: number(row.gb_per_second, 4)),
        Column("÷copy", lambda row: number(row.ratio_to_copy.median)),
        Column("20–80 %", lambda row: between(row.ratio_to_copy)),
    ]
    return table("GPU kernels", columns, rows, "GB/s of the bytes that must be read and written once.")
