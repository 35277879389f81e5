"""What is shown of the papers' suites: published figures first, then the runs, curves, speed-ups, bits and variance."""

from collections.abc import Mapping

from laconic.bench.ranks import noise
from laconic.report import Axis, BarChart, Cell, Column, LineChart, Presentation, Table, Text, speedups, text
from laconic.report.units import shown
from laconic.report.values import Row, finite, plain, text_in

CODERS = ("fixed", "elias", "huffman", "rans")
VERDICTS = {
    "yes": Cell("holds", mark="good"),
    "no": Cell("does not hold", mark="bad"),
    "–": Cell("not comparable"),
}
CURVES = (
    LineChart(Axis("loss", "training loss"), by="problem"),
    LineChart(Axis("variance", "variance ‖Q(v) − v‖² / ‖v‖²"), by="problem", log=True),
    LineChart(Axis("accuracy", "test accuracy", "%"), by="problem"),
)


def _figure(key: str) -> Column:
    """A figure with the row's own unit."""

    def cell(row: Row) -> Cell:
        value, number = row.get(key), finite(row.get(key))
        said = shown(number) if number is not None else plain(value)
        return Cell(f"{said} {text_in(row, 'unit')}".strip() if value is not None else "–", number)

    return Column({"measured": "measured here"}.get(key, key), cell)


def _by_coder(rows: list[Row]) -> list[Row]:
    """Rows that have bits by coder, with these at the top."""
    return [{**row, **coded} for row in rows if isinstance(coded := row.get("bits_by_coder"), Mapping) and coded]


PUBLISHED = Table(
    "The paper's figures and ours",
    [
        text("claim", "what"),
        _figure("published"),
        _figure("measured"),
        Column("verdict", lambda row: row.get("holds"), None, words=VERDICTS),
        text("source", "source"),
        text("note", "note"),
    ],
    of="published",
)


def _about(document: Row) -> str:
    return text_in(document, "about")


CA_SGD = Presentation(
    lambda document: text_in(document, "title") or "CA-SGD: published and measured",
    [
        Text(noise),
        PUBLISHED,
        Table(
            "The runs",
            [
                text("contender", "contender"),
                Column("µs", "seconds", "µs"),
                Column("× fp32", "speedup_over_fp32"),
                Column("× eager", "speedup_over_eager"),
                Column("messages", "messages"),
                Column("loss", "loss", digits=5),
                Column("gap", "loss_gap", "%"),
                Column("largest gap", "largest_gap", "%"),
            ],
            "µs per iteration. × fp32: speed over SGD in float32 in the same round. gap: of the loss above that of SGD "
            "in float32, at the end and where it is largest on the way.",
            by="problem",
        ),
        *CURVES,
        speedups("float32", group="problem"),
    ],
    _about,
)
NUQSGD = Presentation(
    lambda document: text_in(document, "title") or "NUQSGD: published and measured",
    [
        Text(noise),
        PUBLISHED,
        Table(
            "The runs",
            [
                text("method", "contender"),
                Column("variance, own run", "variance"),
                Column("at fp32's gradients", "variance_at_fp32"),
                Column("bound", "bound"),
                Column("loss", "loss", digits=4),
                Column("accuracy", "accuracy", "%", 4),
                Column("ms", "seconds", "ms"),
                Column("s per epoch", "seconds_per_epoch"),
            ],
            "variance: of a worker's gradient, E‖Q(g) − g‖² / ‖g‖², mean over the run. ms: of an iteration of all.",
            by="problem",
        ),
        Table(
            "Bits per coordinate by coder, on the same gradients",
            [
                text("method", "contender"),
                *(Column(coder, coder) for coder in CODERS),
                Column("entropy", "entropy"),
                Column("kB sent", "bytes_sent", "kB"),
            ],
            "Norms, headers included.",
            rows=_by_coder,
        ),
        *CURVES,
        speedups("float32", group="problem"),
        BarChart("Bits per coordinate", "bits_per_coordinate", "bits", group="problem", limit=("entropy", "entropy")),
        BarChart(
            "Variance, mean over the run",
            "variance",
            group="problem",
            log=True,
            limit=("bound", "proved bound"),
            rows=lambda rows: [row for row in rows if row.get("variance")],
        ),
    ],
    _about,
)
