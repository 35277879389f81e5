"""The suite `decentralised`: training with neighbours only, beside all-reduce; on ranks, or simulated on any number."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.decentralised.options import FP32, SCATTER, DecentralisedOptions
from benchmarks.decentralised.simulate import simulate
from benchmarks.decentralised.ways import Way
from laconic.bench.checks import WrongResult
from laconic.bench.protocol import Spread, speedup
from laconic.bench.ranks import on_ranks, slowest

RANK_FUNCTION = "benchmarks.decentralised.rank:decentralised_on_rank"


@dataclass(frozen=True, slots=True)
class DecentralisedRow:
    """One way to train.

    simulated           whether the nodes were simulated; then there are no seconds
    slow_rate           of the last host's link, if it has its own
    seconds             of one step, forward to update: the slowest rank's
    speedup_over_fp32   seconds of a step of DDP as it is over its own, step by step
    speedup_over_scatter  the same for laconic's nuqsgd-4 by scatter_reduce under DDP
    bytes_sent          a step, by the rank that sends most
    slow_bytes_sent     a step, by the last rank
    losses              of the average model on the training set, at a few moments; None once it is no number
    loss                the last of them
    loss_over_fp32      that over the loss of AllReduce training: 1.02 is 2 % worse
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
    options: DecentralisedOptions, tell: Callable[[str], None] = lambda label: None
) -> list[DecentralisedRow] | None:
    """Run the suite; None on the ranks of torchrun other than the first."""
    if options.simulated:
        return list(_simulated(options, tell))
    ways = options.ways()
    results = _on_ranks(options, ways, tell)
    if results is None:
        return None
    _check_losses(results)
    rounds = {label: slowest([result[label] for result in results]) for label in ways}
    fp32 = results[0][FP32]["losses"][-1]
    rows = [_row(label, way, options, results[0][label], fp32) for label, way in ways.items()]
    return [_timed(row, [result[row.contender] for result in results], rounds) for row in rows]


def _simulated(options: DecentralisedOptions, tell: Callable[[str], None]) -> Iterator[DecentralisedRow]:
    fp32 = None
    for label, way in options.ways().items():
        tell(label)
        seen = simulate(way, options.ranks, options.trial)
        fp32 = seen["losses"][-1] if fp32 is None else fp32
        yield _row(label, way, options, seen, fp32)


def _on_ranks(
    options: DecentralisedOptions, ways: Mapping[str, Way], tell: Callable[[str], None]
) -> list[dict[str, Any]] | None:
    arguments = {
        "ways": {label: asdict(way) for label, way in ways.items()},
        "trial": asdict(options.trial),
    }
    slow = {} if options.slow_rate is None else {options.ranks - 1: options.slow_rate}
    return on_ranks(RANK_FUNCTION, arguments, options.ranks, options.rate, tell, rates=slow)


def _check_losses(results: Sequence[dict[str, Any]]) -> None:
    """All ranks must see the same average model."""
    for label in results[0]:
        if len({tuple(result[label]["losses"]) for result in results}) > 1:
            raise WrongResult(f"{label}: the ranks do not see the same loss of the average model")


def _row(label: str, way: Way, options: DecentralisedOptions, seen: Mapping[str, Any], fp32: float) -> DecentralisedRow:
    losses = seen["losses"]
    return DecentralisedRow(
        contender=label,
        topology=way.topology or None,
        config=repr(way),
        n=seen["n_parameters"],
        ranks=options.ranks,
        simulated=options.simulated,
        rate=options.rate,
        slow_rate=options.slow_rate,
        n_steps=options.trial.n_steps,
        bytes_sent=seen["bytes_sent"],
        losses=[_finite(loss) for loss in losses],
        loss=_finite(losses[-1]),
        loss_over_fp32=_finite(losses[-1] / fp32),
        distance=_finite(seen["distance"]) if "distance" in seen else None,
    )


def _timed(
    row: DecentralisedRow, ranks: Sequence[Mapping[str, Any]], rounds: Mapping[str, Sequence[float]]
) -> DecentralisedRow:
    """With what only real ranks have: seconds, and bytes that differ from rank to rank."""
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
