"""What is shown of the suite `decentralised`."""

from laconic.bench.ranks import noise
from laconic.report import Axis, BarChart, Column, LineChart, Presentation, Table, Text, speedups, text, where
from laconic.report.values import Row, number_in


def _points(row: Row) -> list[Row]:
    """The losses with the steps they were measured after: n_steps · i / n, in whole steps."""
    losses, n_steps = row.get("losses"), number_in(row, "n_steps")
    if not isinstance(losses, list) or not losses or n_steps is None:
        return []
    seconds, sent = number_in(row, "seconds"), number_in(row, "bytes_sent")
    steps = [max(1.0, n_steps * i // len(losses)) for i in range(1, len(losses) + 1)]
    return [
        {
            "iteration": step,
            "seconds": None if seconds is None else step * seconds,
            "bytes": None if sent is None else step * sent,
            "loss": loss,
        }
        for step, loss in zip(steps, losses, strict=True)
    ]


PRESENTATION = Presentation(
    lambda document: f"Training without a centre, {where(document)}",
    [
        Text(noise),
        Table(
            "A step of training",
            [
                text("contender", "contender"),
                Column("ms per step", "seconds", "ms"),
                Column("× fp32", "speedup_over_fp32"),
                Column("× scatter reduce", "speedup_over_scatter"),
                Column("MB sent", "bytes_sent", "MB"),
                Column("MB by the last", "slow_bytes_sent", "MB"),
            ],
            "ms: the slowest rank's, forward to update. × fp32: speed over DDP as it is; × scatter reduce: over "
            "nuqsgd-4 under DDP. MB sent by the rank that sends most, and by the last.",
        ),
        Table(
            "Loss of the average model",
            [
                text("contender", "contender"),
                Column("loss at the end", "loss", digits=4),
                Column("÷ fp32", "loss_over_fp32", digits=4),
                Column("distance", "distance"),
            ],
            "distance: √(1/n Σ ‖x_i − x̄‖²) of the nodes' models from their average.",
        ),
        LineChart(
            Axis("loss", "loss"),
            _points,
            "Training loss",
            note="Of the average model. Seconds: steps so far × the median step; bytes: of the rank that sends most.",
        ),
        speedups("DDP in float32"),
        BarChart("Bytes that a node sends in a step", "bytes_sent", "B"),
    ],
)
