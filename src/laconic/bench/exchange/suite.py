"""The suite `exchange`: one tensor averaged over ranks, everything included, beside the all-reduce everybody has."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from laconic.bench.checks import ROUNDOFF, WrongResult
from laconic.bench.exchange.rivals import BASELINES, Rival, rivals
from laconic.bench.options import require_at_least, require_network
from laconic.bench.protocol import Spread, speedup
from laconic.bench.ranks import check_replicas, on_ranks, slowest
from laconic.codec import Codec
from laconic.exchange import PIECE_VALUES, Exchange, ScatterReduce

RANK_FUNCTION = "laconic.bench.exchange.rank:exchange_on_rank"


@dataclass(frozen=True, slots=True)
class ExchangeOptions:
    """What to run.

    ranks         how many; each is a process with one thread
    rate          of every host's link, such as "1gbit"; None for loopback, unlimited
    size          values a rank
    bucket_size   values that share a norm
    piece_values  values that go through the pipeline together
    repeats       timed rounds
    codecs        names of schemes or codecs to run besides the baselines; None for all
    """

    ranks: int = 4
    rate: str | None = None
    size: int = 2**22
    bucket_size: int = 8192
    piece_values: int = PIECE_VALUES
    repeats: int = 11
    codecs: Sequence[str] | None = None

    def __post_init__(self) -> None:
        require_at_least(1, self, "size", "bucket_size", "piece_values", "repeats")
        require_network(self.ranks, self.rate)
        rivals(self.codecs)

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return self.repeats + 1


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """One contender.

    seconds               of one exchange, encoding and decoding included: the slowest rank's
    speedup_over_fp32     seconds of the fp32 all-reduce over its own, round by round
    speedup_over_bf16     the same for the bf16 all-reduce
    bytes_sent            by the rank that sends most
    nmse                  ‖result − mean‖² over the mean of the ranks' ‖v‖²
    bound                 of that, where there is one
    encode_seconds, wire_seconds, decode_seconds  summed over pieces, medians, of the slowest rank; pieces overlap
    """

    contender: str
    exchange: str
    codec: str
    n: int
    ranks: int
    rate: str | None
    seconds: Spread
    speedup_over_fp32: Spread
    speedup_over_bf16: Spread
    bytes_sent: int
    nmse: float
    bound: float | None
    encode_seconds: float
    wire_seconds: float
    decode_seconds: float

    @property
    def bits_sent_per_value(self) -> float:
        """Bits this rank sends for each value; 2 (P − 1) / P · 32 for an fp32 all-reduce."""
        return 8 * self.bytes_sent / self.n


def exchange_rows(
    options: ExchangeOptions, tell: Callable[[str], None] = lambda label: None
) -> list[ExchangeRow] | None:
    """Run the suite and check every result; None on the ranks of torchrun other than the first."""
    contenders = rivals(options.codecs)
    arguments = {
        "labels": [rival.label for rival in contenders],
        **{k: v for k, v in asdict(options).items() if k in ("size", "bucket_size", "piece_values", "repeats")},
    }
    results = on_ranks(RANK_FUNCTION, arguments, options.ranks, options.rate, tell)
    if results is None:
        return None
    check_replicas(results)
    rounds = {rival.label: slowest([result[rival.label] for result in results]) for rival in contenders}
    return [_row(rival, options, results, rounds) for rival in contenders]


def error_bound(exchange: Exchange, codec: Codec, n: int, size: int) -> float:
    """What the error of the average must stay under; for codecs that are not unbiased, by the triangle inequality."""
    if exchange.name == "nothing":
        return math.inf
    if codec.quantizer.unbiased:
        return exchange.variance_bound(codec, n, size)
    first = math.sqrt(codec.quantizer.variance_bound(n))
    if isinstance(exchange, ScatterReduce):
        second = math.sqrt(exchange.second_codec(codec).quantizer.variance_bound(n))
        return (first + second * (1 + first)) ** 2
    steps = size if exchange.name == "all_reduce" else 1  # there every partial sum is rounded
    return (steps * first) ** 2


def _row(
    rival: Rival, options: ExchangeOptions, results: Sequence[dict[str, Any]], rounds: dict[str, list[float]]
) -> ExchangeRow:
    size, n = len(results), options.size
    ranks = [result[rival.label] for result in results]
    exchange, codec = rival.make(options.bucket_size, size)
    nmse, bound = float(ranks[0]["nmse"]), error_bound(exchange, codec, n, size)
    if not nmse <= bound * (1 + ROUNDOFF) + 1e-12:
        raise WrongResult(f"{rival.label}: the error is {nmse:.4g} of ‖v‖², above {bound:.4g}")
    return ExchangeRow(
        contender=rival.label,
        exchange=repr(exchange),
        codec=f"{codec.quantizer!r}, {codec.coder!r}",
        n=n,
        ranks=size,
        rate=options.rate,
        seconds=Spread.of(rounds[rival.label]),
        speedup_over_fp32=speedup(rounds[BASELINES[0]], rounds[rival.label]),
        speedup_over_bf16=speedup(rounds[BASELINES[1]], rounds[rival.label]),
        bytes_sent=max(rank["bytes_sent"] for rank in ranks),
        nmse=nmse,
        bound=None if math.isinf(bound) else bound,
        encode_seconds=max(rank["encode_seconds"] for rank in ranks),
        wire_seconds=max(rank["wire_seconds"] for rank in ranks),
        decode_seconds=max(rank["decode_seconds"] for rank in ranks),
    )
