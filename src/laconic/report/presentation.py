"""What to show of a run, declared once over the keys of its rows; terminal, HTML and Markdown render the declaration.

A `Presentation` is a title and parts; each part turns a document into blocks (see `report.blocks`), which the three
renderers know. Documents may come from anywhere: a value that is missing or of the wrong kind is shown as a dash.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from laconic.report import blocks as b
from laconic.report.values import Row, Unit, names_in, number_in, plain, ranged, rows_in, shown, spread_in, text_in

ENVIRONMENT = "environment"

Rows = Callable[[list[Row]], Iterable[Row]]
"""Chooses rows of a document, or makes others of them."""


class Part(Protocol):
    """Something that a presentation shows."""

    def blocks(self, document: Row) -> list[b.Block]:
        """What it shows of this document; nothing where the document has nothing to show."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading and the key of its values in the rows.

    key     of a number, a spread (median, p20, p80) or a text; or a function that gives one of these, or a `Cell`
    unit    of the numbers; None for text
    digits  significant ones
    words   what to write instead of some texts, such as a mark for "missed"

    >>> Column("ms", "seconds", "ms").cell({"seconds": {"median": 0.2, "p20": 0.1, "p80": 0.3}})
    Cell(text='200', value=0.2, mark='', spread='100–300')
    """

    heading: str
    key: str | Callable[[Row], Any]
    unit: Unit | None = ""
    digits: int = 3
    words: Mapping[str, b.Cell] = field(default_factory=dict)

    def cell(self, row: Row) -> b.Cell:
        """The row's cell."""
        value = self.key(row) if callable(self.key) else row.get(self.key)
        if isinstance(value, b.Cell):
            return value
        if self.unit is None:
            text = plain(value)
            return self.words.get(text, b.Cell(text))
        number, spread = number_in({"": value}, ""), spread_in({"": value}, "")
        between = ranged(*spread, self.unit, self.digits) if spread else ""
        return b.Cell(shown(number, self.unit, self.digits), number, spread=between)


def text(heading: str, key: str | Callable[[Row], Any]) -> Column:
    """A column of text."""
    return Column(heading, key, None)


@dataclass(frozen=True, slots=True)
class RowTable:
    """Rows under headings, without the columns that hold nothing.

    title  or what makes it of the rows that are shown
    rows   which rows to show, or rows made of them
    of     the key that the rows are under in the document
    by     a key: one table for each of its values
    """

    title: str | Callable[[list[Row]], str]
    columns: Sequence[Column]
    note: str = ""
    rows: Rows = list
    of: str = "rows"
    by: str = ""
    folded: bool = False

    def blocks(self, document: Row) -> list[b.Block]:
        rows = list(self.rows(rows_in(document, self.of)))
        groups = [[r for r in rows if text_in(r, self.by) == name] for name in names_in(rows, self.by)]
        return [grid for group in (groups if self.by else [rows]) if (grid := self.grid(group)).headings]

    def grid(self, rows: list[Any]) -> b.Cells:
        """These rows as a block."""
        columns = [(one.heading, [one.cell(row) for row in rows]) for one in self.columns]
        used = [(heading, cells) for heading, cells in columns if any(cell.text not in ("", "–") for cell in cells)]
        title = self.title(rows) if callable(self.title) and rows else str(self.title)
        lines = list(zip(*(cells for _, cells in used), strict=True))
        return b.Cells(title, [heading for heading, _ in used], lines, self.note, self.folded)


