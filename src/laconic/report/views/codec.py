"""`laconic bench codec`: speed, size and error of every scheme and coder."""

from laconic.report.blocks import Block, Section
from laconic.report.values import Row, number_in, rows_in, text_in
from laconic.report.views import parts


def codec(document: Row) -> list[Section]:
    """Bits, error, speed."""
    rows = [row for row in rows_in(document) if text_in(row, "operation") not in ("nothing", "copy")]
    blocks: list[Block] = [
        *parts.bars(
            "Bits a coordinate on the wire",
            _once(rows, "bits_per_coordinate"),
            "bits_per_coordinate",
            "bits",
            limit=("entropy", "entropy of the symbols"),
            reference=32.0,
            note="float32 has 32.",
        ),
        *parts.bars("Error ‖Q(v) − v‖² / ‖v‖²", _lossy(rows), "error", log=True),
        *parts.speedups(rows, "ratio_to_copy", "a torch copy of the same values", group="operation", label=_who),
        *parts.goals(document),
        *parts.everything(rows_in(document)),
    ]
    return [Section("Codecs and coders", blocks, "Every scheme and coder beside a copy of the same values.")]


def _once(rows: list[Row], key: str) -> list[Row]:
    """The first row of each contender that has the number."""
    found: dict[str, Row] = {}
    for row in rows:
        if number_in(row, key) is not None:
            found.setdefault(text_in(row, "contender"), row)
    return list(found.values())


def _lossy(rows: list[Row]) -> list[Row]:
    return [row for row in _once(rows, "error") if number_in(row, "error")]


def _who(row: Row) -> str:
    via = text_in(row, "via")
    return text_in(row, "contender", "?") + (f", {via}" if via in ("codec", "kernel") else "")
