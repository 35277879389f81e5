"""`python -m benchmarks codec-error`: error against the bits actually sent, of every member and of rivals."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from benchmarks.codec_rivals import Sent, rivals
from benchmarks.goals import DIVERGED, Outcome, outcome
from benchmarks.gradients import Kind, kinds
from laconic.bench.protocol import relative_error
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.codec import Codec
from laconic.coders import RANS, Coder, FixedWidth
from laconic.data import read_gradient
from laconic.kernels import Stream
from laconic.options import check_counts, option
from laconic.quantizers import Bucketed, Dithered, ErrorFeedback, Identity, QSGDInf, Quantizer, Sign
from laconic.quantizers.registry import SCHEMES
from laconic.report import Axis, Cell, Column, LineChart, Presentation, RowTable, Text, text
from laconic.report.values import Row, names_in, number_in, rows_in, text_in
from laconic.units import shown

MEMBERS = tuple(scheme for scheme in SCHEMES[::-1] if scheme is not Identity)
"""Our quantizers, the newest first."""
BUCKETS = (8192, 512)
ERRORS = tuple(10 ** (0.5 - 0.25 * i) for i in range(19))
"""Errors that `Dithered` is configured for: from 3.2, more than the gradient itself, to 1e-4."""
N_STREAMS = 2
COMPARED = (1.0, 1.5, 2.0, 3.0, 4.0)
"""Bits per value at which the best schemes are compared."""
SLACK = 0.99
"""Tolerance: a scheme of 1.01 bits counts at 1, since rivals send scales, too."""
LARGEST_ERROR, MOST_BITS = 4.0, 9.5
"""Limits of the chart."""
DASHED, DOTTED = 7, 14 + 5
"""Inks of a chart: rivals are dashed, and the limit is dotted and grey."""


@dataclass(frozen=True, slots=True)
class ErrorOptions:
    """What to run."""

    size: int = option(2**26, "Values of each gradient, at most.")
    gradient: Sequence[str] = option((), "On gradients of your own instead.", metavar="FILE.npy,...")

    def __post_init__(self) -> None:
        check_counts(self)
        for file in self.gradient:
            read_gradient(file)

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(kinds(self.gradient)) * (2 + len(MEMBERS))


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One curve on one gradient: a scheme with its coder and buckets, at several widths or steps.

    gradient, about  name and origin of the gradient: n values, with a kurtosis (3 for normal values)
    contender        name of the curve; `ours` if it is laconic's
    unbiased         whether its expectation is the gradient
    coded            how the size was determined: "bytes" (of the payload), "formula" or "entropy" (of the symbols)
    curve            points with config, bits (per value, everything included) and error ‖Q(v) − v‖² / ‖v‖²
    """

    gradient: str
    about: str
    n: int
    kurtosis: float
    contender: str
    ours: bool
    unbiased: bool
    coded: str
    curve: list[dict[str, Any]] = field(default_factory=list)


def error_rows(options: ErrorOptions, progress: Progress = no_progress) -> list[ErrorRow]:
    """Every member and rival on the first values of each gradient."""
    rows = []
    for kind in kinds(options.gradient):
        progress(kind.name)
        v = kind.make()[: options.size]
        for scheme in MEMBERS:
            progress(f"{kind.name}: {scheme.name}")
            rows += curves(kind, v, partial(members, scheme, v), ours=True)
        progress(f"{kind.name}: rivals")
        rows += curves(kind, v, partial(rivals, v), ours=False)
    return rows


def curves(kind: Kind, v: torch.Tensor, draw: Callable[[int], Iterator[Sent]], *, ours: bool) -> list[ErrorRow]:
    """Curves of what `draw` yields for each seed; bits and error of a point are means over `N_STREAMS` seeds."""
    found: dict[str, ErrorRow] = {}
    square, fourth = (float(v.double().pow(power).mean()) for power in (2, 4))
    about = (kind.name, kind.about, v.numel(), fourth / square**2)
    for draws in zip(*map(draw, range(N_STREAMS)), strict=True):
        one = draws[0]
        bits = sum(sent.bits for sent in draws) / N_STREAMS
        error = sum(relative_error(sent.values, v) for sent in draws) / N_STREAMS
        row = found.setdefault(one.curve, ErrorRow(*about, one.curve, ours, one.unbiased, one.coded))
        row.curve.append({"config": one.config, "bits": bits, "error": error})
    return list(found.values())


