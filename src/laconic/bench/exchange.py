"""The suite `exchange`: one tensor averaged over ranks, coding included, beside the process group's all-reduce."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar

import torch

from laconic.bench.protocol import ROUNDOFF, WrongResult
from laconic.bench.ranks import (
    PAPERS_BUCKET,
    CodecOptions,
    RankRow,
    barrier,
    columns_of,
    compared,
    digest,
    finish,
    noise,
    scheme_of,
)
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.codec import Codec, make_codec
from laconic.exchange import Communicator, Exchange, Exchanged, ScatterReduce, by_name, pipeline_for
from laconic.options import option
from laconic.planner import NetworkOption
from laconic.planner.calibrate import exchange_call
from laconic.report import BarChart, Column, Presentation, RowTable, Text, speedups, text, where
from laconic.report.values import Row, text_in

BASELINES, NOTHING = ("fp32 all_reduce", "bf16 all_reduce"), "nothing"
LEVELS = [f"{scheme}-{bits}" for bits in (2, 4, 8) for scheme in ("nuqsgd", "qsgd", "qsgdinf")]
BEYOND = ["rotated-2", "rotated-4", "dithered-0.1", "dithered-0.3", "dithered-1"]
EXCHANGES = [
    *(f"{codec} all_reduce" for codec in ("fp32", "bf16")),
    *(f"{codec} scatter_reduce" for codec in ("bf16", *LEVELS, "nuqsgd-4/512")),
    "nuqsgd-4 all_gather",
    *(f"{codec} scatter_reduce" for codec in ("nuqsgd-4-rans", *BEYOND)),
    "ef-sign all_gather",
]
CONTENDERS = {label: NetworkOption(*label.split()) for label in EXCHANGES} | {NOTHING: NetworkOption("fp32", NOTHING)}
"""Codecs with their exchanges, by label."""
ASKED_BY = {label: (scheme_of(one.codec), one.codec) for label, one in CONTENDERS.items()} | {NOTHING: (NOTHING,)}


@dataclass(frozen=True, slots=True)
class ExchangeOptions(CodecOptions):
    """Options of the suite `exchange`; ranks are processes.

    >>> ExchangeOptions(codecs=["nuqsgd-4-rans"]).labels
    ['fp32 all_reduce', 'bf16 all_reduce', 'nuqsgd-4-rans scatter_reduce']
    """

    size: int = option(2**22, "Number of float32 values per rank.")
    bucket_size: int = option(PAPERS_BUCKET, "Values that share one norm, where a codec's name does not say.")
    piece_values: int | None = option(
        None, "Values that go through the pipeline together; 2,097,152, and four times as many on GPUs.", flag="--piece"
    )
    repeats: int = option(11, "Timed rounds.")

    function: ClassVar = "laconic.bench.exchange:exchange_on_rank"
    baselines: ClassVar = BASELINES
    asked_by: ClassVar = ASKED_BY

    @property
    def n_parts(self) -> int:
        return self.repeats + 1

    @property
    def asked(self) -> dict[str, Any]:
        names = ("labels", "size", "bucket_size", "piece_values", "repeats", "device")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRow(RankRow):
    """One contender of the suite `exchange`.

    nmse   ‖result − mean‖² over the mean of the ranks' ‖v‖²
    bound  of nmse, where there is one
    encode_seconds, wire_seconds, decode_seconds  summed over pieces, medians, of the slowest rank; pieces overlap
    """

    exchange: str
    codec: str
    n: int
    bytes_sent: int
    nmse: float
    bound: float | None
    encode_seconds: float
    decode_seconds: float

    @property
    def bits_sent_per_value(self) -> float:
        """Bits this rank sends for each value; 2 (P − 1) / P · 32 for an fp32 all-reduce."""
        return 8 * self.bytes_sent / self.n


def exchange_rows(options: ExchangeOptions, progress: Progress = no_progress) -> list[ExchangeRow] | None:
    """Run the suite and check every result; None on the ranks of torchrun other than the first."""
    results = options.results(progress)
    if results is None:
        return None
    return [_row(options, ranks, common) for ranks, common in compared(options, results).values()]


def error_bound(exchange: Exchange, codec: Codec, n: int, size: int) -> float:
    """Upper bound of the error of the average; for biased codecs, by the triangle inequality."""
    if exchange.name == NOTHING:
        return math.inf
    if codec.quantizer.unbiased:
        return exchange.variance_bound(codec, n, size)
    first = math.sqrt(codec.quantizer.variance_bound(n))
    if isinstance(exchange, ScatterReduce):
        second = math.sqrt(exchange.second_codec(codec).quantizer.variance_bound(n))
        return (first + second * (1 + first)) ** 2
    steps = size if exchange.name == "all_reduce" else 1  # an all-reduce rounds every partial sum
    return (steps * first) ** 2


def _row(options: ExchangeOptions, ranks: Sequence[dict[str, Any]], common: dict[str, Any]) -> ExchangeRow:
    size, n, label = len(ranks), options.size, common["contender"]
    codec = make_codec(CONTENDERS[label].codec, options.bucket_size)
    exchange = by_name(CONTENDERS[label].exchange, codec, size)
    nmse, bound = float(ranks[0]["nmse"]), error_bound(exchange, codec, n, size)
    if not nmse <= bound * (1 + ROUNDOFF) + 1e-12:
        raise WrongResult(f"{label}: the error is {nmse:.4g} of ‖v‖², above {bound:.4g}")
    return ExchangeRow(
        **common,
        exchange=repr(exchange),
        codec=f"{codec.quantizer!r}, {codec.coder!r}",
        n=n,
        nmse=nmse,
        bound=None if math.isinf(bound) else bound,
    )


PHASES = ("encode_seconds", "wire_seconds", "decode_seconds")


def exchange_on_rank(
    progress: Progress,
    *,
    labels: Sequence[str],
    size: int,
    bucket_size: int,
    piece_values: int | None,
    repeats: int,
    device: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Run all contenders in turn, `repeats` rounds; seconds of each round, bytes, error and a digest per contender.

    Round 0 is not timed; its results are checked.
    """
    here = torch.device(device or "cpu")
    comm = Communicator.open(device=here)
    pipeline = pipeline_for(comm, here)
    v = values(comm.rank, size).to(here)
    exact = exact_mean(comm.size, size) if comm.rank == 0 else None
    calls = {label: exchange_call(pipeline, CONTENDERS[label], v, bucket_size, piece_values) for label in labels}
    results: dict[str, dict[str, Any]] = {}
    rounds: dict[str, list[tuple[float, Any]]] = {label: [] for label in labels}
    for turn in range(repeats + 1):
        progress(f"round {turn} of {repeats}" if turn else "warm-up and checks")
        for label, call in calls.items():
            barrier(comm)
            start = time.perf_counter()
            exchanged = call(turn)
            finish(here)
            if turn == 0:
                results[label] = _result(exchanged, exact)
            else:
                rounds[label].append((time.perf_counter() - start, exchanged.accounting))
    pipeline.close()
    comm.close()
    for label, result in results.items():
        seconds, seen = zip(*rounds[label], strict=True)
        in_sight = here.type == "cpu"  # the host does not see how long a phase takes on a GPU
        result |= {phase: median(getattr(one, phase) for one in seen) * in_sight for phase in PHASES}
        result["seconds"] = seconds
    return results


