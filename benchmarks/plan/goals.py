"""What the suite `plan` is for: the numbers we promised ourselves, beside those of this run."""

from collections.abc import Sequence

from benchmarks.goals.outcome import Outcome, outcome
from benchmarks.plan.suite import PlanRow, Regret
from laconic.bench.protocol import Spread

SETTING = "ranks 1, 2, 4; s from 1 to 64; links of 100 Mbit/s, 1 Gbit/s and loopback; an idle machine of 2 cores"
CLOSE = 0.3
"""A prediction is good within 30 %."""


def plan_outcomes(rows: Sequence[PlanRow], found: Sequence[Regret]) -> list[Outcome]:
    """Regret, accuracy, and whether "do not compress" was said wherever it had to be."""
    regret = [one.regret for one in found]
    close = sum(abs(row.error) <= CLOSE for row in rows) / len(rows)
    wrong = float(sum(one.wrongly for one in found))
    return [
        outcome("regret, median", Spread.of(regret), 1.15, 1.05),
        outcome("regret, worst", Spread.exactly(max(regret)), 1.6, 1.25),
        outcome("predictions within 30 %", Spread.exactly(close), 0.7, 0.9),
        outcome("compression recommended, yet 5 % slower than bf16", Spread.exactly(wrong), 0.0, 0.0),
    ]
