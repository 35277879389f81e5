"""Presentations of runs: a title and parts, declared once and registered under the suite's name.

Each part turns a document into blocks, which are rendered for terminal, page and Markdown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from laconic.report.charts import Bars, Curves
from laconic.report.tables import ENVIRONMENT, AllRows, Cell, Cells, Column, Facts, RowTable, Settings, Words, text
from laconic.report.values import Row, number_in, plain, rows_in, text_in

Block = Words | Facts | Cells | Bars | Curves


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the blocks under it.

    tag  the name of its run, for the table of contents
    """

    title: str
    blocks: Sequence[Block] = ()
    about: str = ""
    tag: str = ""


class Part(Protocol):
    """A part of a presentation, such as a table or a chart."""

    def blocks(self, document: Row) -> Sequence[Block]:
        """Its blocks for this document; empty if there is nothing to show."""


VERDICTS = {
    "aim": Cell("aim reached", mark="good"),
    "floor": Cell("floor held", mark="good"),
    "missed": Cell("missed", mark="bad"),
}
GOALS = (
    text("goal", "name"),
    Column("measured", "value", digits=4),
    Column("floor", "floor", digits=4),
    Column("aim", "aim", digits=4),
    Column("verdict", "verdict", None, words=VERDICTS),
)
"""The table of targets and results of documents that have a list of "goals"."""


@dataclass(frozen=True, slots=True)
class Presentation:
    """How to show a suite's documents: a section with its parts, then goals and all rows.

    title, about  texts, or functions of the document
    split         splits a document into several, each with a section of its own
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

    def sections(self, document: Row) -> list[Section]:
        """The sections of a document: one, unless it is split."""
        return [self._section(one) for one in self.split(document)]

    def _section(self, document: Row) -> Section:
        title, about = (x(document) if callable(x) else x for x in (self.title, self.about))
        goals_for = text_in(document, "goals_for")
        goals = RowTable("Goals", GOALS, f"Set for: {goals_for}." if goals_for else "", of="goals")
        parts: list[Part] = [*self.parts, goals, *([AllRows()] if self.all_rows else [])]
        return Section(title, [block for part in parts for block in part.blocks(document)], about)


_REGISTERED: dict[str, tuple[Presentation, ...] | str] = {}


def register(suite: str, *presentations: Presentation, lazily: str = "") -> None:
    """Register presentations for the documents of a suite; each gives one or more sections.

    lazily  instead of presentations, "package.module:NAME" of one or a tuple of them, imported when needed
    """
    _REGISTERED[suite] = lazily or presentations


def registered() -> list[str]:
    """The names of all suites with a presentation."""
    return list(_REGISTERED)


def presentations(suite: str) -> tuple[Presentation, ...]:
    """The presentations of a suite; by default its options and its rows."""
    found = _REGISTERED.get(suite, ())
    if isinstance(found, str):
        module, _, name = found.partition(":")
        made = getattr(import_module(module), name)
        found = _REGISTERED[suite] = (made,) if isinstance(made, Presentation) else tuple(made)
    return found or (Presentation(suite, [Settings(), AllRows("The rows")], all_rows=False),)


def sections(suite: str, document: Row) -> list[Section]:
    """The sections of a document; of several presentations, only those with something to show."""
    shown = presentations(suite)
    made = [section for one in shown for section in one.sections(document)]
    return made if len(shown) == 1 else [section for section in made if section.blocks]


def where(document: Row) -> str:
    """A phrase for the ranks, links and sizes of a document's first row.

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
    said += [f"{n:,.0f} values"] if n is not None else []
    return ", ".join(said) or "ranks"


def machine(document: Row) -> list[Facts]:
    """The distinct environments of the rows, ignoring dates, as lists of facts."""
    found: dict[str, Row] = {}
    for row in rows_in(document):
        here = row.get(ENVIRONMENT)
        if isinstance(here, Mapping) and here:
            found.setdefault(plain({k: v for k, v in here.items() if k != "date"}), here)
    return [
        Facts([(k.replace("_", " "), _fact(k, v)) for k, v in here.items() if v is not None]) for here in found.values()
    ]


def _fact(key: str, value: Any) -> str:
    said = plain(value)
    if key == "commit":
        return said[:12] + ("+dirty" if said.endswith("+dirty") else "")
    return said[:16].replace("T", " ") + " UTC" if key == "date" and said.endswith("+00:00") else said