@dataclass(frozen=True, slots=True)
class BarChart:
    """A bar for each row that has the number, gathered by `group`.

    label      the key of a bar's name, or what makes it of the row
    limit      the key of what the number is compared with, and what that is called
    reference  a value to mark on every bar
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

    def blocks(self, document: Row) -> list[b.Block]:
        kept = [row for row in self.rows(rows_in(document, self.of)) if number_in(row, self.key) is not None]
        order = names_in(kept, self.group) if self.group else [""]
        kept.sort(key=lambda row: order.index(text_in(row, self.group)) if self.group else 0)
        bars = [self._bar(row, len(order) > 1) for row in kept]
        limit = self.limit[1] if self.limit and any(bar.limit is not None for bar in bars) else ""
        return [b.Bars(self.title, bars, self.unit, self.log, self.reference, limit, self.note)] if bars else []

    def _bar(self, row: Row, grouped: bool) -> b.Bar:
        label = self.label(row) if callable(self.label) else text_in(row, self.label, "?")
        limit = number_in(row, self.limit[0]) if self.limit else None
        group = text_in(row, self.group) if grouped else ""
        return b.Bar(label, number_in(row, self.key), spread_in(row, self.key), limit, group)


def speedups(over: str, key: str = "speedup_over_fp32", **more: Any) -> BarChart:
    """Bars of how many times as fast as a baseline; 1 is marked."""
    return BarChart(f"Speed-up over {over}", key, "×", reference=1.0, **more)


@dataclass(frozen=True, slots=True)
class LineChart:
    """A quantity of each row over iterations, seconds and bytes. A row keeps its colour in all charts of a document.

    points  the key of a row's points, each a mapping with "iteration", "seconds", "bytes" (or what `axes` say) and the
            quantity, and maybe a "label"; or what makes these of the row
    name    the key of a curve's name
    by      a key: one chart for each of its values
    panels  whether these charts stand side by side, on the same scales and with one legend
    rows    which rows to show, or rows made of them; a number under "ink" says how a curve is drawn
    """

    y: b.Axis
    points: str | Callable[[Row], Sequence[Row]] = "curve"
    title: str = ""
    name: str = "contender"
    by: str = ""
    log: bool = False
    note: str = ""
    of: str = "rows"
    axes: Sequence[b.Axis] = b.AXES
    log_x: bool = False
    panels: bool = False
    rows: Rows = list

    def blocks(self, document: Row) -> list[b.Block]:
        rows = list(self.rows(rows_in(document, self.of)))
        inks = {name: i for i, name in enumerate(names_in(rows, self.name))}
        inks |= {text_in(row, self.name): int(ink) for row in rows if (ink := number_in(row, "ink")) is not None}
        made: list[b.Block] = []
        for group in names_in(rows, self.by) if self.by else [""]:
            here = [row for row in rows if not self.by or text_in(row, self.by) == group]
            named = [(text_in(row, self.name), self._points(row)) for row in here]
            curves = [b.Curve(name or "?", points, inks[name]) for name, points in named if points]
            title = group if self.panels else ": ".join(filter(None, [group, self.title or self.y.name]))
            chart = b.Curves(title, self.y, curves, self.axes, self.log, self.note, self.log_x, self.panels)
            made += [chart] if curves else []
        return made

    def _points(self, row: Row) -> list[dict[str, Any]]:
        found = self.points(row) if callable(self.points) else rows_in(row, self.points)
        keys = [*(axis.key for axis in self.axes), self.y.key]
        labels = [{"label": text_in(point, "label")} if "label" in point else {} for point in found]
        points = [{key: number_in(p, key) for key in keys} | label for p, label in zip(found, labels, strict=True)]
        return points if any(point[self.y.key] is not None for point in points) else []


@dataclass(frozen=True, slots=True)
class Text:
    """Sentences made of the document; with `listed` the points of a list."""

    lines: Callable[[Row], Sequence[str]]
    listed: bool = False

    def blocks(self, document: Row) -> list[b.Block]:
        lines = [line for line in self.lines(document) if line]
        return [b.Words(lines, self.listed)] if lines else []


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command was asked for: the mapping under a key of the document."""

    of: str = "options"

    def blocks(self, document: Row) -> list[b.Block]:
        given = document.get(self.of)
        items = given.items() if isinstance(given, Mapping) else ()
        kept = [(str(k).replace("_", " "), plain(v)) for k, v in items if v is not None and v is not False]
        return [b.Facts(kept)] if kept else []


@dataclass(frozen=True, slots=True)
class AllRows:
    """Every row with all that it holds; what is the same in each of them once, above. Without a title it is folded."""

    title: str = ""
    of: str = "rows"
    without: Sequence[str] = ("curve",)

    def blocks(self, document: Row) -> list[b.Block]:
        rows = rows_in(document, self.of)
        keys = dict.fromkeys(key for row in rows for key in row if key not in (ENVIRONMENT, *self.without))
        texts = {key: [plain(row.get(key)) for row in rows] for key in keys}
        same = [key for key in keys if len(rows) > 1 and len(set(texts[key])) == 1]
        differ = [key for key in keys if key not in same and any(t != "–" for t in texts[key])]
        facts = [(key.replace("_", " "), texts[key][0]) for key in same if texts[key][0] not in ("–", "")]
        made: list[b.Block] = [b.Facts(facts)] if facts and self.title else []
        if not differ:
            return made
        cells = [[b.Cell(texts[key][i], number_in(row, key)) for key in differ] for i, row in enumerate(rows)]
        same_note = "The same in all rows: " + "; ".join(f"{k}: {v}" for k, v in facts) + "."
        note = "" if self.title or not facts else same_note
        headings = [key.replace("_", " ") for key in differ]
        return [*made, b.Cells(self.title or f"All {len(rows)} rows", headings, cells, note, folded=not self.title)]


