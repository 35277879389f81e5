"""`laconic bench glm`, `--time-to` and `--device`: generalised linear models."""

from collections.abc import Sequence

from laconic.report.blocks import Block, Section
from laconic.report.units import shown
from laconic.report.values import Row, number_in, rows_in, text_in
from laconic.report.views import parts
from laconic.report.views.where import where

COLUMNS = (
    parts.text("problem", "problem"),
    parts.text("solver", "contender"),
    parts.Col("iteration", "seconds", "s"),
    parts.Col("messages", "messages"),
    parts.Col("sent", "bytes_sent", "B"),
    parts.Col("loss", "loss", "", 5),
    parts.Col("loss gap", "loss_gap", "%"),
    parts.Col("iterates differ by", "difference"),
)
OVER = {"over_graphed": "graphed SGD in float32", "over_eager": "eager SGD in float32", "over_jax": "JAX"}


def glm(document: Row) -> list[Section]:
    """Speed-up of an iteration by problem, and what it costs in loss."""
    rows = rows_in(document)
    blocks: list[Block] = [*glm_blocks(rows), *parts.goals(document), *parts.everything(rows)]
    title = "Generalised linear models: " + problems(rows)
    return [Section(title, blocks, f"{where(rows)}; SGD says something in every iteration, CA-SGD once in s.")]


def glm_blocks(rows: Sequence[Row]) -> list[Block]:
    """The bars and the table alone."""
    working = [row for row in rows if row.get("is_floor") is not True]
    return [
        *parts.speedups(working, over="SGD in float32, an iteration", group="problem"),
        *parts.table("An iteration, and the loss after all of them", working, COLUMNS, "Per iteration and rank."),
    ]


def device(document: Row) -> list[Section]:
    """The same on a GPU, beside PyTorch and JAX."""
    rows = rows_in(document)
    bars = [b for key, over in OVER.items() for b in parts.speedups(rows, key, over, group="problem")]
    table = parts.table("An iteration, and the loss after an epoch", rows, COLUMNS)
    blocks: list[Block] = [*bars, *table, *parts.goals(document), *parts.everything(rows)]
    return [Section("Generalised linear models on a GPU: " + problems(rows), blocks)]


def time_to(document: Row) -> list[Section]:
    """Seconds to a good model, beside scikit-learn."""
    rows = rows_in(document)
    optimum = number_in(rows[0], "optimum") if rows else None
    columns = (
        parts.text("contender", "contender"),
        parts.text("how", "config"),
        parts.Col("objective", "objective", "", 5),
        parts.Col("above the optimum", "above_optimum", "%"),
    )
    blocks: list[Block] = [
        *parts.bars("Seconds to within 1 % of the optimum", rows, "seconds", "s"),
        *parts.bars("Times as long as ours", rows, "over_ours", "×", reference=1.0),
        *parts.table("What they reach", rows, columns, f"The optimum: {shown(optimum, digits=6)}."),
        *parts.goals(document),
        *parts.everything(rows),
    ]
    return [Section("Time to a good model: " + problems(rows), blocks)]


def problems(rows: Sequence[Row]) -> str:
    """The problems' names and sizes."""
    sizes = {text_in(row, "problem"): (number_in(row, "n_rows"), number_in(row, "n_features")) for row in rows}
    if len(sizes) != 1:
        return ", ".join(name for name in sizes if name) or "no rows"
    (name, (m, n)), *_ = sizes.items()
    return name + (f" ({m:,.0f} × {n:,.0f})" if m is not None and n is not None else "")