def values(rank: int, n: int) -> torch.Tensor:
    """The values (n,) of a rank: normal, independent of other ranks', the same in every run."""
    return torch.randn(n, generator=torch.Generator().manual_seed(rank))


def exact_mean(size: int, n: int) -> tuple[torch.Tensor, float]:
    """The mean over ranks in float64, and the mean of the ranks' ‖v‖²."""
    mean, energy = torch.zeros(n, dtype=torch.float64), 0.0
    for rank in range(size):
        v = values(rank, n)
        mean += v
        energy += float(torch.linalg.vector_norm(v, dtype=torch.float64)) ** 2
    return mean / size, energy / size


def _result(exchanged: Exchanged, exact: tuple[torch.Tensor, float] | None) -> dict[str, Any]:
    """Bytes, error against the exact mean, and a digest to compare across ranks."""
    value, accounting = exchanged.value.cpu(), exchanged.accounting
    result = {"digest": digest([value]), "bytes_sent": accounting.bytes_sent}
    if exact is None:
        return result
    mean, energy = exact
    error = float((value.double() - mean).square().sum())
    return {**result, "nmse": error / energy if energy else error}


def _working(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "nothing" not in text_in(row, "contender")]


WHERE_THE_TIME_GOES = RowTable(
    "Where the time goes",
    [
        text("contender", "contender"),
        Column("ms", "seconds", "ms"),
        Column("encode", "encode_seconds", "ms"),
        Column("wait", "wire_seconds", "ms"),
        Column("decode", "decode_seconds", "ms"),
    ],
    "In ms. encode, wait (for other ranks), decode: sums over parts that overlap, of the slowest rank in each.",
    rows=lambda rows: [row for row in rows if row.get("encode_seconds")],
)
"""Shared with the suite `ddp`."""

PRESENTATION = Presentation(
    lambda document: f"Averaging over {where(document)}",
    [
        Text(noise),
        RowTable(
            "One average, everything included",
            columns_of(Column("ms", "seconds", "ms"), Column("MB sent", "bytes_sent", "MB"), Column("error", "nmse")),
            "ms: the slowest rank's. × fp32, × bf16: speed over the all-reduce of the same round. MB sent by a rank. "
            "error: ‖result − mean‖² over the mean ‖v‖².",
        ),
        speedups("float32", rows=_working),
        BarChart("Bits sent per value and rank", "bits_sent_per_value", "bits", rows=_working),
        BarChart(
            "Variance: normalised squared error of the average",
            "nmse",
            log=True,
            limit=("bound", "proved bound"),
            rows=lambda rows: [row for row in _working(rows) if row.get("bound")],
        ),
        WHERE_THE_TIME_GOES,
    ],
)
SUITE = Suite(
    "exchange",
    ExchangeOptions,
    exchange_rows,
    """Average one tensor over ranks, everything included, next to fp32 and bf16 all-reduce.

    All ranks must end with the same bits, and near the mean, before a time counts. Under torchrun, uses its ranks.
    """,
)
