"""The NUQSGD paper's findings beside those of a document of the suite `papers-nuqsgd`."""

from collections.abc import Iterator

from benchmarks.goals import Outcome, outcome
from benchmarks.papers.claims import NUQSGD, Claim, where_we_lose
from laconic.codec import Codec
from laconic.quantizers import Sign
from laconic.report.values import Row, number_in, rows_in, text_in

EXPERIMENTS = f"{NUQSGD}, convergence and variance"
VARIANCE_GOAL, SAME_VARIANCE_GOAL = (1.0, 5.0), (1.5, 1.0)
POINTS_GOAL, LOSS_GOAL = (1.0, 0.5), (1.0, 1.05)
SAME_POINTS = 1.0
"""Points of accuracy within which two methods are as good as each other."""
SIGN_BUCKET = 64
VARIANCE = "variance_at_fp32"


def outcomes(document: Row) -> Iterator[Outcome]:
    """Variance, training loss and test accuracy of NUQSGD beside the other methods."""
    for name, value, goal in (
        ("variance of qsgd ÷ nuqsgd, same gradients", _ratio(document, VARIANCE, "qsgd", "nuqsgd"), VARIANCE_GOAL),
        ("variance of nuqsgd ÷ qsgdinf, same gradients", _ratio(document, VARIANCE, "nuqsgd", "qsgdinf"),
         SAME_VARIANCE_GOAL),
        ("training loss of qsgd ÷ nuqsgd", _ratio(document, "loss", "qsgd", "nuqsgd"), LOSS_GOAL),
        ("test accuracy of nuqsgd below fp32, points", _points(document, "fp32", "nuqsgd"), POINTS_GOAL),
        ("test accuracy of nuqsgd below qsgdinf, points", _points(document, "qsgdinf", "nuqsgd"), POINTS_GOAL),
    ):  # fmt: skip
        if value is not None:
            yield outcome(name, value, *goal)


def claims(document: Row) -> list[Claim]:
    """The paper's findings in its order."""
    first = rows_in(document)[0]
    smaller, same = (_ratio(document, VARIANCE, *pair) for pair in (("qsgd", "nuqsgd"), ("nuqsgd", "qsgdinf")))
    loss, better = _ratio(document, "loss", "qsgd", "nuqsgd"), _points(document, "nuqsgd", "qsgd")
    as_inf, as_full = _points(document, "qsgdinf", "nuqsgd"), _points(document, "fp32", "nuqsgd")
    here = "gradients of the full-precision run, the same for both; 1-D parameters are not quantised here"
    short = f"after {first['n_iterations']} iterations with one seed; the paper trains to the end"

    def claim(what: str, published: str, measured: float | None, unit: str, holds: bool | None, note: str) -> Claim:
        value = None if measured is None else float(f"{measured:.4g}")
        return Claim(what, published, value, EXPERIMENTS, unit, holds, first["problem"], note)

    return [
        claim("normalised variance, QSGD ÷ NUQSGD", "above 1", smaller, "×", _above(smaller, 1.0), here),
        claim(
            "normalised variance, NUQSGD ÷ QSGDinf", "about 1", same, "×",
            _below(same, SAME_VARIANCE_GOAL[0]), f"{here}; holds: below {SAME_VARIANCE_GOAL[0]:g}",
        ),
        claim("training loss, QSGD ÷ NUQSGD", "above 1", loss, "×", _above(loss, 1.0), short),
        claim("test accuracy, NUQSGD − QSGD", "above 0", better, " points", _above(better, 0.0), short),
        claim("test accuracy, QSGDinf − NUQSGD", "about 0", as_inf, " points", _below(as_inf, SAME_POINTS), short),
        claim(
            "test accuracy, full precision − NUQSGD", "about 0", as_full, " points", _below(as_full, SAME_POINTS), short
        ),
        sign_claim(),
    ]  # fmt: skip


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


def losses(document: Row) -> list[str]:
    """A sentence on everything that speaks against quantising, or against NUQSGD."""
    by_method, found = _by_method(document), []
    for name in ("qsgd", "qsgdinf"):
        ratio = _ratio(document, VARIANCE, "nuqsgd", name)
        if ratio is not None and ratio > 1:
            label = text_in(by_method[name], "contender")
            found.append(f"variance: NUQSGD's is {ratio:.2g} times {label}'s on the same gradients.")
    ours = number_in(by_method.get("nuqsgd"), "accuracy")
    for method, row in by_method.items():
        if row.get("baseline") is not True:
            found += _lost(method, row, ours)
    return where_we_lose(found)


def _lost(method: str, row: Row, ours: float | None) -> Iterator[str]:
    label, speed, accuracy = text_in(row, "contender"), number_in(row, "speedup_over_fp32"), number_in(row, "accuracy")
    if number_in(row, "loss") is None:
        yield f"{label}: training has diverged."
    if speed is not None and speed < 1:
        simulated = "with workers simulated on one device, where nothing is sent"
        where = simulated if row.get("simulated") is True else "on ranks"
        yield f"{label}: an iteration takes {100 * (1 / speed - 1):.2g} % longer than in full precision {where}."
    if ours is not None and accuracy is not None and method != "nuqsgd" and accuracy > ours:
        yield f"{label}: test accuracy {100 * (accuracy - ours):.2g} points above NUQSGD's."


def _by_method(document: Row) -> dict[str, Row]:
    return {text_in(row, "method"): row for row in rows_in(document)}


def _ratio(document: Row, key: str, above: str, below: str) -> float | None:
    by_method = _by_method(document)
    a, b = (number_in(by_method.get(method), key) for method in (above, below))
    return a / b if a is not None and b else None


def _points(document: Row, above: str, below: str) -> float | None:
    """Accuracy of one less that of the other, in hundredths."""
    by_method = _by_method(document)
    a, b = (number_in(by_method.get(method), "accuracy") for method in (above, below))
    return None if a is None or b is None else 100 * (a - b)


def _above(value: float | None, least: float) -> bool | None:
    return None if value is None else value > least


def _below(value: float | None, most: float) -> bool | None:
    return None if value is None else value <= most
