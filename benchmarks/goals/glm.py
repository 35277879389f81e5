"""What the suite `glm` is for: the numbers we promised ourselves, beside those of this run."""

from collections.abc import Sequence

from benchmarks.glm.files import FileRow
from benchmarks.glm.time_to import TimeRow
from benchmarks.goals.outcome import Outcome, outcome
from laconic.bench.glm.suite import GLMRow
from laconic.bench.protocol import Spread

SETTING = "4 ranks of one thread over loopback, batches of 8, 2 CPU cores of an idle machine"
TIME_SETTING = "581,012 rows of 54 columns, one process, 2 CPU cores of an idle machine"
OURS = "C"
GAP_FLOOR, GAP_AIM = 0.5, 0.1
SPEED_FLOORS = {"epsilon": 6.8, "susy": 5.1, "higgs": 5.1, "synth": 5.1, "poisson-synth": 5.1}
"""What the paper reports over FP32 SGD."""
SPEED_AIM = 15.0
RACES = {
    "SGDClassifier": (3.0, 8.0),
    "LogisticRegression(lbfgs)": (2.0, 8.0),
    "PoissonRegressor(lbfgs)": (2.0, 8.0),
}
READ_FLOOR, READ_AIM = 1.0, 5.0
MOST_MEGABYTES = 300.0


def glm_outcomes(rows: Sequence[GLMRow]) -> list[Outcome]:
    """Of each problem: the loss of recipe C at every s, and its speed at the best."""
    found = []
    for problem in dict.fromkeys(row.problem for row in rows):
        ours = [
            r for r in rows if r.problem == problem and r.solver == "ca_sgd" and r.recipe == OURS and not r.is_floor
        ]
        if not ours:
            continue
        best = max(ours, key=lambda row: row.speedup_over_fp32.median)
        if problem in SPEED_FLOORS and (best.ranks, best.batch_size, best.rate) == (4, 8, None):
            name = f"{problem}: sgd fp32 ÷ ca_sgd C at the best s, {best.s}"
            found.append(outcome(name, best.speedup_over_fp32, SPEED_FLOORS[problem], SPEED_AIM))
        worst = 100 * max(row.loss_gap or 0.0 for row in ours)
        name = f"{problem}: loss of ca_sgd C above sgd fp32 at the worst s, %"
        found.append(outcome(name, Spread.exactly(worst), GAP_FLOOR, GAP_AIM))
    return found


def time_outcomes(rows: Sequence[TimeRow], file: FileRow | None) -> list[Outcome]:
    """The races that these rows are of, and the goals for files."""
    found = [
        outcome(
            f"{row.problem}: {row.contender} ÷ laconic, to 1 % of the optimum", row.over_ours, *RACES[row.contender]
        )
        for row in rows
        if row.contender in RACES and row.over_ours is not None
    ]
    if file is not None:
        found.append(outcome("reading LIBSVM: speed over scikit-learn's", file.ratio_to_sklearn, READ_FLOOR, READ_AIM))
    if file is not None and file.peak_bytes is not None:
        used = file.peak_bytes / 1e6
        name = f"converting {file.n_bytes / 1e6:.0f} MB of LIBSVM: peak memory beyond the imports, MB"
        found.append(outcome(name, Spread.exactly(used), MOST_MEGABYTES, MOST_MEGABYTES))
    return found


def race_losses(rows: Sequence[TimeRow]) -> list[str]:
    """A sentence on every contender that is faster than ours, and on ours where it does not get there."""
    faster = [f"{row.contender} is faster than ours." for row in rows if row.over_ours and row.over_ours.median < 1]
    return faster + [f"{row.contender} does not come within 1 % of the optimum." for row in rows if row.seconds is None]
