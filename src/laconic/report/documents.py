"""Presentations of the documents that `laconic fit`, `plan` and `analyze` write."""

from collections.abc import Sequence
from pathlib import PurePath
from statistics import median

from laconic.report.charts import Axis, BarChart, LineChart
from laconic.report.presentation import Presentation, register
from laconic.report.runs import FIT, PLAN
from laconic.report.svg import text_bar
from laconic.report.tables import Column, RowTable, Text, grouped, text
from laconic.report.values import Row, names_in, number_in, rows_in, text_in
from laconic.units import Unit, shown


def shape(row: Row, times: str = " × ", end: str = "") -> str:
    """Rows × columns, where both are known."""
    m, n = number_in(row, "n_rows"), number_in(row, "n_features")
    return "" if m is None or n is None else f"{m:,.0f}{times}{n:,.0f}{end}"


def _fits(document: Row) -> list[Row]:
    """Split fits into one document per file (named without its folders) and family."""
    on = [f"{PurePath(text_in(row, 'data')).name}, {text_in(row, 'family')}" for row in rows_in(document)]
    rows = [{"name": "fit", **row, "on": name} for row, name in zip(rows_in(document), on, strict=True)]
    return [{"rows": some} for some in grouped(rows, "on").values()]


def _history(row: Row) -> list[Row]:
    return [{**point, "bytes": point.get("bytes_sent")} for point in rows_in(row, "history")]


def _metrics(document: Row) -> list[str]:
    said = []
    for row in rows_in(document):
        for key, name in (("metrics", "training rows"), ("test_metrics", "test rows")):
            found = row.get(key)
            if isinstance(found, dict):
                figures = ", ".join(f"{k.replace('_', ' ')} {shown(number_in(found, k), digits=4)}" for k in found)
                said.append(f"{text_in(row, 'name')}, {name}: {figures}")
    return said


def _curve(key: str, name: str, note: str = "At the end of each epoch.") -> LineChart:
    return LineChart(Axis(key, name), _history, name.capitalize(), "name", note=note)


FITS = Presentation(
    lambda document: f"Fit of {text_in(rows_in(document)[0], 'on')}",
    [
        _curve("loss", "loss", "The mean over each epoch, every row at the iterate that met it; the end's is below."),
        _curve("validation_loss", "loss of the rows held back"),
        _curve("eta", "step size"),
        RowTable(
            "The fits",
            [
                text("fit", "name"),
                text("ran", "ran"),
                Column("ranks", "ranks", "n"),
                Column("epochs", "epochs", "n"),
                Column("iterations", "iterations", "n"),
                Column("loss", "loss", digits=6),
                Column("fitting", "fit_seconds", "s"),
                Column("messages", "messages", "n"),
                Column("sent per rank", "bytes_sent", "B"),
                text("ended because", "because"),
            ],
        ),
        Text(_metrics, listed=True),
    ],
    lambda document: shape(rows_in(document)[0], " rows × ", " columns"),
    split=_fits,
    all_rows=False,
)


def _of_one(rows: Sequence[Row]) -> Sequence[Row]:
    """Options with work, wire and hidden seconds per iteration, instead of per s iterations that share a message."""
    made = []
    for row in rows:
        n = number_in(row, "iterations") or 1.0
        keys = ("work_seconds", "wire_seconds", "hidden_seconds")
        made.append({**row, **{key: value / n for key in keys if (value := number_in(row, key)) is not None}})
    return made


def _fastest(rows: Sequence[Row]) -> list[Row]:
    """The fastest options, the recommended one, the two baselines and those in one process."""
    order = sorted(rows, key=lambda row: number_in(row, "seconds") or 0.0)
    baselines = [row for row in rows if 1.0 in (row.get("speedup_over_fp32"), row.get("speedup_over_bf16"))]
    kept = [row for row in order[SHOWN:] if row.get("recommended") or row.get("alone") or row in baselines]
    return [*order[:SHOWN], *kept]


def _against(key: str, name: str, unit: Unit) -> LineChart:
    """A chart of predicted time against s, or against the link rate."""
    return LineChart(
        Axis("seconds", "time", "s"),
        title=f"Time against {key if key == 's' else name}",
        name="option",
        rows=lambda rows: [row for row in rows if row.get("against") == key],
        of="curves",
        axes=[Axis(key, name, unit)],
        log=True,
        log_x=True,
    )


SHOWN = 12
OPTION_COLUMNS = [
    text("", lambda row: "→" if row.get("recommended") else " "),
    text("option", "label"),
    Column("predicted", "seconds", "s"),
    Column("work", "work_seconds", "s"),
    Column("wire", "wire_seconds", "s"),
    Column("hidden", lambda row: row.get("hidden_seconds") or None, "s"),
    Column("× fp32", "speedup_over_fp32"),
    Column("× C", lambda row: row.get("speedup_over_bf16") if "solver" in row else None),
    Column("× bf16", lambda row: row.get("speedup_over_bf16") if "codec" in row else None),
    Column("per rank", "memory_bytes", "B"),
]

