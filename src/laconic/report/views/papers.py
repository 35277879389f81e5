"""`laconic bench papers`: the papers' figures beside ours."""

from laconic.report.blocks import Block, Cell, Grid, Section
from laconic.report.units import shown
from laconic.report.values import Row, finite, names_in, plain, rows_in, text_in
from laconic.report.views import parts
from laconic.report.views.curves import curves

COLUMNS = (
    parts.text("problem", "problem"),
    parts.text("contender", "contender"),
    parts.Col("iteration", "seconds", "s"),
    parts.Col("sent", "bytes_sent", "B"),
    parts.Col("bits a coordinate", "bits_per_coordinate"),
    parts.Col("variance", "variance"),
    parts.Col("bound", "bound"),
    parts.Col("loss", "loss", "", 5),
    parts.Col("loss gap", "loss_gap", "%"),
    parts.Col("accuracy", "accuracy", "%", 4),
)
CODED = (
    parts.text("problem", "problem"),
    parts.text("contender", "contender"),
    parts.Col("entropy", "entropy"),
    *(parts.Col(coder, coder) for coder in parts.CODERS),
)
VERDICTS = {True: Cell("holds", mark="good"), False: Cell("does not hold", mark="bad")}
TITLES = {"papers-ca-sgd": "CA-SGD: published and measured", "papers-nuqsgd": "NUQSGD: published and measured"}


def papers(document: Row) -> list[Section]:
    """Published figures first, then curves, speed-ups, bits and variance."""
    rows = rows_in(document)
    suite = text_in(document, "suite")
    coded = parts.by_coder([row for row in rows if row.get("bits_by_coder")], "bits_by_coder")
    blocks: list[Block] = [
        *published(rows_in(document, "published")),
        *curves(rows),
        *parts.speedups(rows, group="problem"),
        *parts.bars(
            "Bits a coordinate", rows, "bits_per_coordinate", "bits", group="problem", limit=("entropy", "entropy")
        ),
        *parts.bars(
            "Variance, mean over the run",
            [row for row in rows if row.get("variance")],
            "variance",
            group="problem",
            log=True,
            limit=("bound", "proved bound"),
        ),
        *parts.table("Bits a coordinate by coder", coded, CODED),
        *parts.table("The runs", rows, COLUMNS),
        *parts.goals(document),
        *parts.everything([{k: v for k, v in row.items() if k != "curve"} for row in rows]),
    ]
    title = text_in(document, "title") or TITLES.get(suite, suite)
    return [Section(title, blocks, text_in(document, "about"))]


def published(rows: list[Row]) -> list[Block]:
    """What the paper says, what we measured, and whether the claim holds here."""
    if not rows:
        return []
    sources = names_in(rows, "source")
    words = ["note"] if len(sources) == 1 else ["source", "note"]
    made = []
    for row in rows:
        unit = text_in(row, "unit")
        holds = row.get("holds")
        verdict = VERDICTS[holds] if isinstance(holds, bool) else Cell("not comparable")
        figures = [_figure(row.get(key), unit) for key in ("published", "measured")]
        made.append([Cell(text_in(row, "what", "?")), *figures, verdict, *(Cell(text_in(row, w, "–")) for w in words)])
    headings = ["claim", "published", "measured here", "verdict", *words]
    said = f"Source: {sources[0]}." if len(sources) == 1 and sources[0] else ""
    return [Grid("The paper's figures and ours", headings, made, said)]


def _figure(value: object, unit: str) -> Cell:
    number = finite(value)
    said = shown(number) if number is not None else plain(value)
    return Cell(f"{said} {unit}".strip() if value is not None else "–", number)
