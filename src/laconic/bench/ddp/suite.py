"""The suite `ddp`: steps of data-parallel training, beside DDP as it is and PyTorch's own hooks."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from laconic.bench.checks import WrongResult
from laconic.bench.ddp.ways import BASELINES, Way, ways
from laconic.bench.exchange import WHERE_THE_TIME_GOES
from laconic.bench.options import require_at_least, require_known, require_network
from laconic.bench.problems import PROBLEMS, perceptron_width
from laconic.bench.protocol import Spread, speedup
from laconic.bench.ranks import check_replicas, noise, on_ranks, slowest
from laconic.bench.turns import Trial
from laconic.report import BarChart, Column, Part, Presentation, Table, Text, speedups, text, where

RANK_FUNCTION = "laconic.bench.ddp.rank:ddp_on_rank"
DIVERGED = 10.0


@dataclass(frozen=True, slots=True)
class DDPOptions:
    """What to run.

    ranks       how many; each is a process with one thread
    rate        of every host's link, such as "1gbit"; None for loopback, unlimited
    problem     "clusters" (synthetic, a perceptron) or "digits" (handwritten digits, a small convolutional network)
    size        least number of parameters of the perceptron
    batch_size  samples a rank and step
    repeats     timed steps
    seeds       how many times to do it all, with other weights, batches and random numbers: one loss is mostly luck
    codecs      names of schemes or codecs to run besides the baselines; None for all
    """

    ranks: int = 4
    rate: str | None = None
    problem: str = "clusters"
    size: int = 2**22
    batch_size: int = 16
    repeats: int = 30
    seeds: int = 1
    codecs: Sequence[str] | None = None

    def __post_init__(self) -> None:
        require_at_least(1, self, "size", "batch_size", "repeats", "seeds")
        require_known([self.problem], PROBLEMS, "problem")
        require_network(self.ranks, self.rate)
        ways(self.codecs)

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return self.seeds * self.trial.n_steps

    @property
    def width(self) -> int:
        """Of the hidden layers."""
        return perceptron_width(self.size)

    @property
    def trial(self) -> Trial:
        """What every way is trained on, and for how long."""
        return Trial(self.problem, self.width, self.batch_size, self.repeats)


@dataclass(frozen=True, slots=True)
class DDPRow:
    """One way to average gradients.

    seconds               of one step, forward to update: the slowest rank's
    speedup_over_fp32     seconds of a step of DDP as it is over its own, step by step
    speedup_over_bf16     the same for DDP with PyTorch's bf16 hook
    n_seeds               how many trials these are the seconds of; the rest are means
    loss                  on the training set after all steps
    loss_over_fp32        that over the loss of DDP as it is: 1.02 is 2 % worse
    bytes_sent            a step, by the rank that sends most; None where laconic did not send
    encode_seconds, wire_seconds, decode_seconds  a step, summed over groups, of the slowest rank; groups overlap
    """

    contender: str
    config: str
    n: int
    ranks: int
    rate: str | None
    n_steps: int
    seconds: Spread
    speedup_over_fp32: Spread
    speedup_over_bf16: Spread
    loss: float
    loss_over_fp32: float
    bytes_sent: float | None = None
    encode_seconds: float | None = None
    wire_seconds: float | None = None
    decode_seconds: float | None = None
    n_seeds: int = 1


def ddp_rows(options: DDPOptions, tell: Callable[[str], None] = lambda label: None) -> list[DDPRow] | None:
    """Run the suite and check every result; None on the ranks of torchrun other than the first."""
    contenders = ways(options.codecs)
    arguments = {
        "ways": {label: asdict(way) for label, way in contenders.items()},
        "trial": asdict(options.trial),
        "seeds": options.seeds,
    }
    results = on_ranks(RANK_FUNCTION, arguments, options.ranks, options.rate, tell)
    if results is None:
        return None
    check_replicas(results)
    rounds = {label: slowest([result[label] for result in results]) for label in contenders}
    losses = {label: fmean(result[label]["loss"] for result in results) for label in contenders}
    rows = [_row(label, way, options, results, rounds, losses) for label, way in contenders.items()]
    for row in rows:
        if row.contender != "nothing" and not row.loss_over_fp32 < DIVERGED:
            raise WrongResult(
                f"{row.contender}: the loss is {row.loss:.4g}, {row.loss_over_fp32:.3g} times that of fp32"
            )
    return rows


def _row(
    label: str,
    way: Way,
    options: DDPOptions,
    results: Sequence[dict[str, Any]],
    rounds: dict[str, list[float]],
    losses: dict[str, float],
) -> DDPRow:
    ranks = [result[label] for result in results]

    def most(key: str) -> float | None:
        return max(rank[key] for rank in ranks) if key in ranks[0] else None

    return DDPRow(
        contender=label,
        config=repr(way),
        n=ranks[0]["n_parameters"],
        ranks=len(results),
        rate=options.rate,
        n_steps=options.trial.n_steps,
        seconds=Spread.of(rounds[label]),
        speedup_over_fp32=speedup(rounds[BASELINES[0]], rounds[label]),
        speedup_over_bf16=speedup(rounds[BASELINES[1]], rounds[label]),
        loss=losses[label],
        loss_over_fp32=losses[label] / losses[BASELINES[0]],
        bytes_sent=most("bytes_sent"),
        encode_seconds=most("encode_seconds"),
        wire_seconds=most("wire_seconds"),
        decode_seconds=most("decode_seconds"),
        n_seeds=options.seeds,
    )


PARTS: tuple[Part, ...] = (
    Table(
        "A step of training, and the loss after all of them",
        [
            text("contender", "contender"),
            Column("ms per step", "seconds", "ms"),
            Column("× fp32", "speedup_over_fp32"),
            Column("× bf16", "speedup_over_bf16"),
            Column("MB sent", "bytes_sent", "MB"),
            Column("loss", "loss", digits=4),
            Column("÷ fp32", "loss_over_fp32", digits=4),
        ],
        "ms: the slowest rank's, forward to update. × fp32: speed over DDP as it is; × bf16: over PyTorch's bf16 hook. "
        "MB sent by a rank, where laconic sent them.",
    ),
    speedups("DDP in float32"),
    speedups("DDP with the bf16 hook", "speedup_over_bf16"),
    BarChart("Bytes that a rank sends in a step", "bytes_sent", "B"),
    WHERE_THE_TIME_GOES,
)
PRESENTATION = Presentation(
    lambda document: f"Training a network on {where(document)}",
    [Text(noise), *PARTS],
    "DistributedDataParallel, the contenders step by step in turn.",
)