def goals(document: Row) -> list[b.Block]:
    """Targets beside what was measured, with misses marked, in documents that have a list of "goals"."""
    about = text_in(document, "goals_for")
    note = f"Set for: {about}." if about else ""
    return RowTable("Goals", GOAL_COLUMNS, note, of="goals").blocks(document)


VERDICTS = {
    "aim": b.Cell("aim reached", mark="good"),
    "floor": b.Cell("floor held", mark="good"),
    "missed": b.Cell("missed", mark="bad"),
}
GOAL_COLUMNS = (
    text("goal", "name"),
    Column("measured", "value", digits=4),
    Column("floor", "floor", digits=4),
    Column("aim", "aim", digits=4),
    Column("verdict", "verdict", None, words=VERDICTS),
)


@dataclass(frozen=True, slots=True)
class Presentation:
    """What to show of a suite's documents: a section with its parts, then goals and all rows.

    title, about  texts, or what makes them of the document
    split         makes several documents of one, each of which becomes a section of its own
    all_rows      whether to end with a folded table of all rows

    >>> shown = Presentation("Sizes", [RowTable("Bytes", [text("who", "contender"), Column("sent", "bytes", "B")])])
    >>> shown.sections({"rows": [{"contender": "a", "bytes": 2000}]})[0].blocks[0].rows[0][1].text
    '2.00 kB'
    """

    title: str | Callable[[Row], str]
    parts: Sequence[Part]
    about: str | Callable[[Row], str] = ""
    split: Callable[[Row], Sequence[Row]] = lambda document: [document]
    all_rows: bool = True

    def sections(self, document: Row) -> list[b.Section]:
        """The sections of a page, one if the document is not split."""
        return [self._section(one) for one in self.split(document)]

    def _section(self, document: Row) -> b.Section:
        title, about = (x(document) if callable(x) else x for x in (self.title, self.about))
        made = [block for part in self.parts for block in part.blocks(document)]
        rest = AllRows().blocks(document) if self.all_rows else []
        return b.Section(title, [*made, *goals(document), *rest], about)


def where(document: Row) -> str:
    """Ranks, links and sizes of a document's first row, in words.

    >>> where({"rows": [{"ranks": 4, "rate": "1gbit", "n": 4194304}]})
    '4 ranks, links of 1gbit, 4,194,304 values'
    """
    first = next(iter(rows_in(document)), {})
    ranks, n = number_in(first, "ranks"), number_in(first, "n")
    on_gpu = text_in(first, "device").startswith("cuda")
    if on_gpu and ranks in (None, 1):
        return "one GPU"
    said = [f"{ranks:.0f} ranks" + " over NCCL" * on_gpu if ranks != 1 else "1 rank"] if ranks is not None else []
    if first.get("simulated") is True:
        said.append("simulated")
    elif first.get("rate"):
        slow = f", the last of {text_in(first, 'slow_rate')}" if first.get("slow_rate") else ""
        said.append(f"links of {text_in(first, 'rate')}{slow}")
    elif ranks is not None and "rate" in first:
        said.append("loopback")
    if n is not None:
        said.append(f"{n:,.0f} values")
    return ", ".join(said) or "ranks"


def machine(document: Row) -> list[b.Block]:
    """The environments of the rows: a list of facts for each that differs in more than its date."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows_in(document):
        here = row.get(ENVIRONMENT)
        if isinstance(here, Mapping) and here:
            found.setdefault(plain({k: v for k, v in here.items() if k != "date"}), dict(here))
    return [
        b.Facts([(k.replace("_", " "), _fact(k, v)) for k, v in here.items() if v is not None])
        for here in found.values()
    ]


def _fact(key: str, value: Any) -> str:
    said = plain(value)
    if key == "commit":
        return said[:12] + ("+dirty" if said.endswith("+dirty") else "")
    return said[:16].replace("T", " ") + " UTC" if key == "date" and said.endswith("+00:00") else said
