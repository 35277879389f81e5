"""What is shown of the suites `glm-device` and `glm-time-to`."""

from laconic.bench.glm.suite import an_iteration, problems
from laconic.report import BarChart, Column, Presentation, Table, Text, speedups, text
from laconic.report.units import shown
from laconic.report.values import Row, number_in, rows_in, text_in


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