def members(scheme: type[Quantizer], v: torch.Tensor, seed: int) -> Iterator[Sent]:
    """v encoded and decoded by every configuration of a scheme."""
    for curve, config, codec in configurations(scheme):
        payload = codec.encode(v, Stream(seed=1, step=seed), codec.new_memory(v))
        bits, unbiased = payload.bits_per_coordinate, codec.quantizer.unbiased
        yield Sent(curve, config, bits, codec.decode(payload), unbiased, "bytes")


def configurations(scheme: type[Quantizer]) -> Iterator[tuple[str, str, Codec]]:
    """The codecs of a scheme to measure: (curve, configuration, codec).

    >>> from laconic import Sign
    >>> [(curve, config) for curve, config, _ in configurations(Sign)]
    [('ef-sign/8192', 'bits=1'), ('ef-sign/512', 'bits=1')]
    """
    if scheme is Dithered:
        for name, whole in (("dithered", True), ("dithered, buckets", False)):
            for error in ERRORS:
                dithered = Dithered(error=error) if whole else Dithered(error=error, bucket_size=BUCKETS[-1])
                yield name, f"error={error:.3g}", Codec(dithered)
        return
    coders: tuple[Coder, ...] = (FixedWidth(),) if scheme is Sign else (FixedWidth(), RANS())
    sizes = BUCKETS if issubclass(scheme, Bucketed) else (scheme.examples()[0].bucket_size,)
    for size, coder, one in product(sizes, coders, scheme.examples()):
        made = replace(one, bucket_size=size)  # type: ignore[type-var]
        name = f"{'' if made.unbiased else 'ef-'}{scheme.name}/{size}{' rans' if coder == RANS() else ''}"
        yield name, f"bits={one.bits}", Codec(made if made.unbiased else ErrorFeedback(made), coder)
    for size, bits in product(BUCKETS, range(2, 9) if scheme is QSGDInf else ()):
        yield f"qsgdinf/{size} subtract", f"bits={bits}", Codec(QSGDInf(bits, size, subtract=True))


def error_at(row: Row, bits: float) -> float | None:
    """A curve's error at a number of bits: log-linear between its points, constant beyond the last."""
    points = sorted((point["bits"], point["error"]) for point in _points([row]))
    if not points or bits < SLACK * points[0][0]:
        return None
    x, y = np.array(points).T
    return float(np.exp(np.interp(bits, x, np.log(np.minimum.accumulate(y)))))


def at_equal_bytes(rows: Sequence[Row]) -> list[Row]:
    """For each gradient and each of `COMPARED` bits: our best unbiased member and the best rival, biased or not."""
    made: list[Row] = []
    for gradient in names_in(rows, "gradient"):
        here = [row for row in rows if text_in(row, "gradient") == gradient]
        for bits in COMPARED:
            ours = _best((row for row in here if row.get("ours") and row.get("unbiased")), bits)
            rival = _best((row for row in here if not row.get("ours")), bits)
            found = {"gradient": gradient, "bits": bits, "member": ours[1], "error": ours[0]}
            ratio = rival[0] / ours[0] if ours[0] and rival[0] else None
            made.append({**found, "rival": rival[1], "rival_error": rival[0], "ratio": ratio})
    return made


def _best(rows: Iterable[Row], bits: float) -> tuple[float | None, str]:
    found = [(error, text_in(row, "contender")) for row in rows if (error := error_at(row, bits)) is not None]
    return min(found, default=(None, "–"))


TRAINED, ASKED_ERROR, ASKED_BITS = "byte LM, trained", 0.277, 2.0
"""The gradient and the points that the goals are set for."""


def outcomes(document: Row) -> Iterator[Outcome]:
    """The worst comparison with a rival, and two points of dither on a language model's gradient."""
    ratios = [row["ratio"] for row in at_equal_bytes(rows_in(document)) if row["ratio"]]
    if ratios:
        yield outcome("best rival's error ÷ ours at equal bytes, worst over gradients and bits", min(ratios), 1.0, 1.5)
    for row in rows_in(document):
        if (text_in(row, "gradient"), text_in(row, "contender")) == (TRAINED, "dithered"):
            x, y = np.array(sorted((math.log(point["error"]), point["bits"]) for point in rows_in(row, "curve"))).T
            bits, error = float(np.interp(math.log(ASKED_ERROR), x, y)), error_at(row, ASKED_BITS) or DIVERGED
            yield outcome(f"{TRAINED}: bits at error {ASKED_ERROR}", bits, 0.85, 0.72)
            yield outcome(f"{TRAINED}: error at {ASKED_BITS:g} bits", error, 0.025, 0.019)


