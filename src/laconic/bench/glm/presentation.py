"""What is shown of the suite `glm`."""

from collections.abc import Sequence

from laconic.bench.ranks import noise
from laconic.report import Column, Presentation, Table, Text, speedups, text, where
from laconic.report.documents import shape
from laconic.report.values import Row, names_in, number_in, rows_in, text_in

WORST_GAP = 0.005
"""Loss above that of SGD in float32, relatively, from which on it is mentioned."""


def problems(document: Row) -> str:
    """The problems' names, with the size if there is one only."""
    rows = rows_in(document)
    names = [name for name in names_in(rows, "problem") if name]
    size = f" ({shape(rows[0])})" if len(names) == 1 and shape(rows[0]) else ""
    return f"{', '.join(names)}{size}" or "no rows"


def an_iteration(rows: Sequence[Row]) -> str:
    """The title of a problem's table."""
    first = rows[0]
    return f"{text_in(first, 'problem')}: {shape(first)}, {text_in(first, 'family')}; per iteration"


def is_ours(row: Row) -> bool:
    """Whether it is CA-SGD with its messages."""
    return text_in(row, "solver") == "ca_sgd" and row.get("is_floor") is not True


def losses(document: Row) -> list[str]:
    """A sentence on every problem where some CA-SGD is slower than SGD, or ends at a worse loss."""
    found = []
    for problem in names_in(rows_in(document), "problem"):
        ours = [row for row in rows_in(document) if text_in(row, "problem") == problem and is_ours(row)]
        slow = [text_in(row, "contender") for row in ours if _speed(row) < 1]
        if slow:
            found.append(f"{problem}: slower than SGD: {', '.join(slow)}.")
        gaps = [(text_in(row, "contender"), number_in(row, "loss_gap") or 0.0) for row in ours]
        worse = [f"{name} (by {100 * gap:.2g} %)" for name, gap in gaps if gap > WORST_GAP]
        if worse:
            found.append(f"{problem}: a loss over {100 * WORST_GAP} % above that of sgd fp32: {', '.join(worse)}.")
    return ["Where we lose:" + ("" if found else " nowhere in this run."), *found]


def _speed(row: Row) -> float:
    ratios = [number_in(row, key) for key in ("speedup_over_fp32", "speedup_over_bf16")]
    return min((ratio for ratio in ratios if ratio is not None), default=1.0)


def _working(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.get("is_floor") is not True]


ITERATIONS = Table(
    an_iteration,
    [
        text("contender", "contender"),
        Column("µs", "seconds", "µs"),
        Column("× fp32", "speedup_over_fp32"),
        Column("× bf16", "speedup_over_bf16"),
        Column("CPU µs", "cpu_seconds", "µs"),
        Column("messages", "messages"),
        Column("bytes sent", "bytes_sent"),
        Column("loss", "loss", digits=4),
        Column("loss gap", "loss_gap", "%"),
    ],
    "µs: the slowest rank's. × fp32, × bf16: speed over sgd fp32 and sgd C in the same round. CPU µs, messages, bytes: "
    "of a rank. loss: half the mean deviance, penalty included, after all iterations. loss gap: above that of sgd fp32 "
    "on the same batches. no messages: the same work, each rank alone.",
    by="problem",
)
SPEEDUPS = speedups("SGD in float32, per iteration", group="problem", rows=_working)

PRESENTATION = Presentation(
    lambda document: f"Generalised linear models: {problems(document)}",
    [Text(noise), ITERATIONS, Text(losses), SPEEDUPS],
    lambda document: f"{where(document)}; SGD sends a message in every iteration, CA-SGD one in s.",
)
