"""Tables and sentences: declared over the keys of a document's rows, and turned into blocks to render.

A part (`RowTable`, `Text`, `Settings`, `AllRows`) turns a document into blocks (`Cells`, `Words`, `Facts`), which are
rendered for terminal, page and Markdown. A value that is missing or of the wrong kind is shown as a dash.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from laconic.report.values import Row, finite, names_in, percentiles, plain, rows_in, text_in
from laconic.units import Unit, ranged, shown

SIGNS = {"good": "✓ ", "bad": "✗ "}
"""Prefix of a marked cell."""
SPREAD = " (20–80 %)"
"""Suffix of the heading of a column with spreads."""
ENVIRONMENT = "environment"
Rows = Callable[[list[Row]], Iterable[Row]]
"""A function that selects or transforms the rows of a document."""


@dataclass(frozen=True, slots=True)
class Words:
    """Paragraphs, or with `listed` the items of a list."""

    lines: Sequence[str]
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Pairs of a name and a value, such as the machine and the versions."""

    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Cell:
    """A table cell: its text, and the number to sort it by.

    mark    "good" or "bad": shown by a sign as well as by colour
    spread  20th to 80th percentile, where the number is a median
    """

    text: str
    value: float | None = None
    mark: str = ""
    spread: str = ""

    @property
    def shown(self) -> str:
        return f"{self.text} ({self.spread})" if self.spread else self.text


@dataclass(frozen=True, slots=True)
class Cells:
    """A table with one heading per column; `folded` starts closed."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    folded: bool = False

    def numeric(self) -> list[bool]:
        return [any(row[i].value is not None for row in self.rows) for i in range(len(self.headings))]

    def spread(self) -> list[bool]:
        return [any(row[i].spread for row in self.rows) for i in range(len(self.headings))]

    def spread_headings(self) -> list[str]:
        """The headings, with a suffix for columns with spreads."""
        return [h + SPREAD if s else h for h, s in zip(self.headings, self.spread(), strict=True)]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading and the key of its values in the rows.

    key     of a number, a spread (median, p20, p80) or a text; or a function that returns one of these or a `Cell`
    unit    of the numbers; None for text
    digits  significant digits
    words   replacements for some texts, such as a mark for "missed"

    >>> Column("ms", "seconds", "ms").cell({"seconds": {"median": 0.2, "p20": 0.1, "p80": 0.3}})
    Cell(text='200', value=0.2, mark='', spread='100–300')
    """

    heading: str
    key: str | Callable[[Row], Any]
    unit: Unit | None = ""
    digits: int = 3
    words: Mapping[str, Cell] = field(default_factory=dict)

    def cell(self, row: Row) -> Cell:
        value = self.key(row) if callable(self.key) else row.get(self.key)
        if isinstance(value, Cell):
            return value
        if self.unit is None:
            said = plain(value)
            return self.words.get(said, Cell(said))
        number, spread = finite(value), percentiles(value)
        between = ranged(*spread, self.unit, self.digits) if spread else ""
        return Cell(shown(number, self.unit, self.digits), number, spread=between)


def text(heading: str, key: str | Callable[[Row], Any]) -> Column:
    """A column of text."""
    return Column(heading, key, None)


@dataclass(frozen=True, slots=True)
class RowTable:
    """A table of rows, without empty columns.

    title  a text, or a function of the rows shown
    rows   selects or transforms the rows
    of     the key of the rows in the document
    by     a key: one table for each of its values
    """

    title: str | Callable[[list[Row]], str]
    columns: Sequence[Column]
    note: str = ""
    rows: Rows = list
    of: str = "rows"
    by: str = ""
    folded: bool = False

    def blocks(self, document: Row) -> list[Cells]:
        rows = list(self.rows(rows_in(document, self.of)))
        return [made for group in grouped(rows, self.by).values() if (made := self.grid(group)).headings]

    def grid(self, rows: list[Any]) -> Cells:
        """These rows as a block."""
        columns = [(one.heading, [one.cell(row) for row in rows]) for one in self.columns]
        used = [(heading, cells) for heading, cells in columns if any(cell.text not in ("", "–") for cell in cells)]
        title = self.title(rows) if callable(self.title) and rows else str(self.title)
        lines = list(zip(*(cells for _, cells in used), strict=True))
        return Cells(title, [heading for heading, _ in used], lines, self.note, self.folded)


def grouped(rows: Sequence[Row], key: str) -> dict[str, list[Row]]:
    """Rows grouped by their text under a key, in order of appearance; without a key all under "".

    >>> grouped([{"a": 1}, {"a": 2}, {"a": 1}], "a")
    {'1': [{'a': 1}, {'a': 1}], '2': [{'a': 2}]}
    """
    return {
        name: [row for row in rows if not key or text_in(row, key) == name]
        for name in (names_in(rows, key) if key else [""])
    }


@dataclass(frozen=True, slots=True)
class Text:
    """Sentences computed from the document; with `listed` the items of a list."""

    lines: Callable[[Row], Sequence[str]]
    listed: bool = False

    def blocks(self, document: Row) -> list[Words]:
        lines = [line for line in self.lines(document) if line]
        return [Words(lines, self.listed)] if lines else []


@dataclass(frozen=True, slots=True)
class Settings:
    """The options in the document."""

    def blocks(self, document: Row) -> list[Facts]:
        given = document.get("options")
        items = given.items() if isinstance(given, Mapping) else ()
        kept = [(str(k).replace("_", " "), plain(v)) for k, v in items if v is not None and v is not False]
        return [Facts(kept)] if kept else []


@dataclass(frozen=True, slots=True)
class AllRows:
    """All rows with all their fields; fields equal in all rows go into a note. Folded if it has no title."""

    title: str = ""

    def blocks(self, document: Row) -> list[Cells]:
        rows = rows_in(document)
        keys = dict.fromkeys(key for row in rows for key in row if key not in (ENVIRONMENT, "curve"))
        texts = {key: [plain(row.get(key)) for row in rows] for key in keys}
        same = [key for key in keys if len(rows) > 1 and len(set(texts[key])) == 1]
        differ = [key for key in keys if key not in same and any(said != "–" for said in texts[key])]
        facts = [f"{key.replace('_', ' ')}: {texts[key][0]}" for key in same if texts[key][0] not in ("–", "")]
        note = f"The same in all rows: {'; '.join(facts)}." if facts else ""
        cells = [[Cell(texts[key][i], finite(row.get(key))) for key in differ] for i, row in enumerate(rows)]
        headings = [key.replace("_", " ") for key in differ]
        return [Cells(self.title or f"All {len(rows)} rows", headings, cells, note, not self.title)] if differ else []
