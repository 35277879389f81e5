"""A benchmark target and this run's result."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType

from laconic.bench.protocol import Spread
from laconic.cli.bench.tables import between
from laconic.report.table import Column, number, table


@dataclass(frozen=True, slots=True)
class Outcome:
    """A goal with this run's number; `verdict` is "aim", "floor" (met) or "missed", by the median."""

    name: str
    value: Spread
    floor: float
    aim: float
    verdict: str


def outcome(name: str, value: Spread, floor: float, aim: float) -> Outcome:
    """A goal's verdict by the median: the value must reach `floor`, and we would like `aim`, whichever way that is.

    >>> outcome("loss, %", Spread(0.2, 0.1, 0.3), floor=0.5, aim=0.1).verdict
    'floor'
    """

    def reached(mark: float) -> bool:
        return value.median >= mark if aim > floor else value.median <= mark

    return Outcome(name, value, floor, aim, "aim" if reached(aim) else "floor" if reached(floor) else "missed")


def in_document(outcomes: Sequence[Outcome], setting: str) -> dict[str, Any]:
    """The fields that a result document has for its goals."""
    return {"goals": [asdict(outcome) for outcome in outcomes], "goals_for": setting}


def goals_table(outcomes: Sequence[Outcome], setting: str) -> Iterator[RenderableType]:
    """Targets beside this run's results; nothing if no target applies to these rows."""
    columns: list[Column[Outcome]] = [
        Column("goal", lambda o: o.name, "left"),
        Column("measured", lambda o: number(o.value.median, 4)),
        Column("20–80 %", lambda o: between(o.value) if o.value.p20 < o.value.p80 else "–"),
        Column("floor", lambda o: f"{o.floor:g}"),
        Column("aim", lambda o: f"{o.aim:g}"),
        Column("met", lambda o: {"missed": "no"}.get(o.verdict, o.verdict), "left"),
    ]
    if outcomes:
        yield ""
        yield table("Goals", columns, outcomes, f"Stated for {setting}.")
