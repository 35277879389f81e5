"""A paper's figure beside ours, and the table that shows them."""

from dataclasses import dataclass

from laconic.report import Cell, Column, RowTable, text
from laconic.report.values import Row, finite, plain, shown, text_in

CA_SGD = 'summary of "Mixed-Precision Communication-Avoiding SGD for Generalized Linear Models on GPUs"'
NUQSGD = "Ramezani-Kebrya et al. 2021, NUQSGD, JMLR 22(114)"


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure.

    what       it is of
    published  the paper's: a number, or words where it gives none
    measured   ours; None where this run has none
    source     where in the paper
    unit       of both numbers
    holds      whether ours bears it out; None where the two cannot be compared
    problem    that it is about, if it is about one
    note       what differs
    """

    what: str
    published: float | str | None
    measured: float | str | None
    source: str
    unit: str = ""
    holds: bool | None = None
    problem: str | None = None
    note: str = ""


VERDICTS = {
    "yes": Cell("holds", mark="good"),
    "no": Cell("does not hold", mark="bad"),
    "–": Cell("not comparable"),
}


def _figure(key: str, heading: str) -> Column:
    """A figure with the row's own unit."""

    def cell(row: Row) -> Cell:
        value, number = row.get(key), finite(row.get(key))
        said = shown(number) if number is not None else plain(value)
        return Cell(f"{said} {text_in(row, 'unit').strip()}".strip() if value is not None else "–", number)

    return Column(heading, cell)


CLAIM = text("claim", "what")
PUBLISHED = (
    RowTable(
        "Published and measured",
        [
            CLAIM,
            _figure("published", "published"),
            _figure("measured", "measured here"),
            Column("verdict", lambda row: row.get("holds"), None, words=VERDICTS),
        ],
        of="published",
    ),
    RowTable("Where in the papers, and what differs", [CLAIM, text("source", "source"), text("note", "note")],
          of="published", folded=True),
)  # fmt: skip


def where_we_lose(sentences: list[str]) -> list[str]:
    """A heading, then sentences on where laconic does worse; the heading says so if there are none."""
    return ["Where we lose:" + ("" if sentences else " nowhere in this run."), *sentences]
