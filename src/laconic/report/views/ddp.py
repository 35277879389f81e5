"""`laconic bench ddp`: steps of a network's training."""

from laconic.report.blocks import Block, Section
from laconic.report.values import Row, rows_in
from laconic.report.views import parts
from laconic.report.views.where import where

COLUMNS = (
    parts.text("contender", "contender"),
    parts.Col("step", "seconds", "s"),
    parts.Col("loss", "loss", "", 4),
    parts.Col("loss ÷ fp32", "loss_over_fp32", "", 4),
    parts.Col("sent a step", "bytes_sent", "B"),
    parts.Col("encode", "encode_seconds", "s"),
    parts.Col("wire", "wire_seconds", "s"),
    parts.Col("decode", "decode_seconds", "s"),
)


def ddp(document: Row) -> list[Section]:
    """Speed-ups over float32 and over PyTorch's bf16 hook, bytes, loss."""
    rows = rows_in(document)
    blocks: list[Block] = [*ddp_blocks(rows), *parts.goals(document), *parts.everything(rows)]
    return [Section("Training a network on " + where(rows), blocks, "DistributedDataParallel, step by step in turn.")]


def ddp_blocks(rows: list[Row]) -> list[Block]:
    """The bars and the table alone."""
    return [
        *parts.speedups(rows, over="DDP in float32"),
        *parts.speedups(rows, "speedup_over_bf16", "DDP with the bf16 hook"),
        *parts.bars("Bytes that a rank sends in a step", rows, "bytes_sent", "B"),
        *parts.table("A step, and the loss after all of them", rows, COLUMNS),
    ]
