"""What is shown of the suite `kernels`."""

from laconic.report import BarChart, Column, Presentation, Table, speedups, text
from laconic.report.values import Row, number_in, text_in


def _who(row: Row) -> str:
    payloads = number_in(row, "n_payloads")
    said = f", {payloads:.0f} payload{'s' if payloads != 1 else ''}" if payloads else ""
    dtype = text_in(row, "dtype", "float32")
    return f"{text_in(row, 'contender', '?')}{said}" + (f", {dtype}" if dtype != "float32" else "")


PRESENTATION = Presentation(
    "GPU kernels",
    [
        Table(
            "GPU kernels",
            [
                text("contender", "contender"),
                text("operation", "operation"),
                Column("payloads", "n_payloads", "n"),
                Column("ms", "seconds", "ms", 4),
                Column("GB/s", "gb_per_second", digits=4),
                Column("÷ copy", "ratio_to_copy"),
            ],
            "GB/s of the bytes that must be read and written once.",
        ),
        speedups("a copy on the same GPU, in bytes moved", "ratio_to_copy", group="operation", label=_who),
        BarChart("GB moved per second", "gb_per_second", "GB/s", group="operation", label=_who),
    ],
    "Bytes that must be read and written once, beside the fastest copy.",
)
