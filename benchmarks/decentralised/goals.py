"""What the suite `decentralised` is for: the numbers we promised ourselves, beside those of this run."""

from collections.abc import Sequence

from benchmarks.decentralised.suite import DecentralisedRow
from benchmarks.goals.outcome import Outcome, outcome
from laconic.bench.protocol import Spread

LOSS_SETTING = "a ring; the loss after the same number of steps"
SPEED_SETTING = f"{LOSS_SETTING}, the link of the last of 4 hosts at 10mbit among 1gbit"
RING = ("ecd nuqsgd-4 ring", "ecd nuqsgd-8 ring")
SPEED_GOAL, LOSS_GOAL = (2.0, 4.0), (1.02, 1.005)
DIVERGED = 1e9
"""What a loss that is no number counts as: JSON has no infinity."""


def setting(rows: Sequence[DecentralisedRow]) -> str:
    """What the goals that these rows speak to were set for."""
    return LOSS_SETTING if rows[0].slow_rate is None else SPEED_SETTING


def decentralised_outcomes(rows: Sequence[DecentralisedRow]) -> list[Outcome]:
    """The goals that these rows speak to: loss on a ring, and speed on a ring with one slow link."""
    found = []
    for row in rows:
        if row.contender not in RING:
            continue
        loss = DIVERGED if row.loss_over_fp32 is None else row.loss_over_fp32
        found.append(outcome(f"{row.contender}: loss ÷ fp32", Spread.exactly(loss), *LOSS_GOAL))
        if row.slow_rate is not None and row.speedup_over_fp32 is not None:
            found.append(outcome(f"{row.contender}: step over fp32", row.speedup_over_fp32, *SPEED_GOAL))
    return found
