"""Claims of the NUQSGD paper, beside the results in a document of the suite `papers-nuqsgd`."""

from collections.abc import Iterator

from benchmarks.goals import Outcome, outcome
from benchmarks.papers.claims import NUQSGD, Claim, where_we_lose
from laconic.codec import Codec
from laconic.quantizers import Sign
from laconic.report.values import Row, number_in, rows_in, text_in

EXPERIMENTS = f"{NUQSGD}, convergence and variance"
FP32, OURS, INF, QSGD = "fp32", "nuqsgd-4/8192", "qsgdinf-4/8192", "qsgd-4/8192"
DITHERED = "dithered-0.5"
VARIANCE = "variance_at_fp32"
SAME_POINTS = 0.5
"""Points of accuracy within which two methods count as equally good."""
SAME_VARIANCE = 1.5
"""Ratio of variances, either way, within which they count as equal."""
SIGN_BUCKET = 64
LEAST_ACCURACY = {"resnet-20": (0.91, 0.92), "resnet-110": (0.92, 0.935)}
"""Floor and aim of the accuracy in full precision. He et al. 2016 report 91.25 % and 93.57 %."""
LITERATURE = {"resnet-20": 91.25, "resnet-110": 93.57}
WHY_INF = (
    "a bucket of 8192 has few values near its largest, and uniform levels up to that one are closer together than "
    "powers of two up to the norm; the paper's curves look alike at the scale of its figures."
)

WHY_ONE = (
    "there is one run of each. Three seeds of one method, in bf16, are up to 0.4 points apart, so a gap of less than "
    "twice that may be chance and a larger one a real loss; more seeds would tell."
)
FULL_LENGTH = 100
"""Epochs from which a network's accuracy has a verdict."""


def outcomes(document: Row) -> Iterator[Outcome]:
    """Accuracy in full precision, its loss by quantising, and NUQSGD's variance beside QSGD's."""
    by = _by_method(document)
    model = text_in(by[FP32], "problem").split()[-1]
    if model in LEAST_ACCURACY:
        yield outcome("test accuracy of fp32", number_in(by[FP32], "accuracy") or 0.0, *LEAST_ACCURACY[model])
    for name in (OURS, INF, DITHERED):
        if name in by:
            yield outcome(f"test accuracy of {name} below fp32, points", by[name]["below_fp32"], 0.5, 0.2)
    if DITHERED in by:
        yield outcome(f"bits per value of {DITHERED}", by[DITHERED]["bits"], 1.0, 0.9)
    smaller = _ratio(by, VARIANCE, QSGD, OURS)
    if smaller is not None:
        yield outcome("variance of qsgd ÷ nuqsgd, same gradients", smaller, 1.0, 5.0)


def claims(document: Row) -> list[Claim]:
    """The paper's claims in its order, and those on full precision."""
    by = _by_method(document)
    model = text_in(by[FP32], "problem").split()[-1]
    here = "gradients of the full-precision run, the same for both; 1-D parameters are not quantised here"
    longer = f"{by[FP32]['n_epochs']} epochs; seeds: " + ", ".join(f"{n} {len(row['seeds'])}" for n, row in by.items())
    same = {"low": -SAME_POINTS, "high": SAME_POINTS, "unit": "points", "note": longer}
    same["why"] = WHY_ONE if len(by[FP32]["seeds"]) == 1 else _in_order_of_variance(by)

    def claim(what: str, published: str | float, measured: float | None, **more: object) -> Claim:
        value = None if measured is None else _figure(measured)
        return Claim(what, published, value, EXPERIMENTS, problem=text_in(by[FP32], "problem"), **more)  # type: ignore[arg-type]

    fewer = "of QSGD one seed" if len(by.get(QSGD, {}).get("seeds", ())) == 1 < len(by[FP32]["seeds"]) else ""
    found = [
        claim("normalised variance, QSGD ÷ NUQSGD", "above 1", _ratio(by, VARIANCE, QSGD, OURS), unit="×", low=1.0,
              note=here),
        claim("normalised variance, NUQSGD ÷ QSGDinf", "about 1", _ratio(by, VARIANCE, OURS, INF), unit="×",
              low=1 / SAME_VARIANCE, high=SAME_VARIANCE, better="less", note=here, why=WHY_INF),
        claim("training loss, QSGD ÷ NUQSGD", "above 1", _ratio(by, "loss", QSGD, OURS), unit="×", low=1.0,
              note=longer, seeds=fewer),
        claim("test accuracy, NUQSGD − QSGD", "above 0", _points(by, OURS, QSGD), unit="points", low=0.0,
              note=longer, seeds=fewer),
        claim("test accuracy, QSGDinf − NUQSGD", "about 0", _points(by, INF, OURS), **same),
        claim("test accuracy, full precision − NUQSGD", "about 0", _points(by, FP32, OURS), **same),
        claim("test accuracy, full precision − Dithered", "not in the paper", _points(by, FP32, DITHERED), **same),
        sign_claim(),
    ]  # fmt: skip
    if model in LITERATURE:
        least, whole = LITERATURE[model], by[FP32]["n_epochs"] >= FULL_LENGTH
        found.append(
            Claim(f"test accuracy of {model} in full precision", least, round(100 * by[FP32]["accuracy"], 2),
                  "He et al. 2016, table 6", "%", least - 1.0 if whole else None, least + 1.0 if whole else None,
                  "more", note=longer, why=_few_steps(by[FP32]))
        )  # fmt: skip
    return [one for one in found if one.measured is not None]


