"""The tables of `python -m benchmarks glm --time-to`."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from benchmarks.glm.files import FileRow
from benchmarks.glm.time_to import TimeRow
from benchmarks.goals.glm import TIME_SETTING, race_losses
from benchmarks.goals.outcome import Outcome, goals_table
from laconic.cli.bench.tables import lost, machine
from laconic.measure import Environment
from laconic.report.table import Column, number, table


def time_page(
    rows: Sequence[TimeRow], file: FileRow, outcomes: Sequence[Outcome], environment: Environment
) -> Iterator[RenderableType]:
    """All that a person is shown of the race to an objective."""
    yield f"{machine(environment)}\n"
    yield race(rows)
    yield ""
    yield (
        f"LIBSVM, {file.n_bytes / 1e6:.0f} MB: read at {number(file.mb_per_second)} MB/s, "
        f"{number(file.ratio_to_sklearn.median)} times scikit-learn's speed"
        + (f"; converted in {file.peak_bytes / 1e6:.0f} MB of memory" if file.peak_bytes is not None else "")
    )
    yield ""
    yield from lost(race_losses(rows))
    yield from goals_table(outcomes, TIME_SETTING)


def race(rows: Sequence[TimeRow]) -> RenderableType:
    """One line a contender."""
    first = rows[0]
    columns: list[Column[TimeRow]] = [
        Column("contender", lambda r: r.contender, "left"),
        Column("its best way", lambda r: r.config or "none got there", "left"),
        Column("s", lambda r: number(r.seconds.median if r.seconds else None)),
        Column("÷\nours", lambda r: number(r.over_ours.median if r.over_ours else None)),
        Column("above\nbest, %", lambda r: number(None if r.above_optimum is None else 100 * r.above_optimum, 2)),
    ]
    return table(
        f"{first.problem}: {first.n_rows:,} × {first.n_features:,}, {first.family}; to within 1 % of the optimum",
        columns,
        rows,
        "s: all of fit, float32 rows in memory. ÷ ours: over the faster of laconic's. Each contender runs the best of "
        "the settings tried.",
    )
