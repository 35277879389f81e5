"""What is shown of the suite `codec`."""

from collections.abc import Callable

from laconic.report import BarChart, Column, Presentation, Table, Text, speedups, text
from laconic.report.units import shown
from laconic.report.values import Row, number_in, rows_in, text_in

BUSY = 1.5
"""A copy that varies by more than this from one contender to the next had to share its cores."""


def _by_contender(rows: list[Row]) -> list[Row]:
    """One row per contender: that of its first operation, with speeds by operation, such as "encode ÷ copy"."""
    found: dict[str, dict[str, object]] = {}
    for row in rows:
        merged = found.setdefault(text_in(row, "contender"), dict(row))
        operation = {"copy": "encode"}.get(text_in(row, "operation"), text_in(row, "operation"))
        merged |= {f"{operation} GB/s": row.get("gb_per_second"), f"{operation} ÷ copy": row.get("ratio_to_copy")}
        merged[f"{operation} values/s"] = row.get("values_per_second")
    return list(found.values())


def _that(condition: Callable[[Row], bool]) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: _by_contender([row for row in rows if row.get("values_per_second") and condition(row)])


def _noise(document: Row) -> list[str]:
    """How steady the yardstick was: the copy is run beside every contender, and should take as long each time."""
    times = [(number_in(row, "n"), number_in(row, "copy_seconds")) for row in rows_in(document) if not _is_coder(row)]
    copies = [4e-9 * n / seconds for n, seconds in times if n and seconds]
    if not copies:
        return []
    spread = f"copy_ ran at {shown(min(copies))} to {shown(max(copies))} GB/s beside the contenders"
    busy = max(copies) > BUSY * min(copies)
    return [f"{spread}: the machine was busy, so take ratios with care" if busy else spread]


def _is_coder(row: Row) -> bool:
    return text_in(row, "via") == "coder"


def _first_with(key: str) -> Callable[[list[Row]], list[Row]]:
    """The first row of each contender that has this number, and it is not zero."""

    def chosen(rows: list[Row]) -> list[Row]:
        found: dict[str, Row] = {}
        for row in _working(rows):
            if number_in(row, key):
                found.setdefault(text_in(row, "contender"), row)
        return list(found.values())

    return chosen


def _working(rows: list[Row]) -> list[Row]:
    return [row for row in rows if text_in(row, "operation") not in ("nothing", "copy")]


def _who(row: Row) -> str:
    via = text_in(row, "via")
    return text_in(row, "contender", "?") + (f", {via}" if via in ("codec", "kernel") else "")


PRESENTATION = Presentation(
    "Codecs and coders",
    [
        Text(_noise),
        Table(
            "Values to bytes and back, at fixed width",
            [
                text("scheme", "contender"),
                Column("bits", "bits_per_coordinate"),
                Column("error", "error"),
                Column("encode, GB/s", "encode GB/s"),
                Column("÷ copy", "encode ÷ copy"),
                Column("decode + add, GB/s", "decode + add GB/s"),
                Column("÷ copy", "decode + add ÷ copy"),
                Column("quantize + pack ÷ copy", "quantize + pack ÷ copy"),
                Column("unpack + dequantize + add ÷ copy", "unpack + dequantize + add ÷ copy"),
            ],
            "encode, decode + add: Codec, which allocates its payload; the last two columns: the bare kernels, into "
            "memory that is there. GB/s of float32 values. ÷ copy: speed over a torch copy_ just before.",
            rows=_that(lambda row: not _is_coder(row)),
        ),
        Table(
            "Symbols to bytes and back, on one core",
            [
                text("coder", "contender"),
                Column("entropy", "entropy", digits=4),
                Column("bits", "bits_per_coordinate", digits=4),
                Column("bits ÷ entropy", "bits_over_entropy", digits=4),
                Column("encode, M symbols/s", "encode values/s", "M"),
                Column("decode, M symbols/s", "decode values/s", "M"),
            ],
            rows=_that(_is_coder),
        ),
        BarChart(
            "Bits per coordinate on the wire",
            "bits_per_coordinate",
            "bits",
            limit=("entropy", "entropy of the symbols"),
            reference=32.0,
            note="float32 has 32.",
            rows=_first_with("bits_per_coordinate"),
        ),
        BarChart("Error ‖Q(v) − v‖² / ‖v‖²", "error", log=True, rows=_first_with("error")),
        speedups("a torch copy of the same values", "ratio_to_copy", group="operation", label=_who, rows=_working),
    ],
    "Every scheme and coder beside a copy of the same values.",
)
