"""What is shown of the suite `glm`, on ranks and on a GPU."""

from collections.abc import Sequence

from laconic.bench.ranks import noise
from laconic.report import BarChart, Column, Presentation, Table, Text, speedups, text, where
from laconic.report.documents import shape
from laconic.report.units import shown
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


def _device_losses(document: Row) -> list[str]:
    """A sentence on every contender of ours that is slower than SGD in a CUDA graph."""
    found = []
    for row in rows_in(document):
        fp32, bf16 = number_in(row, "over_graphed") or 1.0, number_in(row, "over_graphed_bf16") or 1.0
        if row.get("is_ours") is True and min(fp32, bf16) < 1:
            found.append(
                f"{text_in(row, 'problem')}: {text_in(row, 'contender')} is slower than SGD in a CUDA graph "
                f"({fp32:.2g} of its speed in float32, {bf16:.2g} with bfloat16 data)."
            )
    return ["Where we lose:" + ("" if found else " nowhere in this run."), *found]


DEVICE = Presentation(
    lambda document: f"Generalised linear models on a GPU: {problems(document)}",
    [
        Table(
            an_iteration,
            [
                text("contender", "contender"),
                Column("µs", "seconds", "µs"),
                Column("× eager", "over_eager"),
                Column("× graphed", "over_graphed"),
                Column("× graphed bf16", "over_graphed_bf16"),
                Column("× JAX", "over_jax"),
                Column("from fp64", "difference", digits=2),
                Column("loss gap", "loss_gap", "%"),
            ],
            "×: speed over that contender. from fp64: distance of the weights from SGD in float64 after 512 "
            "iterations, relative. loss gap: above that of graphed fp32 SGD after an epoch on the same batches.",
            by="problem",
        ),
        Text(_device_losses),
        speedups("graphed SGD in float32", "over_graphed", group="problem"),
        speedups("eager SGD in float32", "over_eager", group="problem"),
        speedups("JAX", "over_jax", group="problem"),
    ],
)


def _optimum(document: Row) -> list[str]:
    optimum = next((number_in(row, "optimum") for row in rows_in(document)), None)
    return [f"The optimum: {shown(optimum, digits=6)}."]


TIME_TO = Presentation(
    lambda document: f"Time to a good model: {problems(document)}",
    [
        Table(
            "To within 1 % of the optimum",
            [
                text("contender", "contender"),
                text("its best way", "config"),
                Column("s", "seconds"),
                Column("÷ ours", "over_ours"),
                Column("objective", "objective", digits=5),
                Column("above the optimum", "above_optimum", "%"),
            ],
            "s: all of fit, float32 rows in memory. ÷ ours: over the faster of laconic's. Each contender runs the best "
            "of the settings tried.",
        ),
        Text(_optimum),
        BarChart("Seconds to within 1 % of the optimum", "seconds", "s"),
        BarChart("Times as long as ours", "over_ours", "×", reference=1.0),
    ],
)
