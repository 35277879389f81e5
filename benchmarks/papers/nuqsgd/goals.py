"""What the suite `papers nuqsgd` is for: the paper's findings, beside those of this run."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.goals.outcome import Outcome, outcome
from benchmarks.papers.claim import NUQSGD, Claim
from benchmarks.papers.nuqsgd.row import NUQSGDRow
from laconic.bench.protocol import Spread
from laconic.codec import Codec
from laconic.quantizers import Sign

SETTING = "CIFAR-10, ResNet-110, 4 workers with mini-batches of 128, 4 bits, buckets of 8192, 10 epochs or more"
EXPERIMENTS = f"{NUQSGD}, convergence and variance"
VARIANCE_GOAL, SAME_VARIANCE_GOAL = (1.0, 5.0), (1.5, 1.0)
POINTS_GOAL, LOSS_GOAL = (1.0, 0.5), (1.0, 1.05)
SAME_POINTS = 1.0
"""Points of accuracy within which two methods are as good as each other."""
SIGN_BUCKET = 64
Rows = dict[str, NUQSGDRow]


def nuqsgd_outcomes(rows: Sequence[NUQSGDRow]) -> list[Outcome]:
    """The goals that these rows speak to."""
    by, found = _by_method(rows), []
    for name, value, goal in (
        ("variance of qsgd ÷ nuqsgd, same gradients", _variance_ratio(by, "qsgd", "nuqsgd"), VARIANCE_GOAL),
        ("variance of nuqsgd ÷ qsgdinf, same gradients", _variance_ratio(by, "nuqsgd", "qsgdinf"), SAME_VARIANCE_GOAL),
        ("training loss of qsgd ÷ nuqsgd", _loss_ratio(by, "qsgd", "nuqsgd"), LOSS_GOAL),
        ("test accuracy of nuqsgd below fp32, points", _points(by, "fp32", "nuqsgd"), POINTS_GOAL),
        ("test accuracy of nuqsgd below qsgdinf, points", _points(by, "qsgdinf", "nuqsgd"), POINTS_GOAL),
    ):
        if value is not None:
            found.append(outcome(name, Spread.exactly(value), *goal))
    return found


def nuqsgd_claims(rows: Sequence[NUQSGDRow]) -> list[Claim]:
    """The paper's findings in its order."""
    by, problem = _by_method(rows), rows[0].problem
    smaller, same = _variance_ratio(by, "qsgd", "nuqsgd"), _variance_ratio(by, "nuqsgd", "qsgdinf")
    loss, better = _loss_ratio(by, "qsgd", "nuqsgd"), _points(by, "nuqsgd", "qsgd")
    as_inf, as_full = _points(by, "qsgdinf", "nuqsgd"), _points(by, "fp32", "nuqsgd")
    here = "gradients of the full-precision run, the same for both; 1-D parameters are not quantised here"
    short = f"after {rows[0].n_iterations} iterations with one seed; the paper trains to the end"
    found = [
        _claim("normalised variance, QSGD ÷ NUQSGD", "above 1", smaller, "×", _above(smaller, 1.0), here),
        _claim(
            "normalised variance, NUQSGD ÷ QSGDinf", "about 1", same, "×",
            _below(same, SAME_VARIANCE_GOAL[0]), f"{here}; holds: below {SAME_VARIANCE_GOAL[0]:g}",
        ),
        _claim("training loss, QSGD ÷ NUQSGD", "above 1", loss, "×", _above(loss, 1.0), short),
        _claim("test accuracy, NUQSGD − QSGD", "above 0", better, " points", _above(better, 0.0), short),
        _claim("test accuracy, QSGDinf − NUQSGD", "about 0", as_inf, " points", _below(as_inf, SAME_POINTS), short),
        _claim("test accuracy, full precision − NUQSGD", "about 0", as_full, " points",
               _below(as_full, SAME_POINTS), short),
    ]  # fmt: skip
    return [_about(claim, problem) for claim in found] + [sign_claim()]


def sign_claim() -> Claim:
    """EF-SignSGD's message at the paper's bucket of 64: a matter of arithmetic.

    >>> sign_claim().measured
    1.5
    """
    n = 2**20
    quantizer = Sign(bucket_size=SIGN_BUCKET)
    bits = 8 * Codec(quantizer).max_bytes(n) / n
    return Claim(
        "bits a coordinate of EF-SignSGD in buckets of 64",
        2.0,
        round(bits, 3),
        f"{NUQSGD}, hardware: 128 bits for a bucket of 64 values",
        "bits",
        note="here a bucket has one scale, the mean absolute value, and the sign does not need two",
    )


def nuqsgd_losses(rows: Sequence[NUQSGDRow]) -> list[str]:
    """A sentence on everything that speaks against quantising, or against NUQSGD."""
    by, found = _by_method(rows), []
    ours = by.get("nuqsgd")
    for name in ("qsgd", "qsgdinf"):
        ratio = _variance_ratio(by, "nuqsgd", name)
        if ratio is not None and ratio > 1:
            found.append(f"variance: NUQSGD's is {ratio:.2g} times {by[name].contender}'s on the same gradients.")
    for row in rows:
        if row.baseline:
            continue
        if row.loss is None:
            found.append(f"{row.contender}: training has diverged.")
        if row.speedup_over_fp32.median < 1:
            where = "with workers simulated on one device, where nothing is sent" if row.simulated else "on ranks"
            share = 100 * (1 / row.speedup_over_fp32.median - 1)
            found.append(f"{row.contender}: an iteration takes {share:.2g} % longer than in full precision {where}.")
        if ours is not None and row.method != "nuqsgd" and row.accuracy > ours.accuracy:
            points = 100 * (row.accuracy - ours.accuracy)
            found.append(f"{row.contender}: test accuracy {points:.2g} points above NUQSGD's.")
    return found


def _by_method(rows: Sequence[NUQSGDRow]) -> Rows:
    return {row.method: row for row in rows}


def _variance_ratio(by: Rows, above: str, below: str) -> float | None:
    if above not in by or below not in by:
        return None
    a, b = by[above].variance_at_fp32, by[below].variance_at_fp32
    return a / b if a is not None and b else None


def _loss_ratio(by: Rows, above: str, below: str) -> float | None:
    if above not in by or below not in by:
        return None
    a, b = by[above].loss, by[below].loss
    return a / b if a is not None and b else None


def _points(by: Rows, above: str, below: str) -> float | None:
    """Accuracy of one less that of the other, in hundredths."""
    return 100 * (by[above].accuracy - by[below].accuracy) if above in by and below in by else None


def _above(value: float | None, least: float) -> bool | None:
    return None if value is None else value > least


def _below(value: float | None, most: float) -> bool | None:
    return None if value is None else value <= most


def _claim(what: str, published: str, measured: float | None, unit: str, holds: bool | None, note: str) -> Claim:
    value = None if measured is None else float(f"{measured:.4g}")
    return Claim(what, published, value, EXPERIMENTS, unit, holds, note=note)


def _about(claim: Claim, problem: str) -> Claim:
    return replace(claim, problem=problem)
