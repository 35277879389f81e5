"""`laconic bench exchange`: averaging one vector over ranks."""

from laconic.report.blocks import Block, Section
from laconic.report.values import Row, rows_in, text_in
from laconic.report.views import parts
from laconic.report.views.where import where

COLUMNS = (
    parts.text("contender", "contender"),
    parts.Col("time", "seconds", "s"),
    parts.Col("× bf16", "speedup_over_bf16", "×"),
    parts.Col("sent", "bytes_sent", "B"),
    parts.Col("encode", "encode_seconds", "s"),
    parts.Col("wire", "wire_seconds", "s"),
    parts.Col("decode", "decode_seconds", "s"),
)


def exchange(document: Row) -> list[Section]:
    """Speed-up, bits, variance beside its bound, and where the time goes."""
    rows = rows_in(document)
    working = [row for row in rows if "nothing" not in text_in(row, "contender")]
    blocks: list[Block] = [
        *parts.speedups(working),
        *parts.bars("Bits sent a value and rank", working, "bits_sent_per_value", "bits"),
        *parts.bars(
            "Variance: normalised squared error of the average",
            [row for row in working if row.get("bound")],
            "nmse",
            log=True,
            limit=("bound", "proved bound"),
        ),
        *parts.table("Where the time goes", rows, COLUMNS),
        *parts.goals(document),
        *parts.everything(rows),
    ]
    return [Section("Averaging over " + where(rows), blocks, "One vector, every way to average it.")]
