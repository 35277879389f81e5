"""The tables of `python -m benchmarks glm --device cuda`."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from benchmarks.glm.device import DeviceOptions, DeviceRow
from benchmarks.goals.glm_device import SETTING, device_losses
from benchmarks.goals.outcome import Outcome, goals_table
from laconic.cli.bench.tables import between, lost, machine, percent
from laconic.measure.environment import GPUEnvironment
from laconic.report.table import Column, number, table


def page(
    rows: Sequence[DeviceRow], outcomes: Sequence[Outcome], options: DeviceOptions, here: GPUEnvironment
) -> Iterator[RenderableType]:
    """All that a person is shown."""
    yield machine(here)
    yield f"batches of {options.batch_size}; medians of {options.repeats} rounds\n"
    for problem in options.problems:
        yield iterations([row for row in rows if row.problem == problem])
        yield ""
    yield from lost(device_losses(rows))
    yield from goals_table(outcomes, SETTING)


def iterations(rows: Sequence[DeviceRow]) -> RenderableType:
    """One line a contender."""
    first = rows[0]
    columns: list[Column[DeviceRow]] = [
        Column("contender", lambda r: r.contender, "left"),
        Column("µs", lambda r: number(1e6 * r.seconds.median)),
        Column("20–80 %", lambda r: between(r.seconds, 1e6)),
        Column("×\neager", lambda r: number(r.over_eager)),
        Column("×\ngraphed", lambda r: number(r.over_graphed)),
        Column("× graph.\nbf16", lambda r: number(r.over_graphed_bf16)),
        Column("×\njax", lambda r: number(r.over_jax)),
        Column("from\nfp64", lambda r: f"{r.difference:.1e}"),
        Column("loss\ngap %", lambda r: percent(r.loss_gap)),
    ]
    return table(
        f"{first.problem}: {first.n_rows:,} × {first.n_features:,}, {first.family}; an iteration",
        columns,
        rows,
        "×: speed over that contender. from fp64: distance of the weights from SGD in float64 after 512 iterations, "
        "relative. loss gap: above that of graphed fp32 SGD after an epoch on the same batches.",
    )
