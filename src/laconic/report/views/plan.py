"""`laconic bench plan` and `laconic plan -o`: predictions."""

from laconic.report.blocks import Block, Section, Words
from laconic.report.values import Row, number_in, rows_in, text_in
from laconic.report.views import parts

PARTS = ("work_seconds", "wire_seconds", "hidden_seconds")


def plan(document: Row) -> list[Section]:
    """Predicted beside measured, and what following the planner costs."""
    rows = [dict(row) | {"where": _where(row)} for row in rows_in(document)]
    columns = (
        parts.text("problem", "problem"),
        parts.text("ranks and link", "where"),
        parts.text("option", "option"),
        parts.Col("predicted", "predicted", "s"),
        parts.Col("measured", "measured", "s"),
        parts.Col("error", "error", "%"),
        parts.text("recommended", "recommended"),
    )
    chosen = [row for row in rows if row.get("recommended") is True]
    blocks: list[Block] = [
        *parts.goals(document),
        *parts.bars(
            "What is recommended: measured, beside what was predicted",
            chosen,
            "measured",
            "s",
            label=lambda row: f"{text_in(row, 'where')}: {text_in(row, 'option')}",
            group="problem",
            limit=("predicted", "predicted"),
            log=True,
        ),
        *parts.table("Every option", rows, columns),
        *parts.everything(rows_in(document, "regrets"), "Regret of following the planner"),
        *parts.everything(rows_in(document)),
    ]
    return [Section("Predictions and what was measured", blocks)]


def made(document: Row) -> list[Section]:
    """A plan: its verdict and its options."""
    said = [text_in(document, key) for key in ("verdict", "crossing")]
    columns = (
        parts.text("option", "label"),
        parts.Col("all told", "seconds", "s"),
        parts.Col("work", "work_seconds", "s"),
        parts.Col("wire", "wire_seconds", "s"),
        parts.Col("hidden behind work", "hidden_seconds", "s"),
        parts.Col("memory", "memory_bytes", "B"),
    )
    rows = [_of_one(row) for row in rows_in(document, "options")]
    blocks: list[Block] = [
        Words([line for line in said if line]),
        *parts.bars("Predicted time", rows, "seconds", "s", label="label"),
        *(parts.table("Options", rows, columns) or parts.everything(rows)),
    ]
    return [Section(f"Plan: {text_in(document, 'recommended', 'nothing')}", blocks)]


def _of_one(row: Row) -> Row:
    """The parts of an option's time are those of all iterations that share a message; in a table, of one."""
    iterations = number_in(row, "iterations") or 1.0
    parts_of_one = {key: value / iterations for key in PARTS if (value := number_in(row, key)) is not None}
    return {**row, **parts_of_one}


def _where(row: Row) -> str:
    return f"{text_in(row, 'ranks')} × {text_in(row, 'rate', 'loopback')}"
