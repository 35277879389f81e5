"""`laconic demo`: schemes on one gradient, then training with some of them."""

from laconic.report.blocks import Block, Section, Words
from laconic.report.values import Row, plain, rows_in
from laconic.report.views import parts
from laconic.report.views.curves import curves
from laconic.report.views.ddp import ddp_blocks
from laconic.report.views.glm import glm_blocks


def demo(document: Row) -> list[Section]:
    """A section on the gradient, one on training, one on generalised linear models."""
    rows = rows_in(document)
    schemes = parts.by_coder([row for row in rows if "scheme" in row], "coded_bits")
    trained, fitted = [row for row in rows if "contender" in row], rows_in(document, "glm")
    runs = rows_in(document, "curves")
    made = [Section("Every scheme on a real gradient", [*_said(document), *_schemes(schemes)])]
    if runs:
        about = (
            "Simulated workers on one device, the same batches for every scheme; seconds include encoding, no network."
        )
        made.append(Section("Training with each scheme", curves(runs), about))
    if trained:
        about = "Over loopback compression does not pay; laconic bench ddp --rate 1gbit emulates a link."
        made.append(Section("A network trained by local ranks", ddp_blocks(trained), about))
    if fitted:
        about = "SGD says something in every iteration, CA-SGD once in s."
        made.append(Section("A logistic regression by the same ranks", glm_blocks(fitted), about))
    return made


def _schemes(rows: list[Row]) -> list[Block]:
    columns = (
        parts.text("scheme", "scheme"),
        parts.text("unbiased", "unbiased"),
        parts.Col("variance ÷ bound", "over_bound"),
        *(parts.Col(coder, coder) for coder in parts.CODERS),
        parts.Col("total", "total_bits"),
        parts.Col("encode, GB/s", "encode_gb_per_second"),
        parts.Col("decode, GB/s", "decode_gb_per_second"),
    )
    return [
        *parts.bars(
            "Variance E‖Q(v) − v‖² / ‖v‖²",
            [row for row in rows if row.get("variance")],
            "variance",
            label="scheme",
            log=True,
            limit=("bound", "proved bound"),
        ),
        *parts.bars("Bits a coordinate, all told", rows, "total_bits", "bits", label="scheme"),
        *parts.table(
            "Bits a coordinate by coder, and speed", rows, columns, "GB of float32 values a second, at fixed width."
        ),
    ]


def _said(document: Row) -> list[Block]:
    said = document.get("findings")
    return [Words([plain(line) for line in said], listed=True)] if isinstance(said, list) and said else []
