"""Rows with a `curve`: loss, variance and accuracy over iterations, seconds and bytes."""

from collections.abc import Sequence

from laconic.report.blocks import AXES, Axis, Block, Curve, Curves
from laconic.report.values import Row, names_in, number_in, rows_in, text_in

QUANTITIES = (
    Axis("loss", "training loss"),
    Axis("variance", "variance ‖Q(v) − v‖² / ‖v‖²"),
    Axis("accuracy", "test accuracy", "%"),
)
LOGARITHMIC = ("variance",)


def curves(rows: Sequence[Row]) -> list[Block]:
    """A chart for each problem and quantity; a contender has the same ink in all of them."""
    inks = {name: i for i, name in enumerate(names_in(rows, "contender"))}
    made: list[Block] = []
    for problem in names_in(rows, "problem"):
        here = [row for row in rows if text_in(row, "problem") == problem]
        for quantity in QUANTITIES:
            found = [
                Curve(text_in(r, "contender"), p, inks[text_in(r, "contender")])
                for r in here
                if (p := _points(r, quantity))
            ]
            if found:
                title = ": ".join(filter(None, [problem, quantity.name]))
                made.append(Curves(title, quantity, found, log=quantity.key in LOGARITHMIC))
    return made


def _points(row: Row, quantity: Axis) -> list[dict[str, float | None]]:
    keys = [*(axis.key for axis in AXES), quantity.key]
    points = [{key: number_in(point, key) for key in keys} for point in rows_in(row, "curve")]
    return points if any(point[quantity.key] is not None for point in points) else []
