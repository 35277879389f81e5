"""Claims of papers beside our results, with a two-sided verdict, and the table that shows them."""

from dataclasses import dataclass

from laconic.report import Cell, Column, RowTable, text
from laconic.report.values import Row, finite, plain, text_in
from laconic.units import shown

CA_SGD = 'summary of "Mixed-Precision Communication-Avoiding SGD for Generalized Linear Models on GPUs"'
NUQSGD = "Ramezani-Kebrya et al. 2021, NUQSGD, JMLR 22(114)"
HOLDS, BEYOND, NO = "holds", "beyond", "no"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a paper, and our result.

    what       the quantity
    published  the paper's figure: a number, or words
    measured   ours; None where training has diverged
    source     place in the paper
    unit       of both numbers
    low, high  range of our result in which the claim holds; None for no limit. We chose the tolerance around the figure
    better     "more" or "less": beyond the range on that side ours is better; "" if neither side is
    problem    that the claim is about, if it is about one
    note       differences between the runs
    why        explanation, if the claim does not hold
    seeds      of which methods there are fewer than of others, in words
    """

    what: str
    published: float | str
    measured: float | None
    source: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    better: str = ""
    problem: str | None = None
    note: str = ""
    why: str = ""
    seeds: str = ""

    @property
    def verdict(self) -> str | None:
        """ "holds", "beyond" or "no"; None where the two cannot be compared.

        >>> [Claim("speed", "5 to 7", x, "", low=4.5, high=7.7, better="more").verdict for x in (4, 5, 50)]
        ['no', 'holds', 'beyond']
        >>> [Claim("points", "about 0", x, "", low=-0.5, high=0.5).verdict for x in (-30, 0.4, 0.6, None)]
        ['no', 'holds', 'no', 'no']
        """
        if self.low is None and self.high is None:
            return None
        if self.measured is None:
            return NO
        if self.low is not None and self.measured < self.low:
            return BEYOND if self.better == "less" else NO
        if self.high is not None and self.measured > self.high:
            return BEYOND if self.better == "more" else NO
        return HOLDS

    @property
    def holds_for(self) -> str:
        """The range as text: "−0.5 to 0.5"."""
        if self.low is None and self.high is None:
            return ""
        if self.low is None or self.high is None:
            return f"{'up to' if self.low is None else 'from'} {self.high if self.low is None else self.low:.3g}"
        return f"{self.low:.3g} to {self.high:.3g}"


VERDICTS = {
    HOLDS: Cell("holds", mark="good"),
    BEYOND: Cell("beyond", mark="good"),
    NO: Cell("no", mark="bad"),
    "–": Cell("not comparable"),
}


def _figure(key: str, heading: str) -> Column:
    """A column of figures, each with the unit of its row."""

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
            _figure("measured", "measured"),
            Column("verdict", lambda row: row.get("verdict"), None, words=VERDICTS),
            text("holds for", "holds_for"),
        ],
        "beyond: outside the range, on the better side. holds for: where ours counts as the paper's, as we chose it.",
        of="published",
    ),
    RowTable("Where in the papers, and what differs", [CLAIM, text("source", "source"), text("note", "note")],
          of="published", folded=True),
)  # fmt: skip


def where_we_lose(sentences: list[str]) -> list[str]:
    """A heading, then sentences on where laconic does worse; the heading says so if there are none."""
    return ["Where we lose:" + ("" if sentences else " nowhere in this run."), *sentences]
