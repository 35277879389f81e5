"""`laconic fit --json`: fits of the same data are drawn in one chart."""

from pathlib import PurePath

from laconic.report.blocks import Axis, Block, Curve, Curves, Section, Words
from laconic.report.units import shown
from laconic.report.values import Row, names_in, number_in, rows_in, text_in
from laconic.report.views import parts

COLUMNS = (
    parts.text("fit", "name"),
    parts.text("ran", "ran"),
    parts.Col("ranks", "ranks", "n"),
    parts.Col("epochs", "epochs", "n"),
    parts.Col("iterations", "iterations", "n"),
    parts.Col("loss", "loss", "", 6),
    parts.Col("fitting", "fit_seconds", "s"),
    parts.Col("messages", "messages", "n"),
    parts.Col("sent a rank", "bytes_sent", "B"),
    parts.text("ended because", "because"),
)
END = "At the end of each epoch."
QUANTITIES = {
    Axis("loss", "loss"): "The mean over each epoch, every row at the iterate that met it; the end's is in the table.",
    Axis("validation_loss", "loss of the rows held back"): END,
    Axis("eta", "step size"): END,
}
"""What is drawn of a fit, and when it was looked at."""


def fit(document: Row) -> list[Section]:
    """A section for each data set and family."""
    rows = [dict(row) | {"on": _on(row)} for row in rows_in(document)]
    return [_section(on, [row for row in rows if text_in(row, "on") == on]) for on in names_in(rows, "on")]


def _on(row: Row) -> str:
    """The file, without the folders that it lies in, and the family."""
    return f"{PurePath(text_in(row, 'data')).name}, {text_in(row, 'family')}"


def _section(on: str, rows: list[dict[str, object]]) -> Section:
    sizes = (number_in(rows[0], "n_rows"), number_in(rows[0], "n_features"))
    about = "" if None in sizes else f"{sizes[0]:,.0f} rows × {sizes[1]:,.0f} columns."
    blocks: list[Block] = [*_curves(rows), *parts.table("The fits", rows, COLUMNS), *_metrics(rows)]
    return Section(f"Fit of {on}", blocks, about)


def _curves(rows: list[dict[str, object]]) -> list[Block]:
    made: list[Block] = []
    for quantity, when in QUANTITIES.items():
        found = [(i, text_in(row, "name", "fit"), _points(row, quantity.key)) for i, row in enumerate(rows)]
        curves = [Curve(name, points, i) for i, name, points in found if points]
        if curves:
            made.append(Curves(quantity.name.capitalize(), quantity, curves, note=when))
    return made


def _points(row: Row, key: str) -> list[dict[str, float | None]]:
    names = {"iteration": "iteration", "seconds": "seconds", "bytes": "bytes_sent", key: key}
    points = [{to: number_in(h, of) for to, of in names.items()} for h in rows_in(row, "history")]
    return points if any(point[key] is not None for point in points) else []


def _metrics(rows: list[dict[str, object]]) -> list[Block]:
    said = []
    for row in rows:
        for key, name in (("metrics", "training rows"), ("test_metrics", "test rows")):
            found = row.get(key)
            if isinstance(found, dict):
                figures = ", ".join(f"{k.replace('_', ' ')} {shown(number_in(found, k), digits=4)}" for k in found)
                said.append(f"{text_in(row, 'name', 'fit')}, {name}: {figures}")
    return [Words(said, listed=True)] if said else []