def _in_order_of_variance(by: dict[str, Row]) -> str:
    """An explanation of losses of accuracy: each method's, in the order of the variances in their own runs."""
    lossy = sorted((row for name, row in by.items() if name != FP32), key=lambda row: row["variance"])
    each = [
        f"{_figure(row['below_fp32']):.2f} (standard error {row['below_error']:.2f}) of {text_in(row, 'contender')} at "
        f"a variance of {row['variance']:.2f}" for row in lossy if row["below_error"] is not None
    ]  # fmt: skip
    return (
        f"over {len(by[FP32]['seeds'])} seeds, the points below full precision are {', '.join(each)}. Buckets of 8192 "
        "are the paper's; laconic's default, 512, has a quarter of NUQSGD's variance, and was not run on this network."
    )


def _figure(x: float) -> float:
    """A measured figure as it is written down."""
    return float(f"{x:.4g}")


def _few_steps(row: Row) -> str:
    """An explanation if the learning rate, for its batch size, is lower than the literature's 0.1 for 128 images."""
    n, rate = row["workers"] * row["batch_size"], number_in(row, "learning_rate") or 0.1
    if rate / n >= 0.1 / 128:
        return ""
    return (
        f"a step has {n} images, at a rate of {rate:g}, where He et al. take 128 at 0.1: in as many epochs "
        f"{128 / n:.2g} times the steps, and {1280 * rate / n:.2g} times the weight decay and the noise."
    )


def sign_claim() -> Claim:
    """EF-SignSGD's message size at the paper's bucket of 64, by arithmetic. No verdict: ours is another scheme.

    >>> sign_claim().measured, sign_claim().verdict
    (1.5, None)
    """
    n = 2**20
    bits = 8 * Codec(Sign(bucket_size=SIGN_BUCKET)).max_bytes(n) / n
    return Claim(
        "bits per coordinate of EF-SignSGD in buckets of 64",
        2.0,
        round(bits, 3),
        f"{NUQSGD}, hardware: 128 bits for a bucket of 64 values",
        "bits",
        note="here a bucket has one scale, the mean absolute value; the paper's has two",
    )


def losses(document: Row) -> list[str]:
    """Sentences on results that speak against quantising, or against NUQSGD."""
    by, found = _by_method(document), []
    for name in (QSGD, INF):
        ratio = _ratio(by, VARIANCE, OURS, name)
        if ratio is not None and ratio > 1:
            found.append(f"variance: NUQSGD's is {ratio:.2g} times that of {name} on the same gradients.")
    ours = number_in(by.get(OURS), "accuracy")
    for name, row in by.items():
        below, accuracy = number_in(row, "below_fp32") or 0.0, number_in(row, "accuracy")
        if number_in(row, "loss") is None:
            found.append(f"{name}: training has diverged.")
        elif below > SAME_POINTS:
            found.append(f"{name}: test accuracy {below:.2g} points below full precision.")
        if name not in (OURS, FP32) and ours is not None and accuracy is not None and accuracy > ours:
            found.append(f"{name}: test accuracy {100 * (accuracy - ours):.2g} points above NUQSGD's.")
    return where_we_lose(found)


def _by_method(document: Row) -> dict[str, Row]:
    return {text_in(row, "contender"): row for row in rows_in(document)}


def _ratio(by: dict[str, Row], key: str, above: str, below: str) -> float | None:
    a, b = (number_in(by.get(method), key) for method in (above, below))
    return a / b if a is not None and b else None


def _points(by: dict[str, Row], above: str, below: str) -> float | None:
    """Difference of two methods' accuracies in points, the mean over the seeds that both have."""
    a, b = (dict(zip(by[n]["seeds"], by[n]["accuracies"], strict=True)) if n in by else {} for n in (above, below))
    both = [100 * (a[seed] - b[seed]) for seed in a if seed in b]
    return sum(both) / len(both) if both else None
