"""What a page is made of: sections of text, tables, bars and curves. No HTML here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from laconic.report.values import Unit, shown

SIGNS = {"good": "✓ ", "bad": "✗ "}
"""What stands before a cell that is marked."""
SPREAD = " (20–80 %)"
"""What a heading says of cells that have a spread."""


@dataclass(frozen=True, slots=True)
class Words:
    """Paragraphs, or with `listed` the points of a list."""

    lines: Sequence[str]
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are, such as the machine and the versions."""

    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, and the number to sort it by.

    mark    "good" or "bad": said by a sign, too, not by colour alone
    spread  from the 20th to the 80th percentile, where the number is a median
    """

    text: str
    value: float | None = None
    mark: str = ""
    spread: str = ""

    @property
    def shown(self) -> str:
        """The text with its spread."""
        return f"{self.text} ({self.spread})" if self.spread else self.text

    @classmethod
    def of(cls, x: float | None, unit: Unit = "", digits: int = 3) -> "Cell":
        """A number with its unit."""
        return cls(shown(x, unit, digits), x)


@dataclass(frozen=True, slots=True)
class Cells:
    """A table with one heading per column; `folded` starts closed."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    folded: bool = False

    def numeric(self) -> list[bool]:
        """Which columns hold numbers."""
        return [any(row[i].value is not None for row in self.rows) for i in range(len(self.headings))]

    def spread_headings(self) -> list[str]:
        """The headings; those of columns that show spreads say so."""
        spread = [any(row[i].spread for row in self.rows) for i in range(len(self.headings))]
        return [h + SPREAD if s else h for h, s in zip(self.headings, spread, strict=True)]


@dataclass(frozen=True, slots=True)
class Bar:
    """A label and its value, with a range where there is one.

    limit  a second value that the first is compared with, such as a bound
    """

    label: str
    value: float | None
    spread: tuple[float, float] | None = None
    limit: float | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars on one scale, from 0 or, logarithmic, from the next power of ten below.

    reference  a value to mark on every bar, such as 1 for "as fast as before"
    limit      what `Bar.limit` is
    """

    title: str
    bars: Sequence[Bar]
    unit: Unit = ""
    log: bool = False
    reference: float | None = None
    limit: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """A quantity that curves have: the key of their points, its name and its unit."""

    key: str
    name: str
    unit: Unit = ""


ITERATIONS = Axis("iteration", "iterations", "n")
SECONDS = Axis("seconds", "seconds", "s")
BYTES = Axis("bytes", "bytes sent", "B")
AXES = (ITERATIONS, SECONDS, BYTES)
MOST_POINTS = 400


@dataclass(frozen=True, slots=True)
class Curve:
    """A name, and points that map keys of axes to numbers, and "label" to what to call the point, if that has a name.

    ink  which colour and dash: the same for the same contender all over a section
    """

    name: str
    points: Sequence[Mapping[str, Any]]
    ink: int = 0


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves of one quantity over axes to choose from.

    log, log_x  whether the scales are logarithmic at first
    panel       whether it stands beside its neighbours, on the same scales and with one legend
    """

    title: str
    y: Axis
    curves: Sequence[Curve]
    axes: Sequence[Axis] = AXES
    log: bool = False
    note: str = ""
    log_x: bool = False
    panel: bool = False

    def used_axes(self) -> list[Axis]:
        """Axes that at least one curve gets along."""
        return [
            axis
            for axis in self.axes
            if any(len({p.get(axis.key) for p in curve.points} - {None}) > 1 for curve in self.curves)
        ] or list(self.axes[:1])


Block = Words | Facts | Cells | Bars | Curves


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what is under it.

    tag  the run that it is of, which the table of contents shows
    """

    title: str
    blocks: Sequence[Block] = field(default_factory=list)
    about: str = ""
    tag: str = ""


def thinned(points: Sequence[Mapping[str, Any]], most: int = MOST_POINTS) -> list[Mapping[str, Any]]:
    """At most `most` of the points, evenly, the first and the last among them.

    >>> [p["iteration"] for p in thinned([{"iteration": i} for i in range(10)], 4)]
    [0, 3, 6, 9]
    """
    if len(points) <= most:
        return list(points)
    return [points[i * (len(points) - 1) // (most - 1)] for i in range(most)]
