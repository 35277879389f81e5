"""`laconic bench kernels`: GPU kernels beside a copy."""

from laconic.report.blocks import Block, Section
from laconic.report.values import Row, number_in, rows_in, text_in
from laconic.report.views import parts


def kernels(document: Row) -> list[Section]:
    """Bytes a second over those of a copy."""
    rows = rows_in(document)
    blocks: list[Block] = [
        *parts.speedups(rows, "ratio_to_copy", "a copy on the same GPU, in bytes moved", group="operation", label=_who),
        *parts.bars("GB moved a second", rows, "gb_per_second", "GB/s", group="operation", label=_who),
        *parts.goals(document),
        *parts.everything(rows),
    ]
    return [Section("GPU kernels", blocks, "Bytes that must be read and written once, beside the fastest copy.")]


def _who(row: Row) -> str:
    payloads = number_in(row, "n_payloads")
    said = f", {payloads:.0f} payload{'s' if payloads != 1 else ''}" if payloads else ""
    dtype = text_in(row, "dtype", "float32")
    return f"{text_in(row, 'contender', '?')}{said}" + (f", {dtype}" if dtype != "float32" else "")
