"""Presentations of the documents that `laconic fit`, `plan` and `analyze` write."""

from collections.abc import Sequence
from pathlib import PurePath

from laconic.report.blocks import Axis
from laconic.report.presentation import (
    BarChart,
    Column,
    LineChart,
    Presentation,
    Settings,
    Table,
    Text,
    text,
)
from laconic.report.registry import register
from laconic.report.run import FIT, PLAN
from laconic.report.units import shown
from laconic.report.values import Row, names_in, number_in, rows_in, text_in


def shape(row: Row) -> str:
    """Rows × columns, where both are known."""
    m, n = number_in(row, "n_rows"), number_in(row, "n_features")
    return "" if m is None or n is None else f"{m:,.0f} × {n:,.0f}"


def _fits(document: Row) -> list[Row]:
    """A document for each data set and family."""
    rows = [{"name": "fit", **row, "on": _on(row)} for row in rows_in(document)]
    return [{"rows": [row for row in rows if row["on"] == on]} for on in names_in(rows, "on")]


def _on(row: Row) -> str:
    """The file, without the folders that it lies in, and the family."""
    return f"{PurePath(text_in(row, 'data')).name}, {text_in(row, 'family')}"


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
        _curve(
            "loss",
            "loss",
            "The mean over each epoch, every row at the iterate that met it; the end's is in the table.",
        ),
        _curve("validation_loss", "loss of the rows held back"),
        _curve("eta", "step size"),
        Table(
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
    lambda document: f"{shape(rows_in(document)[0])} values." if shape(rows_in(document)[0]) else "",
    split=_fits,
    all_rows=False,
)


def _of_one(rows: Sequence[Row]) -> Sequence[Row]:
    """The parts of an option's time are those of all iterations that share a message; in a table, of one."""
    made = []
    for row in rows:
        n = number_in(row, "iterations") or 1.0
        keys = ("work_seconds", "wire_seconds", "hidden_seconds")
        made.append({**row, **{key: value / n for key in keys if (value := number_in(row, key)) is not None}})
    return made


PLANS = Presentation(
    lambda document: f"Plan: {text_in(document, 'recommended', 'nothing')}",
    [
        Text(lambda document: [text_in(document, key) for key in ("verdict", "crossing")]),
        BarChart("Predicted time", "seconds", "s", "label", of="options"),
        Table(
            "Options",
            [
                text("option", "label"),
                Column("all told", "seconds", "s"),
                Column("work", "work_seconds", "s"),
                Column("wire", "wire_seconds", "s"),
                Column("hidden behind work", "hidden_seconds", "s"),
                Column("memory", "memory_bytes", "B"),
            ],
            rows=_of_one,
            of="options",
        ),
    ],
    all_rows=False,
)

ANALYSES = Presentation(
    lambda document: " ".join(
        filter(
            None,
            [
                f"Precision on {text_in(document.get('options'), 'data', 'data')}",
                f"({shape(document)})," if shape(document) else "",
                text_in(document.get("options"), "device", "cpu"),
            ],
        )
    ),
    [
        Settings(),
        BarChart(
            "Error of the new weights as a share of the step, one knob lowered at a time",
            "measured",
            label="format",
            group="knob",
            log=True,
            limit=("bound", "bound that always holds"),
        ),
        Table(
            "Recipes",
            [text("recipe", "recipe"), Column("measured error", "measured"), Column("predicted", "predicted")],
            of="recipes",
        ),
        Table(
            "The cheapest recipe for a tolerance",
            [
                Column("tolerance", "tolerance"),
                text("cheapest recipe", "recipe"),
                Column("measured error", "measured"),
                Column("bytes", "bytes", "B"),
                Column("in fp32", "fp32_bytes", "B"),
            ],
            of="choices",
        ),
    ],
)

register(FIT, FITS)
register(PLAN, PLANS)
register("analyze", ANALYSES)