PLANS = Presentation(
    lambda document: f"Plan: {text_in(document, 'recommended', 'nothing')}",
    [
        Text(lambda document: [text_in(document, key) for key in ("verdict", "crossing")]),
        BarChart("Predicted time", "seconds", "s", "label", of="options"),
        _against("s", "s, iterations that share a message", "n"),
        _against("rate", "rate of the links", "bit/s"),
        RowTable(
            lambda rows: f"Predicted time of {'an iteration' if 'solver' in rows[0] else 'a step'}",
            OPTION_COLUMNS,
            "→: recommended. work: this rank's own; wire: messages, some hidden behind the work. ×: times as fast as "
            "SGD in that recipe, or that all-reduce.",
            rows=lambda rows: _fastest(_of_one(rows)),
            of="options",
        ),
        RowTable(
            "The codecs",
            [text("codec", "codec"), Column("bits per value", "bits"), Column("error", "error")],
            "error: ‖Q(v) − v‖² / ‖v‖², of the gradient that codecs were measured on, as are the bits.",
            rows=lambda rows: list({text_in(row, "codec"): row for row in rows if row.get("error")}.values()),
            of="options",
        ),
        RowTable("All options", OPTION_COLUMNS, rows=_of_one, of="options", folded=True),
    ],
    all_rows=False,
)


def _analysed(document: Row) -> str:
    given, n_blocks = document.get("options"), len(rows_in(document, "blocks"))
    return (
        f"{shape(document, ' rows × ', ' columns')}; {text_in(document, 'family')}; s = {text_in(document, 's')}, "
        f"batches of {text_in(given, 'batch_size')}, steps of {shown(number_in(document, 'eta0'))}, "
        f"{text_in(given, 'ranks')} ranks, {n_blocks} outer iterations of the first epoch"
    )


def _bounds(document: Row) -> list[str]:
    """Sentences: whether the bounds hold, how close they are, and which are missing."""
    rows = rows_in(document)
    held = "A BOUND DOES NOT HOLD" if any(row.get("holds") is False for row in rows) else "every bound holds"
    ratios = [ratio for row in rows if (ratio := number_in(row, "ratio")) is not None]
    close = f"; bound ÷ measured is {shown(median(ratios))} in the median" if ratios else ""
    noted = [row for row in rows if row.get("note")]
    notes = dict.fromkeys(f"{text_in(r, 'knob')} in {text_in(r, 'format')}: {text_in(r, 'note')}" for r in noted)
    return [held + close, *(f"no bound for {note}" for note in notes)]


def _by_format(rows: Sequence[Row]) -> Sequence[Row]:
    """The terms sorted by format, with bars on a logarithmic scale."""
    sizes = [size for row in rows if (size := number_in(row, "measured"))] or [1.0]
    low, high = min(sizes) / 2, max(sizes)
    order = names_in(rows, "format")
    bars = [{**row, "bar": text_bar(number_in(row, "measured") or 0.0, low, high, 16)} for row in rows]
    return sorted(bars, key=lambda row: order.index(text_in(row, "format")))


def _stopped(row: Row) -> str:
    """The knob that keeps a recipe from being cheaper, and the error that lowering it would cause."""
    step = next(iter(rows_in(row, "stopped_by")), None)
    if step is None:
        return "nothing lower"
    return f"{text_in(step, 'knob')} ({text_in(step, 'format')}: {shown(number_in(step, 'error'), digits=2)})"


ANALYSES = Presentation(
    lambda document: (
        f"Precision on {text_in(document.get('options'), 'data', 'data')}, "
        f"{text_in(document.get('options'), 'device', 'cpu')}"
    ),
    [
        RowTable(
            "Nine terms",
            [
                text("format", "format"),
                text("knob", "knob"),
                Column("bound", "bound", digits=2),
                Column("measured", "measured", digits=2),
                Column("bound ÷ measured", "ratio"),
                Column("share", "share", "%"),
                text("measured, logarithmic", "bar"),
            ],
            "‖x' − x'(fp64)‖ ÷ ‖x'(fp64) − x‖ with this knob lowered and all others fp64: the largest of the outer "
            "iterations; share: of its format.",
            rows=_by_format,
        ),
        Text(_bounds),
        RowTable(
            "Recipes",
            [
                text("recipe", "recipe"),
                Column("measured", "measured", digits=2),
                Column("sum of terms", "predicted", digits=2),
            ],
            "The sum includes what float32 arithmetic itself costs.",
            of="recipes",
        ),
        RowTable(
            "Tolerances",
            [
                text("tolerance", lambda row: f"{number_in(row, 'tolerance') or 0.0:g}"),
                text("cheapest recipe", "recipe"),
                Column("measured", "measured", digits=2),
                Column("bytes", "bytes", "B"),
                Column("in fp32", "fp32_bytes", "B"),
                text("stopped by", _stopped),
            ],
            of="choices",
        ),
        BarChart(
            "Error of the new weights as a share of the step, one knob lowered at a time",
            "measured",
            label="format",
            group="knob",
            log=True,
            limit=("bound", "bound that always holds"),
        ),
    ],
    _analysed,
)

register(FIT, FITS)
register(PLAN, PLANS)
register("analyze", ANALYSES)
