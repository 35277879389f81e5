"""What is shown of `laconic demo`: schemes on one gradient, then training with some of them."""

from collections.abc import Callable, Mapping

from laconic.bench.ddp import PARTS as DDP
from laconic.bench.glm.suite import ITERATIONS, SPEEDUPS
from laconic.report import Axis, BarChart, Column, LineChart, Presentation, Table, Text, text
from laconic.report.values import Row, number_in, plain, rows_in

CODERS = ("fixed", "elias", "huffman", "rans")


def _findings(document: Row) -> list[str]:
    said = document.get("findings")
    return [plain(line) for line in said] if isinstance(said, list) else []


def _schemes(rows: list[Row]) -> list[Row]:
    """Rows of schemes, with their bits by coder at the top."""
    found = [row for row in rows if "scheme" in row]
    return [{**row, **(coded if isinstance(coded := row.get("coded_bits"), Mapping) else {})} for row in found]


def _contenders(of: str) -> Callable[[Row], list[Row]]:
    """A document with the contenders among the rows under a key."""
    return lambda document: [{"rows": [row for row in rows_in(document, of) if "contender" in row]}]


def _gradient(document: Row) -> str:
    """What the gradient is of."""
    given = document.get("gradient")
    n, steps, first, last, right = (number_in(given, k) for k in ("n", "n_steps", "first_loss", "loss", "accuracy"))
    if n is None or steps is None or first is None or last is None or right is None:
        return ""
    return (
        f"A network of {n:,.0f} parameters after {steps:.0f} steps of SGD on handwritten digits: loss {first:.2f} → "
        f"{last:.2f}, {100 * right:.0f} % right. v is its gradient."
    )


def _ends(rows: list[Row]) -> list[Row]:
    """The first and the last point of each curve."""
    curves = [(row, rows_in(row, "curve")) for row in rows]
    return [{**row, **curve[-1], "first_loss": curve[0].get("loss")} for row, curve in curves if curve]


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
        _gradient,
        all_rows=False,
    ),
    Presentation(
        "Training with each scheme",
        [
            Table(
                "The loss over all images",
                [
                    text("scheme", "contender"),
                    Column("first loss", "first_loss", digits=4),
                    Column("last loss", "loss", digits=4),
                    Column("kB sent per worker", "bytes", "kB"),
                    Column("variance", "variance"),
                ],
                "variance: of the last step's gradients.",
                rows=_ends,
            ),
            LineChart(Axis("loss", "training loss"), by="problem"),
            LineChart(Axis("variance", "variance ‖Q(v) − v‖² / ‖v‖²"), by="problem", log=True),
        ],
        "Simulated workers on one device, the same batches for every scheme; seconds include encoding, no network.",
        split=_contenders("curves"),
        all_rows=False,
    ),
    Presentation(
        "A network trained by local ranks",
        DDP,
        "Over loopback compression does not pay; `laconic bench ddp --rate 1gbit` emulates a link.",
        split=_contenders("rows"),
        all_rows=False,
    ),
    Presentation(
        "A logistic regression by the same ranks",
        [ITERATIONS, SPEEDUPS],
        "SGD sends a message in every iteration, CA-SGD one in s.",
        split=_contenders("glm"),
        all_rows=False,
    ),
)
