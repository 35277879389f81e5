"""What many views show: tables by columns, goals, speed-ups, the machine, and the rows as they are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laconic.report.blocks import Bar, Bars, Block, Cell, Facts, Grid
from laconic.report.units import Unit, ranged, shown
from laconic.report.values import Row, names_in, number_in, plain, rows_in, spread_in, text_in

ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class Col:
    """A heading and the key of its values: numbers of a unit, or text."""

    heading: str
    key: str
    unit: Unit | None = ""
    digits: int = 3

    def cell(self, row: Row) -> Cell:
        """The row's cell: a spread shows its percentiles."""
        if self.unit is None:
            return Cell(text_in(row, self.key, "–"))
        value, spread = number_in(row, self.key), spread_in(row, self.key)
        text = shown(value, self.unit, self.digits)
        if spread:
            text += f" ({ranged(*spread, self.unit, self.digits)})"
        return Cell(text, value)


def text(heading: str, key: str) -> Col:
    """A column of text."""
    return Col(heading, key, None)


def table(title: str, rows: Sequence[Row], columns: Sequence[Col], note: str = "") -> list[Block]:
    """A table, without columns that hold nothing; no table where nothing is left."""
    used = [c for c in columns if any(_filled(c, row) for row in rows)]
    if not rows or not used:
        return []
    return [Grid(title, [c.heading for c in used], [[c.cell(row) for c in used] for row in rows], note)]


def _filled(column: Col, row: Row) -> bool:
    return bool(text_in(row, column.key)) if column.unit is None else number_in(row, column.key) is not None


def bars(
    title: str,
    rows: Sequence[Row],
    key: str,
    unit: Unit = "",
    *,
    label: str | Callable[[Row], str] = "contender",
    group: str = "",
    limit: tuple[str, str] | None = None,
    log: bool = False,
    reference: float | None = None,
    note: str = "",
) -> list[Block]:
    """A bar for each row that has the number, gathered by `group`; nothing where no row has.

    limit  the key of what it is compared with, and what that is called
    """
    kept = [row for row in rows if number_in(row, key) is not None]
    order = names_in(kept, group) if group else [""]
    kept.sort(key=lambda row: order.index(text_in(row, group)) if group else 0)
    made = [
        Bar(
            label(row) if callable(label) else text_in(row, label, "?"),
            number_in(row, key),
            spread_in(row, key),
            number_in(row, limit[0]) if limit else None,
            text_in(row, group) if group and len(order) > 1 else "",
        )
        for row in kept
    ]
    named = limit[1] if limit and any(bar.limit is not None for bar in made) else ""
    return [Bars(title, made, unit, log, reference, named, note)] if made else []


def speedups(rows: Sequence[Row], key: str = "speedup_over_fp32", over: str = "float32", **more: Any) -> list[Block]:
    """Bars of how many times as fast as a baseline; 1 is marked."""
    return bars(f"Speed-up over {over}", rows, key, "×", reference=1.0, **more)


CODERS = ("fixed", "elias", "huffman", "rans")


def by_coder(rows: Sequence[Row], key: str) -> list[Row]:
    """The rows with what is under the key, bits by coder, at the top; its columns are `CODERS`."""
    return [{**row, **(coded if isinstance(coded := row.get(key), Mapping) else {})} for row in rows]


def goals(document: Row) -> list[Block]:
    """What was promised beside what was measured, with misses marked."""
    rows = rows_in(document, "goals")
    if not rows:
        return []
    marks = {"aim": "good", "floor": "good", "missed": "bad"}
    words = {"aim": "aim reached", "floor": "floor held", "missed": "missed"}
    made = []
    for row in rows:
        verdict = text_in(row, "verdict")
        cells = [Col("", key, digits=4).cell(row) for key in ("value", "floor", "aim")]
        made.append(
            [Cell(text_in(row, "name")), *cells, Cell(words.get(verdict, verdict), None, marks.get(verdict, ""))]
        )
    about = text_in(document, "goals_for")
    return [Grid("Goals", ["goal", "measured", "floor", "aim", "verdict"], made, about and f"Set for: {about}.")]


def machine(rows: Sequence[Row]) -> list[Block]:
    """The environments of the rows: one list of facts for each that differs in more than its date."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        here = row.get(ENVIRONMENT)
        if isinstance(here, Mapping) and here:
            found.setdefault(plain({k: v for k, v in here.items() if k != "date"}), dict(here))
    return [
        Facts([(k.replace("_", " "), _fact(k, v)) for k, v in here.items() if v is not None]) for here in found.values()
    ]


def _fact(key: str, value: Any) -> str:
    said = plain(value)
    if key == "commit":
        return said[:12] + ("+dirty" if said.endswith("+dirty") else "")
    return said[:16].replace("T", " ") + " UTC" if key == "date" and said.endswith("+00:00") else said


def options(document: Row) -> list[Block]:
    """What the command was asked for."""
    given = document.get("options")
    if not isinstance(given, Mapping):
        return []
    kept = [(str(k).replace("_", " "), plain(v)) for k, v in given.items() if v is not None and v is not False]
    return [Facts(kept)] if kept else []


def everything(rows: Sequence[Row], title: str = "") -> list[Block]:
    """All rows with all that they hold; what is the same in each of them once, above."""
    keys = list(dict.fromkeys(key for row in rows for key in row if key != ENVIRONMENT))
    texts = {key: [plain(row.get(key)) for row in rows] for key in keys}
    same = [key for key in keys if len(rows) > 1 and len(set(texts[key])) == 1]
    differ = [key for key in keys if key not in same and any(t != "–" for t in texts[key])]
    facts = [(key.replace("_", " "), texts[key][0]) for key in same if texts[key][0] not in ("–", "")]
    made: list[Block] = [Facts(facts)] if facts and title else []
    if not differ:
        return made
    cells = [[Cell(texts[key][i], number_in(row, key)) for key in differ] for i, row in enumerate(rows)]
    note = "" if title or not facts else "The same in all rows: " + "; ".join(f"{k}: {v}" for k, v in facts) + "."
    headings = [key.replace("_", " ") for key in differ]
    return [*made, Grid(title or f"All {len(rows)} rows", headings, cells, note, folded=not title)]
