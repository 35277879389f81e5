"""Bar and line charts: declared over the keys of a document's rows, and turned into blocks to render."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laconic.report.tables import Rows, grouped
from laconic.report.values import Row, names_in, number_in, percentiles, rows_in, text_in
from laconic.units import Unit


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: a label, its value and optionally its spread.

    limit  a second value to compare with, such as a bound
    """

    label: str
    value: float | None
    spread: tuple[float, float] | None = None
    limit: float | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class BarChart:
    """A bar chart of the rows that have a number under `key`, grouped by `group`.

    label      the key of a bar's name, or a function of the row
    limit      the key of a second number to compare with, and its name
    log        whether the scale is logarithmic, from the next power of ten below; else it begins at 0
    reference  a value to mark on every bar, such as 1 for "as fast as before"
    """

    title: str
    key: str
    unit: Unit = ""
    label: str | Callable[[Row], str] = "contender"
    group: str = ""
    limit: tuple[str, str] | None = None
    log: bool = False
    reference: float | None = None
    note: str = ""
    rows: Rows = list
    of: str = "rows"

    def blocks(self, document: Row) -> list["Bars"]:
        kept = [row for row in self.rows(rows_in(document, self.of)) if number_in(row, self.key) is not None]
        groups = grouped(kept, self.group)
        bars = [self._bar(row, name if len(groups) > 1 else "") for name, some in groups.items() for row in some]
        return [Bars(self, bars)] if bars else []

    def _bar(self, row: Row, group: str) -> Bar:
        label = self.label(row) if callable(self.label) else text_in(row, self.label, "?")
        limit = number_in(row, self.limit[0]) if self.limit else None
        return Bar(label, number_in(row, self.key), percentiles(row.get(self.key)), limit, group)


def speedups(over: str, key: str = "speedup_over_fp32", **more: Any) -> BarChart:
    """A bar chart of the speedup over a baseline; 1 is marked."""
    return BarChart(f"Speed-up over {over}", key, "×", reference=1.0, **more)


@dataclass(frozen=True, slots=True)
class Bars:
    """The bars of a chart."""

    chart: BarChart
    bars: Sequence[Bar]

    @property
    def limit(self) -> str:
        """The name of `Bar.limit`; empty if no bar has one."""
        return self.chart.limit[1] if self.chart.limit and any(bar.limit is not None for bar in self.bars) else ""


@dataclass(frozen=True, slots=True)
class Axis:
    """A quantity along an axis: its key in the points, its name and its unit."""

    key: str
    name: str
    unit: Unit = ""


ITERATIONS = Axis("iteration", "iterations", "n")
SECONDS = Axis("seconds", "seconds", "s")
BYTES = Axis("bytes", "bytes sent", "B")


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve: its name, and points that map keys of axes to numbers and optionally "label" to a name.

    ink  number of its colour and dash, the same for a contender in all charts of a section
    """

    name: str
    points: Sequence[Mapping[str, Any]]
    ink: int = 0


@dataclass(frozen=True, slots=True)
class LineChart:
    """A line chart of `y` of each row over a choice of axes. A row keeps its colour in all charts of a document.

    points      the key of a row's points, each a mapping from keys of axes and of `y` to numbers, optionally with a
                "label"; or a function of the row that returns them
    name        the key of a curve's name
    by          a key: one chart for each of its values
    log, log_x  whether the scales are logarithmic initially
    panels      whether the charts are panels side by side, with the same scales and one legend
    rows        selects or transforms the rows; a number under "ink" sets a curve's colour and dash
    """

    y: Axis
    points: str | Callable[[Row], Sequence[Row]] = "curve"
    title: str = ""
    name: str = "contender"
    by: str = ""
    log: bool = False
    note: str = ""
    of: str = "rows"
    axes: Sequence[Axis] = (ITERATIONS, SECONDS, BYTES)
    log_x: bool = False
    panels: bool = False
    rows: Rows = list

    def blocks(self, document: Row) -> list["Curves"]:
        rows = list(self.rows(rows_in(document, self.of)))
        inks = {name: i for i, name in enumerate(names_in(rows, self.name))}
        inks |= {text_in(row, self.name): int(ink) for row in rows if (ink := number_in(row, "ink")) is not None}
        made = []
        for group, some in grouped(rows, self.by).items():
            named = [(text_in(row, self.name), self._points(row)) for row in some]
            curves = [Curve(name or "?", points, inks[name]) for name, points in named if points]
            title = group if self.panels else ": ".join(filter(None, [group, self.title or self.y.name]))
            made += [Curves(title, self, curves)] if curves else []
        return made

    def _points(self, row: Row) -> list[dict[str, Any]]:
        found = self.points(row) if callable(self.points) else rows_in(row, self.points)
        points: list[dict[str, Any]] = []
        for point in found:
            label = {"label": text_in(point, "label")} if "label" in point else {}
            points.append({axis.key: number_in(point, axis.key) for axis in (*self.axes, self.y)} | label)
        return points if any(point[self.y.key] is not None for point in points) else []


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves of a chart."""

    title: str
    chart: LineChart
    curves: Sequence[Curve]

    def used_axes(self) -> list[Axis]:
        """Axes along which at least one curve varies."""
        return [
            axis
            for axis in self.chart.axes
            if any(len({p.get(axis.key) for p in curve.points} - {None}) > 1 for curve in self.curves)
        ] or list(self.chart.axes[:1])
