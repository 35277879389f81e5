"""What the suite `glm` on a GPU is for: the numbers we promised ourselves, beside those of this run."""

from collections.abc import Callable, Sequence

from benchmarks.glm.device import DeviceRow
from benchmarks.goals.outcome import Outcome, outcome
from laconic.bench.protocol import Spread

SETTING = "one H200, batches of 32, shapes in full; ours: the fastest of recipe C, whichever s and kernel"
OURS = "C"
MICROSECONDS = {"epsilon": (2.5, 1.2), "higgs": (2.0, 0.8), "wide": (6.0, 2.5)}
PUBLISHED = ("epsilon", "susy", "higgs", "synth", "poisson-synth")
RATIOS: dict[str, tuple[Callable[[DeviceRow], float | None], float, float, Sequence[str]]] = {
    "eager fp32 SGD": (lambda row: row.over_eager, 20.0, 60.0, PUBLISHED),
    "graphed fp32 SGD": (lambda row: row.over_graphed, 4.0, 10.0, PUBLISHED),
    "jax fp32 SGD": (lambda row: row.over_jax, 3.0, 6.0, ("epsilon", "higgs")),
}
GAP = (0.5, 0.1)


def device_outcomes(rows: Sequence[DeviceRow]) -> list[Outcome]:
    """Of each problem: recipe C at its fastest, and its loss at its worst."""
    found = []
    for problem in dict.fromkeys(row.problem for row in rows):
        ours = [row for row in rows if row.problem == problem and row.is_ours and row.recipe == OURS]
        if not ours:
            continue
        best = min(ours, key=lambda row: row.seconds.median)
        if problem in MICROSECONDS:
            us = Spread(*(1e6 * t for t in (best.seconds.median, best.seconds.p20, best.seconds.p80)))
            found.append(outcome(f"{problem}: µs an iteration, {best.contender}", us, *MICROSECONDS[problem]))
        for rival, (ratio, floor, aim, problems) in RATIOS.items():
            value = ratio(best)
            if problem in problems and value is not None:
                found.append(outcome(f"{problem}: {rival} ÷ {best.contender}", Spread.exactly(value), floor, aim))
        gaps = [100 * row.loss_gap for row in ours if row.loss_gap is not None]
        if gaps and problem in PUBLISHED:
            name = f"{problem}: loss of recipe C above graphed fp32 SGD, worst, %"
            found.append(outcome(name, Spread.exactly(max(gaps)), *GAP))
    return found


def device_losses(rows: Sequence[DeviceRow]) -> list[str]:
    """A sentence on every contender of ours that is slower than one of the others."""
    return [
        f"{row.problem}: {row.contender} is slower than SGD in a CUDA graph "
        f"({row.over_graphed:.2g} of its speed in float32, {row.over_graphed_bf16:.2g} with bfloat16 data)."
        for row in rows
        if row.is_ours and min(row.over_graphed, row.over_graphed_bf16) < 1
    ]
