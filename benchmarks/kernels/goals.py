"""What the suite `kernels` is for: the numbers we promised ourselves, beside those of this run."""

from collections.abc import Sequence

from benchmarks.goals.outcome import Outcome, outcome
from benchmarks.kernels.contenders import COPY, PACK, SUM
from benchmarks.kernels.row import KernelRow

MAIN = "nuqsgd-4"
SUM_GOALS = {1: (0.90, 0.95), 4: (0.80, 0.95), 8: (0.75, 0.95)}


def kernel_outcomes(rows: Sequence[KernelRow]) -> list[Outcome]:
    """The goal of every row that has one: NUQSGD at 4 bits its own, the others' rounding and packing one in common."""
    found = []
    for row in rows:
        goal = _goal(row)
        if goal is not None:
            payloads = f", P = {row.n_payloads}" if row.n_payloads else ""
            found.append(outcome(f"{row.contender} {row.operation}{payloads} ÷ copy", row.ratio_to_copy, *goal))
    return found


def _goal(row: KernelRow) -> tuple[float, float] | None:
    if row.operation == COPY:
        return None
    if row.contender == MAIN:
        return (0.90, 0.98) if row.operation == PACK else SUM_GOALS.get(row.n_payloads)
    return (0.80, 0.95) if row.operation in (PACK, SUM) else None
