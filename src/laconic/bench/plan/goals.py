"""What the suite `plan` is for: the numbers we promised ourselves, beside those of this run."""

from collections.abc import Sequence
from statistics import median

from laconic.bench.goals import Outcome
from laconic.bench.plan.suite import PlanRow, Regret
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
        _outcome("regret, median", median(regret), 1.15, 1.05, regret),
        _outcome("regret, worst", max(regret), 1.6, 1.25),
        _outcome("predictions within 30 %", close, 0.7, 0.9),
        _outcome("compression recommended, yet 5 % slower than bf16", wrong, 0.0, 0.0),
    ]


def _outcome(name: str, value: float, floor: float, aim: float, samples: Sequence[float] = ()) -> Outcome:
    sign = 1 if aim > floor else -1
    verdict = "aim" if sign * value >= sign * aim else "floor" if sign * value >= sign * floor else "missed"
    spread = Spread.of(samples) if samples else Spread(value, value, value)
    return Outcome(name, spread, floor, aim, verdict)
