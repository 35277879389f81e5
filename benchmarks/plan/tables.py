"""The tables of `python -m benchmarks plan`."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from benchmarks.goals.outcome import Outcome, goals_table
from benchmarks.plan.goals import SETTING
from benchmarks.plan.suite import PlanRow, Regret
from laconic.cli.bench.tables import machine
from laconic.measure.environment import Environment
from laconic.planner.terms import duration
from laconic.report.table import Column, table


def page(
    rows: Sequence[PlanRow], found: Sequence[Regret], outcomes: Sequence[Outcome], environment: Environment
) -> Iterator[RenderableType]:
    """All that a person is shown."""
    yield f"{machine(environment)}\n"
    yield recommendations(found)
    yield ""
    yield errors(rows)
    yield from goals_table(outcomes, SETTING)


def recommendations(found: Sequence[Regret]) -> RenderableType:
    """One line a problem and network."""
    columns: list[Column[Regret]] = [
        Column("ranks", lambda r: str(r.ranks)),
        Column("link", lambda r: r.rate or "loopback", "left"),
        Column("problem", lambda r: r.problem, "left"),
        Column("recommended", lambda r: r.recommended, "left"),
        Column("fastest", lambda r: r.best, "left"),
        Column("regret", lambda r: f"{r.regret:.2f}"),
    ]
    return table(
        "Recommendations",
        columns,
        found,
        "regret: time of what is recommended over that of the fastest option, both measured.",
    )


def errors(rows: Sequence[PlanRow]) -> RenderableType:
    """The worst predictions."""
    worst = sorted(rows, key=lambda row: -abs(row.error))[:12]
    columns: list[Column[PlanRow]] = [
        Column("ranks", lambda r: str(r.ranks)),
        Column("link", lambda r: r.rate or "loopback", "left"),
        Column("problem", lambda r: r.problem, "left"),
        Column("option", lambda r: r.option, "left"),
        Column("predicted", lambda r: duration(r.predicted)),
        Column("measured", lambda r: duration(r.measured.median)),
        Column("error", lambda r: f"{100 * r.error:+.0f} %"),
    ]
    return table(f"The worst of {len(rows)} predictions", columns, worst)
