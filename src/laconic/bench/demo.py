"""What is shown of `laconic demo`: schemes on one gradient, then training with some of them."""

from collections.abc import Mapping

from laconic.bench.ddp.suite import PARTS as DDP
from laconic.bench.glm.presentation import ITERATIONS, SPEEDUPS
from laconic.report import Axis, BarChart, Column, LineChart, Presentation, Table, Text, text
from laconic.report.values import Row, plain, rows_in

CODERS = ("fixed", "elias", "huffman", "rans")


def _findings(document: Row) -> list[str]:
    said = document.get("findings")
    return [plain(line) for line in said] if isinstance(said, list) else []


def _schemes(rows: list[Row]) -> list[Row]:
    """Rows of schemes, with their bits by coder at the top."""
    found = [row for row in rows if "scheme" in row]
    return [{**row, **(coded if isinstance(coded := row.get("coded_bits"), Mapping) else {})} for row in found]


def _only(key: str, of: str):  # type: ignore[no-untyped-def]
    """A document with the rows under one key that have another key."""
    return lambda document: [{"rows": [row for row in rows_in(document, of) if key in row]}]


PRESENTATION = (
    Presentation(
        "Every scheme on a real gradient",
        [
            Table(
                "What is lost",
                [
                    text("scheme", "scheme"),
                    Column("bits", "bits", "n"),
                    text("unbiased", "unbiased"),
                    Column("variance", "variance"),
                    Column("bound", "bound"),
                    Column("variance ÷ bound", "over_bound", digits=2),
                ],
                "variance: E‖Q(v) − v‖² / ‖v‖², a mean over streams of random numbers. ef-sign: of its first message; "
                "error feedback sends the rest later.",
                rows=_schemes,
            ),
            Table(
                "What is sent, in bits per coordinate",
                [
                    text("scheme", "scheme"),
                    Column("entropy", "entropy"),
                    *(Column(coder, coder) for coder in CODERS),
                    Column("total", "total_bits"),
                    Column("encode, GB/s", "encode_gb_per_second"),
                    Column("decode, GB/s", "decode_gb_per_second"),
                ],
                "total: the shortest of the four with norms and header. GB/s of float32 values, encoded and decoded at "
                "fixed width.",
                rows=_schemes,
            ),
            Text(_findings, listed=True),
            BarChart(
                "Variance E‖Q(v) − v‖² / ‖v‖²",
                "variance",
                label="scheme",
                log=True,
                limit=("bound", "proved bound"),
                rows=lambda rows: [row for row in _schemes(rows) if row.get("variance")],
            ),
            BarChart("Bits per coordinate, all told", "total_bits", "bits", label="scheme", rows=_schemes),
        ],
        all_rows=False,
    ),
    Presentation(
        "Training with each scheme",
        [
            LineChart(Axis("loss", "training loss"), by="problem"),
            LineChart(Axis("variance", "variance ‖Q(v) − v‖² / ‖v‖²"), by="problem", log=True),
        ],
        "Simulated workers on one device, the same batches for every scheme; seconds include encoding, no network.",
        split=_only("contender", "curves"),
        all_rows=False,
    ),
    Presentation(
        "A network trained by local ranks",
        DDP,
        "Over loopback compression does not pay; `laconic bench ddp --rate 1gbit` emulates a link.",
        split=_only("contender", "rows"),
        all_rows=False,
    ),
    Presentation(
        "A logistic regression by the same ranks",
        [ITERATIONS, SPEEDUPS],
        "SGD sends a message in every iteration, CA-SGD one in s.",
        split=_only("contender", "glm"),
        all_rows=False,
    ),
)
