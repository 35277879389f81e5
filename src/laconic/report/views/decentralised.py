"""`laconic bench decentralised`: training without a centre."""

from laconic.report.blocks import Axis, Block, Curve, Curves, Section
from laconic.report.values import Row, finite, number_in, rows_in, text_in
from laconic.report.views import parts
from laconic.report.views.where import where

COLUMNS = (
    parts.text("contender", "contender"),
    parts.Col("step", "seconds", "s"),
    parts.Col("sent a step", "bytes_sent", "B"),
    parts.Col("by the last", "slow_bytes_sent", "B"),
    parts.Col("loss", "loss", "", 4),
    parts.Col("loss ÷ fp32", "loss_over_fp32", "", 4),
    parts.Col("distance", "distance"),
)


def decentralised(document: Row) -> list[Section]:
    """Loss curves, speed-ups, and how far the nodes are apart."""
    rows = rows_in(document)
    curves = [
        Curve(text_in(row, "contender", "?"), points, i) for i, row in enumerate(rows) if (points := _points(row))
    ]
    note = "Of the average model. Seconds: steps so far × the median step; bytes: of the rank that sends most."
    blocks: list[Block] = [
        *([Curves("Training loss", Axis("loss", "loss"), curves, note=note)] if curves else []),
        *parts.speedups(rows, over="DDP in float32"),
        *parts.bars("Bytes that a node sends in a step", rows, "bytes_sent", "B"),
        *parts.table("A step, and the end", rows, COLUMNS, "distance: √(1/n Σ ‖x_i − x̄‖²) of the nodes' models."),
        *parts.goals(document),
        *parts.everything(rows),
    ]
    return [Section("Training without a centre, " + where(rows), blocks)]


def _points(row: Row) -> list[dict[str, float | None]]:
    """The losses with the steps they were looked at after: n_steps · i / n, in whole steps."""
    losses, n_steps = row.get("losses"), number_in(row, "n_steps")
    if not isinstance(losses, list) or not losses or n_steps is None:
        return []
    seconds, sent = number_in(row, "seconds"), number_in(row, "bytes_sent")
    found: list[dict[str, float | None]] = []
    for i, loss in enumerate(losses, 1):
        step = max(1.0, n_steps * i // len(losses))
        found.append(
            {
                "iteration": step,
                "seconds": None if seconds is None else step * seconds,
                "bytes": None if sent is None else step * sent,
                "loss": finite(loss),
            }
        )
    return found
