"""What the suites `exchange` and `ddp` are for: the numbers we promised ourselves, beside those of this run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.goals.outcome import Outcome, outcome
from laconic.bench.ddp import DDPRow
from laconic.bench.exchange import ExchangeRow
from laconic.bench.network import bits_per_second
from laconic.bench.protocol import Spread

SETTING = "4 ranks, on hosts of their own where a rate is emulated, 2**22 values, 2 CPU cores of an idle machine"

NetworkRow = ExchangeRow | DDPRow


@dataclass(frozen=True, slots=True)
class NetworkGoal:
    """A number at one rate: the best of some contenders must reach `floor`; we would like `aim`."""

    name: str
    rate: int | None
    contenders: tuple[str, ...]
    value: Callable[[NetworkRow], Spread]
    floor: float
    aim: float


def _fp32(row: NetworkRow) -> Spread:
    return row.speedup_over_fp32


def _bf16(row: NetworkRow) -> Spread:
    return row.speedup_over_bf16


def _loss(row: NetworkRow) -> Spread:
    return Spread.exactly(row.loss_over_fp32 if isinstance(row, DDPRow) else float("nan"))


SR, RANS, AG = "nuqsgd-4 scatter_reduce", "nuqsgd-4-rans scatter_reduce", "nuqsgd-4 all_gather"
FIXED, SMALL_BUCKETS = "nuqsgd-4", "nuqsgd-4/512"

EXCHANGE_GOALS = (
    NetworkGoal("1 Gbit/s: nuqsgd-4 scatter_reduce over fp32", 10**9, (SR,), _fp32, 3.5, 6.0),
    NetworkGoal("1 Gbit/s: nuqsgd-4 scatter_reduce over bf16", 10**9, (SR,), _bf16, 1.9, 3.2),
    NetworkGoal("100 Mbit/s: best of nuqsgd-4 over fp32", 10**8, (SR, RANS, AG), _fp32, 6.0, 9.0),
    NetworkGoal("20 Mbit/s: nuqsgd-4-rans over fp32", 2 * 10**7, (RANS,), _fp32, 9.0, 12.0),
    NetworkGoal("unlimited: nuqsgd-4 scatter_reduce over fp32", None, (SR,), _fp32, 1.3, 2.5),
)
DDP_GOALS = (
    NetworkGoal("1 Gbit/s: step of nuqsgd-4 over fp32", 10**9, (FIXED,), _fp32, 2.5, 4.0),
    NetworkGoal("1 Gbit/s: step of nuqsgd-4 over the bf16 hook", 10**9, (FIXED,), _bf16, 1.5, 2.5),
    NetworkGoal("1 Gbit/s: loss of nuqsgd-4 ÷ fp32", 10**9, (FIXED,), _loss, 1.02, 1.005),
    NetworkGoal("1 Gbit/s: step of nuqsgd-4/512 over fp32", 10**9, (SMALL_BUCKETS,), _fp32, 2.5, 4.0),
    NetworkGoal("1 Gbit/s: step of nuqsgd-4/512 over the bf16 hook", 10**9, (SMALL_BUCKETS,), _bf16, 1.5, 2.5),
    NetworkGoal("1 Gbit/s: loss of nuqsgd-4/512 ÷ fp32", 10**9, (SMALL_BUCKETS,), _loss, 1.02, 1.005),
)


def network_outcomes(rows: Sequence[NetworkRow]) -> list[Outcome]:
    """The goals that these rows speak to."""
    if not rows:
        return []
    rate = bits_per_second(rows[0].rate) if rows[0].rate else None
    found = []
    for goal in DDP_GOALS if isinstance(rows[0], DDPRow) else EXCHANGE_GOALS:
        values = [goal.value(row) for row in rows if row.contender in goal.contenders]
        if goal.rate == rate and values:
            best = (max if goal.aim > goal.floor else min)(values, key=lambda value: value.median)
            found.append(outcome(goal.name, best, goal.floor, goal.aim))
    return found
