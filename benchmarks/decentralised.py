"""The suite `decentralised`: training with neighbours only, beside all-reduce; on ranks, or on simulated nodes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from benchmarks.decentralised_contenders import CODECS, KINDS, Contender
from benchmarks.decentralised_training import simulate
from laconic.bench.protocol import Spread, WrongResult, speedup
from laconic.bench.ranks import RANKS, RATE, noise, on_ranks, resolve_network, slowest
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.bench.training import PROBLEMS, WARMUP_STEPS, Trial
from laconic.errors import InvalidOption, Option
from laconic.exchange.emulated_network import bits_per_second
from laconic.exchange.topology import TOPOLOGIES
from laconic.options import check_counts, check_names, option
from laconic.report import Axis, BarChart, Column, LineChart, Presentation, RowTable, Text, speedups, text, where
from laconic.report.values import Row, number_in

RANK_FUNCTION = "benchmarks.decentralised_training:decentralised_on_rank"
FP32, SCATTER = "DDP fp32", "nuqsgd-4 scatter_reduce"


@dataclass(frozen=True, slots=True)
class DecentralisedOptions:
    """What to run; ranks are processes with one thread each."""

    ranks: int = option(None, RANKS)
    simulate: int | None = option(None, "Simulate so many nodes in this process: no times.", metavar="NODES")
    rate: str | None = option(None, RATE, metavar="RATE")
    slow_rate: str | None = option(
        None, "Rate of the last host's link, such as 10mbit; needs --rate.", flag="--slow", metavar="RATE"
    )
    topologies: Sequence[str] = option(
        ("ring", "star"), f"Graphs: {', '.join(TOPOLOGIES)}; ring,star.", flag="--topology", metavar="NAME,..."
    )
    members: Sequence[str] = option(
        ("dpsgd", "ecd", "dcd"), f"{', '.join(KINDS)}; the first three.", flag="--member", metavar="NAME,..."
    )
    codecs: Sequence[str] = option(
        ("nuqsgd-4", "nuqsgd-8"), f"{', '.join(CODECS)}; the first two.", flag="--codec", metavar="NAME,..."
    )
    problem: str = option("clusters", "clusters (a perceptron) or digits (a small convolutional network).")
    size: int = option(2**20, "Parameters of the perceptron, at least.")
    batch_size: int = option(16, "Samples per rank and step.")
    repeats: int = option(30, "Timed steps.")

    def __post_init__(self) -> None:
        check_counts(self)
        check_names([self.problem], PROBLEMS, "problem")
        check_names(self.topologies, list(TOPOLOGIES), "topology")
        check_names(self.members, KINDS, "member")
        check_names(self.codecs, list(CODECS), "codec")
        if self.slow_rate is not None:
            bits_per_second(self.slow_rate)
            if self.rate is None:
                raise InvalidOption(Option("slow_rate"), " is one link among faster ones; give ", Option("rate", ...))
        if self.simulate is not None:
            for other in ("ranks", "rate"):
                if getattr(self, other) is not None:
                    raise InvalidOption(Option("simulate"), " starts no processes; leave out ", Option(other))
            object.__setattr__(self, "ranks", self.simulate)
        else:
            resolve_network(self)

    @property
    def simulated(self) -> bool:
        """Whether all nodes are simulated in this process: any number of them, and no times."""
        return self.simulate is not None

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(self.contenders()) if self.simulated else self.trial.n_steps

    @property
    def trial(self) -> Trial:
        """The training that every contender runs; simulated nodes are not timed and need no warm-up."""
        warmup_steps = 0 if self.simulated else WARMUP_STEPS
        return Trial(self.problem, self.size, self.batch_size, self.repeats, warmup_steps)

    def contenders(self) -> dict[str, Contender]:
        """AllReduce in fp32 and by scatter_reduce, and every member on every graph on which it converges.

        >>> list(DecentralisedOptions(topologies=["ring"], members=["ecd"], codecs=["nuqsgd-4"]).contenders())
        ['DDP fp32', 'nuqsgd-4 scatter_reduce', 'ecd nuqsgd-4 ring']
        """
        found = {FP32: Contender("all_reduce")}
        if not self.simulated:
            found[SCATTER] = Contender("all_reduce", "nuqsgd", {"bits": 4})
        for topology, member in product(self.topologies, self.members):
            if member == "dpsgd":
                found[f"dpsgd {topology}"] = Contender("dpsgd", topology=topology)
                continue
            for name in self.codecs:
                one = Contender(member, *CODECS[name], topology=topology)
                if one.converges(self.ranks):
                    found[f"{member} {name} {topology}"] = one
        return found

    def published(self) -> dict[str, Any]:
        """The options as JSON values."""
        values = asdict(self)
        del values["simulate"]
        return {"ranks": values.pop("ranks"), "simulated": self.simulated, **values}


@dataclass(frozen=True, slots=True)
class DecentralisedRow:
    """One contender.

    simulated           whether the nodes were simulated; then there are no seconds
    slow_rate           of the last host's link, if it differs
    seconds             of one step, forward to update, on the slowest rank
    speedup_over_fp32   seconds of a step of plain DDP over its own, step by step
    speedup_over_scatter  the same for laconic's nuqsgd-4 by scatter_reduce under DDP
    bytes_sent          per step, by the rank that sends most
    slow_bytes_sent     per step, by the last rank
    losses              of the average model on the training set, at a few steps; None once not finite
    loss                the last of them
    loss_over_fp32      loss over that of AllReduce training: 1.02 is 2 % worse
    distance            √(1/n Σ ‖x_i − x̄‖²) at the end
    """

    contender: str
    topology: str | None
    config: str
    n: int
    ranks: int
    simulated: bool
    rate: str | None
    slow_rate: str | None
    n_steps: int
    bytes_sent: float
    losses: list[float | None]
    loss: float | None
    loss_over_fp32: float | None
    seconds: Spread | None = None
    speedup_over_fp32: Spread | None = None
    speedup_over_scatter: Spread | None = None
    slow_bytes_sent: float | None = None
    distance: float | None = None


def decentralised_rows(
    options: DecentralisedOptions, progress: Progress = no_progress
) -> list[DecentralisedRow] | None:
    """Run the suite; None on the ranks of torchrun other than the first."""
    if options.simulated:
        return list(_simulated(options, progress))
    contenders = options.contenders()
    results = _on_ranks(options, contenders, progress)
    if results is None:
        return None
    _check_losses(results)
    rounds = {label: slowest([result[label] for result in results]) for label in contenders}
    fp32 = results[0][FP32]["losses"][-1]
    rows = [_row(label, one, options, results[0][label], fp32) for label, one in contenders.items()]
    return [_timed(row, [result[row.contender] for result in results], rounds) for row in rows]


def _simulated(options: DecentralisedOptions, progress: Progress) -> Iterator[DecentralisedRow]:
    fp32 = None
    for label, one in options.contenders().items():
        progress(label)
        result = simulate(one, options.ranks, options.trial)
        fp32 = result["losses"][-1] if fp32 is None else fp32
        yield _row(label, one, options, result, fp32)


def _on_ranks(
    options: DecentralisedOptions, contenders: Mapping[str, Contender], progress: Progress
) -> list[dict[str, Any]] | None:
    arguments = {
        "contenders": {label: asdict(one) for label, one in contenders.items()},
        "trial": asdict(options.trial),
    }
    rate: str | list[str] | None = options.rate
    if options.rate is not None and options.slow_rate is not None:
        rate = [options.rate] * (options.ranks - 1) + [options.slow_rate]
    return on_ranks(RANK_FUNCTION, arguments, options.ranks, rate, progress)


def _check_losses(results: Sequence[dict[str, Any]]) -> None:
    """Raise `WrongResult` unless all ranks have the same losses of the average model."""
    for label in results[0]:
        if len({tuple(result[label]["losses"]) for result in results}) > 1:
            raise WrongResult(f"{label}: the ranks do not see the same loss of the average model")


def _row(
    label: str, one: Contender, options: DecentralisedOptions, result: Mapping[str, Any], fp32: float
) -> DecentralisedRow:
    losses = result["losses"]
    return DecentralisedRow(
        contender=label,
        topology=one.topology or None,
        config=repr(one),
        n=result["n_parameters"],
        ranks=options.ranks,
        simulated=options.simulated,
        rate=options.rate,
        slow_rate=options.slow_rate,
        n_steps=options.trial.n_steps,
        bytes_sent=result["bytes_sent"],
        losses=[_finite(loss) for loss in losses],
        loss=_finite(losses[-1]),
        loss_over_fp32=_finite(losses[-1] / fp32),
        distance=_finite(result["distance"]) if "distance" in result else None,
    )


def _timed(
    row: DecentralisedRow, ranks: Sequence[Mapping[str, Any]], rounds: Mapping[str, Sequence[float]]
) -> DecentralisedRow:
    """The row with what only real ranks have: seconds, and bytes that differ from rank to rank."""
    return replace(
        row,
        bytes_sent=max(rank["bytes_sent"] for rank in ranks),
        seconds=Spread.of(rounds[row.contender]),
        speedup_over_fp32=speedup(rounds[FP32], rounds[row.contender]),
        speedup_over_scatter=speedup(rounds[SCATTER], rounds[row.contender]),
        slow_bytes_sent=ranks[-1]["bytes_sent"],
    )


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _points(row: Row) -> list[Row]:
    """The losses with the steps they were measured after: n_steps · i / n, in whole steps."""
    losses, n_steps = row.get("losses"), number_in(row, "n_steps")
    if not isinstance(losses, list) or not losses or n_steps is None:
        return []
    seconds, sent = number_in(row, "seconds"), number_in(row, "bytes_sent")
    steps = [max(1.0, n_steps * i // len(losses)) for i in range(1, len(losses) + 1)]
    return [
        {
            "iteration": step,
            "seconds": None if seconds is None else step * seconds,
            "bytes": None if sent is None else step * sent,
            "loss": loss,
        }
        for step, loss in zip(steps, losses, strict=True)
    ]


def _loss_at_half(row: Row) -> Any:
    losses = row.get("losses")
    return losses[(len(losses) - 1) // 2] if isinstance(losses, list) and losses else None


PRESENTATION = Presentation(
    lambda document: f"Training without a centre, {where(document)}",
    [
        Text(noise),
        RowTable(
            "A step of training",
            [
                text("contender", "contender"),
                Column("ms per step", "seconds", "ms"),
                Column("× fp32", "speedup_over_fp32"),
                Column("× scatter reduce", "speedup_over_scatter"),
                Column("MB sent", "bytes_sent", "MB"),
                Column("MB by the last", "slow_bytes_sent", "MB"),
            ],
            "ms: the slowest rank's, forward to update. × fp32: speed over DDP as it is; × scatter reduce: over "
            "nuqsgd-4 under DDP. MB sent by the rank that sends most, and by the last.",
        ),
        RowTable(
            "Loss of the average model",
            [
                text("contender", "contender"),
                Column("loss at half", _loss_at_half),
                Column("loss at the end", "loss", digits=4),
                Column("÷ fp32", "loss_over_fp32", digits=4),
                Column("distance", "distance"),
                Column("kB sent per step", "bytes_sent", "kB"),
            ],
            "distance: √(1/n Σ ‖x_i − x̄‖²) of the nodes' models from their average.",
        ),
        LineChart(
            Axis("loss", "loss"),
            _points,
            "Training loss",
            note="Of the average model. Seconds: steps so far × the median step; bytes: of the rank that sends most.",
        ),
        speedups("DDP in float32"),
        BarChart("Bytes that a node sends in a step", "bytes_sent", "B"),
    ],
)
SUITE = Suite(
    "decentralised",
    DecentralisedOptions,
    decentralised_rows,
    """Training that talks to neighbours in a graph only, next to all-reduce in fp32 and NUQSGD by scatter_reduce.

    Every contender trains the same network on the same batches. Under torchrun, uses its ranks.
    """,
)