def _said(document: Row) -> list[str]:
    """Sentences on the worst comparison, and on each that a rival wins."""
    compared = [row for row in at_equal_bytes(rows_in(document)) if row["ratio"]]
    if not compared:
        return []
    worst = min(compared, key=lambda row: row["ratio"])
    lost = [row for row in compared if row["ratio"] < 1]
    return [
        f"At equal bytes the best rival has at least {shown(worst['ratio'])} times the error of our best unbiased "
        f"member; the least is on {_where(worst)}, by {worst['rival']}.",
        *(f"{row['rival']} wins on {_where(row)}." for row in lost),
    ]


def _where(row: Row) -> str:
    return f"{row['gradient']} at {row['bits']:g} bit{'' if row['bits'] == 1 else 's'}"


def _ratio(row: Row) -> Cell:
    ratio = number_in(row, "ratio")
    return Cell(shown(ratio), ratio, "" if ratio is None else "good" if ratio >= 1 else "bad")


def _chart(rows: list[Row]) -> list[Row]:
    """The lines of the chart: the Pareto front of each scheme on each gradient, and Shannon's limit."""
    made: list[Row] = []
    rows = [{**row, "scheme": text_in(row, "contender").split("/")[0]} for row in rows]
    schemes, ours = names_in(rows, "scheme"), names_in([row for row in rows if row.get("ours")], "scheme")
    limit = [{"bits": x, "error": 2.0 ** (-2 * x)} for x in np.geomspace(0.25, 9, 32).tolist()]
    for gradient in names_in(rows, "gradient"):
        for i, scheme in enumerate(schemes):
            found = [row for row in rows if (text_in(row, "gradient"), row["scheme"]) == (gradient, scheme)]
            name = scheme if any(row.get("unbiased") for row in found) else f"{scheme} (biased)"
            ink = i if scheme in ours else DASHED + i - len(ours)
            made.append({"gradient": gradient, "name": name, "ink": ink, "curve": _front(_points(found))})
        made.append({"gradient": gradient, "name": "Shannon, normal values", "ink": DOTTED, "curve": limit})
    return made


def _front(points: list[Row]) -> list[Row]:
    """The Pareto front of the points, within the limits of the chart."""
    front: list[Row] = []
    for point in sorted(points, key=lambda point: (point["bits"], point["error"])):
        if point["bits"] <= MOST_BITS and point["error"] < (front[-1]["error"] if front else LARGEST_ERROR):
            front.append({**point, "label": f"{text_in(point, 'contender')}, {text_in(point, 'config')}"})
    return front


def _points(rows: Sequence[Row]) -> list[Row]:
    """The points of these rows' curves, with the rows' fields; only those with positive bits and error."""
    found = [{**row, **point} for row in rows for point in rows_in(row, "curve")]
    made = [{**point, **{key: number_in(point, key) or 0.0 for key in ("bits", "error")}} for point in found]
    return [point for point in made if min(point["bits"], point["error"]) > 0]


PRESENTATION = Presentation(
    "Error at equal bytes",
    [
        Text(_said),
        RowTable(
            "The best at equal bytes",
            [
                text("gradient", "gradient"),
                Column("bits", "bits", digits=2),
                text("our best", "member"),
                Column("its error", "error"),
                text("best rival", "rival"),
                Column("its error", "rival_error"),
                Column("rival ÷ ours", _ratio),
            ],
            "bits: per value, of all that is sent; errors ‖Q(v) − v‖² / ‖v‖² between measured points are interpolated. "
            "Ours are unbiased. entropy: computed from the rival's symbols, not coded.",
            rows=at_equal_bytes,
        ),
        LineChart(
            Axis("error", "error ‖Q(v) − v‖² / ‖v‖²"),
            axes=[Axis("bits", "bits per value", "")],
            rows=_chart,
            name="name",
            by="gradient",
            log=True,
            log_x=True,
            panels=True,
        ),
        RowTable(
            "The gradients",
            [
                text("gradient", "gradient"),
                text("what it is of", "about"),
                Column("values", "n", "n"),
                Column("kurtosis", "kurtosis"),
            ],
            "kurtosis: 3 for normal values.",
            rows=lambda rows: list({text_in(row, "gradient"): row for row in rows}.values()),
        ),
        RowTable(
            "Every point",
            [
                text("gradient", "gradient"),
                text("scheme", "contender"),
                text("with", "config"),
                text("unbiased", "unbiased"),
                text("size from", "coded"),
                Column("bits", "bits", digits=4),
                Column("error", "error"),
            ],
            rows=_points,
            folded=True,
        ),
    ],
    "Normalised squared error against the bits of all that is sent, for every member and for rivals.",
    all_rows=False,
)
SUITE = Suite(
    "codec-error",
    ErrorOptions,
    error_rows,
    """What each scheme loses at equal bytes, beside EDEN, natural compression, uint8, float8 and casts.""",
)
