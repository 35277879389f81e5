"""Targets of the suites, and whether a run's document reaches them.

A goal has a floor, which must be reached, and an aim, which should be. `goals_of` works on documents, so that it can
also judge results of another day or machine. Goals of the papers' suites are defined beside their claims.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from laconic.bench.protocol import Spread
from laconic.bench.suite import row_fields
from laconic.exchange.emulated_network import bits_per_second
from laconic.report.values import Row, names_in, number_in, rows_in, text_in


@dataclass(frozen=True, slots=True)
class Outcome:
    """A target and this run's result; `verdict` is "aim", "floor" (reached) or "missed", by the median."""

    name: str
    value: Spread
    floor: float
    aim: float
    verdict: str


Outcomes = Iterator[Outcome]


def outcome(name: str, value: Spread | float, floor: float, aim: float) -> Outcome:
    """The verdict on a value; larger is better if the aim is above the floor, else smaller.

    >>> outcome("loss, %", 0.2, floor=0.5, aim=0.1).verdict
    'floor'
    """
    value = value if isinstance(value, Spread) else Spread(value, value, value)

    def reached(mark: float) -> bool:
        return value.median >= mark if aim > floor else value.median <= mark

    return Outcome(name, value, floor, aim, "aim" if reached(aim) else "floor" if reached(floor) else "missed")


def spread(row: Row, key: str, factor: float = 1.0) -> Spread | None:
    """A spread in a row (a plain number counts as a spread without variation), times a factor."""
    value, median = row.get(key), number_in(row, key)
    if median is None:
        return None
    low, high = (value["p20"], value["p80"]) if isinstance(value, dict) else (median, median)
    return Spread(factor * median, factor * low, factor * high)


def by_problem(document: Row, keep: Callable[[Row], bool]) -> Iterator[tuple[str, list[Row]]]:
    """Each problem with its rows that satisfy `keep`, if there are any."""
    for problem in names_in(rows_in(document), "problem"):
        kept = [row for row in rows_in(document) if text_in(row, "problem") == problem and keep(row)]
        if kept:
            yield problem, kept


PACK, UNPACK = "quantize + pack", "unpack + dequantize + add"
RANS, ELIAS = "rans on nuqsgd-4", "elias on nuqsgd-4"


def _millions(row: Row) -> Spread | None:
    seconds = spread(row, "seconds")
    n = 1e-6 * row["n"] / (number_in(row, "n_threads") or 1)  # per core
    return seconds and Spread(n / seconds.median, n / seconds.p80, n / seconds.p20)


def _ratio(row: Row) -> Spread | None:
    return spread(row, "ratio_to_copy")


def _over_entropy(row: Row) -> Spread | None:
    return spread(row, "bits_over_entropy")


CODEC = (
    ("nuqsgd-4 quantize + pack ÷ copy", "nuqsgd-4", PACK, _ratio, 0.5, 1.0),
    ("nuqsgd-4 unpack + dequantize + add ÷ copy", "nuqsgd-4", UNPACK, _ratio, 0.5, 1.0),
    ("qsgdinf-4 quantize + pack ÷ copy", "qsgdinf-4", PACK, _ratio, 0.5, 1.0),
    ("qsgdinf-8 quantize + pack ÷ copy", "qsgdinf-8", PACK, _ratio, 0.5, 1.0),
    ("rotated-4 quantize + pack ÷ copy", "rotated-4", PACK, _ratio, 0.3, 0.6),
    ("dithered-1 encode, M values/s a core", "dithered-1", "encode", _millions, 400.0, 1000.0),
    ("dithered-1 decode + add, M values/s a core", "dithered-1", "decode + add", _millions, 500.0, 1000.0),
    ("dithered-0.1 encode, M values/s a core", "dithered-0.1", "encode", _millions, 400.0, 1000.0),
    ("dithered-0.1 decode + add, M values/s a core", "dithered-0.1", "decode + add", _millions, 500.0, 1000.0),
    ("rans encode, M symbols/s a core", RANS, "encode", _millions, 600.0, 1200.0),
    ("rans decode, M symbols/s a core", RANS, "decode", _millions, 800.0, 1200.0),
    ("rans bits a coordinate ÷ entropy", RANS, "encode", _over_entropy, 1.02, 1.005),
    ("elias encode, M symbols/s a core", ELIAS, "encode", _millions, 50.0, 150.0),
    ("elias decode, M symbols/s a core", ELIAS, "decode", _millions, 50.0, 150.0),
)
"""Name, contender, operation, measured quantity, floor, aim."""


def codec(document: Row) -> Outcomes:
    """Speed of kernels and coders, and the size of coded symbols."""
    rows = {(text_in(row, "contender"), text_in(row, "operation")): row for row in rows_in(document)}
    for name, contender, operation, measure, floor, aim in CODEC:
        row = rows.get((contender, operation))
        if row is not None and (value := measure(row)) is not None:
            yield outcome(name, value, floor, aim)


SR, SR_RANS, AG = "nuqsgd-4 scatter_reduce", "nuqsgd-4-rans scatter_reduce", "nuqsgd-4 all_gather"
DITHERED = "dithered-1 scatter_reduce"
SHARDED = ["nuqsgd-4/512", "nuqsgd-4/512+bf16", "nuqsgd-4/512+differences-8"]
FP32, BF16, LOSS = "speedup_over_fp32", "speedup_over_bf16", "loss_over_fp32"
NETWORK: dict[str, Sequence[tuple[str, int | None, Sequence[str], str, float, float]]] = {
    "exchange": (
        ("1 Gbit/s: nuqsgd-4 scatter_reduce over fp32", 10**9, [SR], FP32, 3.5, 6.0),
        ("1 Gbit/s: nuqsgd-4 scatter_reduce over bf16", 10**9, [SR], BF16, 1.9, 3.2),
        ("100 Mbit/s: best of nuqsgd-4 over fp32", 10**8, [SR, SR_RANS, AG], FP32, 6.0, 9.0),
        ("20 Mbit/s: nuqsgd-4-rans over fp32", 2 * 10**7, [SR_RANS], FP32, 9.0, 12.0),
        ("unlimited: nuqsgd-4 scatter_reduce over fp32", None, [SR], FP32, 1.3, 2.5),
        ("1 Gbit/s: best of all over fp32", 10**9, [SR, DITHERED], FP32, 5.0, 8.0),
        ("100 Mbit/s: dithered-1 over fp32", 10**8, [DITHERED], FP32, 14.0, 25.0),
        ("20 Mbit/s: dithered-1 over fp32", 2 * 10**7, [DITHERED], FP32, 22.0, 35.0),
    ),
    "ddp": tuple(
        (name.format(scheme), 10**9, [scheme], key, floor, aim)
        for scheme in ("nuqsgd-4", "nuqsgd-4/512")
        for name, key, floor, aim in (
            ("1 Gbit/s: step of {} over fp32", FP32, 2.5, 4.0),
            ("1 Gbit/s: step of {} over the bf16 hook", BF16, 1.5, 2.5),
        )
    ),
    "exchange, 4 threads per rank": (
        ("1 Gbit/s, 4 threads per rank: nuqsgd-4 scatter_reduce over fp32", 10**9, [SR], FP32, 5.5, 6.5),
        ("1 Gbit/s, 4 threads per rank: nuqsgd-4 scatter_reduce over bf16", 10**9, [SR], BF16, 2.9, 3.4),
    ),
    "ddp, 4 threads per rank": (
        ("1 Gbit/s, 4 threads per rank: step of nuqsgd-4 over fp32", 10**9, ["nuqsgd-4"], FP32, 3.5, 5.0),
        ("1 Gbit/s, 4 threads per rank: step of nuqsgd-4 over the bf16 hook", 10**9, ["nuqsgd-4"], BF16, 2.0, 2.8),
    ),
    "exchange, NCCL": (
        ("10 Gbit/s, NCCL: nuqsgd-4 scatter_reduce over fp32", 10**10, [SR], FP32, 6.0, 8.0),
        ("10 Gbit/s, NCCL: nuqsgd-4 scatter_reduce over bf16", 10**10, [SR], BF16, 2.7, 4.0),
    ),
    "ddp, NCCL": (),
    "fsdp, NCCL": (
        ("1 Gbit/s: step of a compressed contender over FSDP2 fp32, the best", 10**9, SHARDED, FP32, 2.5, 4.0),
        ("1 Gbit/s: step of a compressed contender over FSDP2 bf16, the best", 10**9, SHARDED, BF16, 1.5, 2.2),
        ("1 Gbit/s: with 8-bit differences over FSDP2 bf16", 10**9, SHARDED[-1:], BF16, 2.0, 3.5),
    ),
}
"""By suite and setting: name, bits per second of the links, contenders (the best counts), key, floor, aim."""


def _with_setting(document: Row) -> str:
    """A key of `NETWORK`."""
    suite, first = text_in(document, "suite"), next(iter(rows_in(document)), {})
    if first.get("device") == "cuda":
        return f"{suite}, NCCL"
    threads = number_in(first, "threads") or number_in(document.get("options"), "threads")
    return f"{suite}, 4 threads per rank" if threads == 4 else suite


def sharded_loss(document: Row) -> Outcomes:
    """The loss of sharded training over that of FSDP2 in float32, for documents with several seeds."""
    for row in rows_in(document):
        over = number_in(row, "loss_over_fp32")
        if text_in(row, "contender") in SHARDED and (number_in(row, "n_seeds") or 0) >= 3 and over is not None:
            yield outcome(f"loss of {row['contender']} ÷ FSDP2 fp32", over, 1.01, 1.002)


def network(document: Row) -> Outcomes:
    """Speed over float32 and bfloat16 on the document's link."""
    rows = rows_in(document)
    links = {row.get("rate") for row in rows}
    rate = next((bits_per_second(link) for link in links if link), None)
    for name, goal_rate, contenders, key, floor, aim in NETWORK.get(_with_setting(document), ()):
        found = [spread(row, key) for row in rows if row.get("contender") in contenders]
        values = [value for value in found if value is not None]
        if goal_rate == rate and values:
            best = (max if aim > floor else min)(values, key=lambda value: value.median)
            yield outcome(name, best, floor, aim)


OURS = "C"
SPEED_FLOORS = {"epsilon": 6.8, "susy": 5.1, "higgs": 5.1, "synth": 5.1, "poisson-synth": 5.1}
"""Speedups over SGD in float32 reported by the CA-SGD paper."""
SPEED_AIM = 15.0
GAP = (0.5, 0.1)
"""Floor and aim of the loss above that of SGD in float32, in percent."""
NCCL_SPEED, NCCL_GAP = (6.8, 20.0), (0.5, 0.05)
"""Floors and aims for every problem on ranks with GPUs, where the gap also applies to recipe D."""


def is_ours(row: Row) -> bool:
    """Whether a row is of CA-SGD in recipe C with messages."""
    return (row.get("solver"), row.get("recipe")) == ("ca_sgd", OURS) and row.get("is_floor") is not True


def fastest(rows: Sequence[Row], key: str = FP32) -> Row:
    """The row with the largest speedup."""
    return max(rows, key=lambda row: number_in(row, key) or 0.0)


def glm(document: Row) -> Outcomes:
    """For each problem, the speed of recipe C at the best s, and its loss at the worst."""
    for problem, ours in by_problem(document, is_ours):
        best = fastest(ours)
        value = spread(best, FP32)
        where = (best.get("ranks"), best.get("batch_size"), best.get("rate"))
        if value and problem in SPEED_FLOORS and where == (4, 8, None):
            name = f"{problem}: sgd fp32 ÷ ca_sgd C at the best s, {best['s']}"
            yield outcome(name, value, SPEED_FLOORS[problem], SPEED_AIM)
        worst = 100 * max(number_in(row, "loss_gap") or 0.0 for row in ours)
        yield outcome(f"{problem}: loss of ca_sgd C above sgd fp32 at the worst s, %", worst, *GAP)


RACES = {"SGDClassifier": (3.0, 8.0), "LogisticRegression(lbfgs)": (2.0, 8.0), "PoissonRegressor(lbfgs)": (2.0, 8.0)}
READ = (1.0, 5.0)
MOST_MEGABYTES = 300.0


def time_to(document: Row) -> Outcomes:
    """The race against scikit-learn's solvers, and the reading of LIBSVM files."""
    for row in rows_in(document):
        value, name = spread(row, "over_ours"), text_in(row, "contender")
        if value and name in RACES:
            what = f"{text_in(row, 'problem')}: {name} ÷ laconic, to 1 % of the optimum"
            yield outcome(what, value, *RACES[name])
    file = document.get("file") or {}
    if ratio := spread(file, "ratio_to_sklearn"):
        yield outcome("reading LIBSVM: speed over scikit-learn's", ratio, *READ)
    if (peak := number_in(file, "peak_bytes")) is not None:
        name = f"converting {file['n_bytes'] / 1e6:.0f} MB of LIBSVM: peak memory beyond the imports, MB"
        yield outcome(name, peak / 1e6, MOST_MEGABYTES, MOST_MEGABYTES)


MICROSECONDS = {"epsilon": (1.3, 1.0), "higgs": (0.6, 0.45), "wide": (2.8, 2.0)}
RATIOS: dict[str, tuple[str, float, float, Sequence[str]]] = {
    "eager fp32 SGD": ("over_eager", 20.0, 60.0, tuple(SPEED_FLOORS)),
    "graphed fp32 SGD": ("over_graphed", 4.0, 10.0, tuple(SPEED_FLOORS)),
    "jax fp32 SGD": ("over_jax", 3.0, 6.0, ("epsilon", "higgs")),
}
"""By rival: key, floor, aim, problems."""


def device(document: Row) -> Outcomes:
    """For each problem on a GPU, recipe C's speed at the best s, and its loss at the worst."""
    for problem, ours in by_problem(document, lambda row: row.get("is_ours") is True and row.get("recipe") == OURS):
        best = min(ours, key=lambda row: number_in(row, "seconds") or 0.0)
        microseconds = spread(best, "seconds", 1e6)
        if problem in MICROSECONDS and microseconds:
            yield outcome(f"{problem}: µs an iteration, {best['contender']}", microseconds, *MICROSECONDS[problem])
        for rival, (key, floor, aim, problems) in RATIOS.items():
            value = spread(best, key)
            if value and problem in problems:
                yield outcome(f"{problem}: {rival} ÷ {best['contender']}", value, floor, aim)
        gaps = [100 * gap for row in ours if (gap := number_in(row, "loss_gap")) is not None]
        if gaps and problem in SPEED_FLOORS:
            yield outcome(f"{problem}: loss of recipe C above graphed fp32 SGD, worst, %", max(gaps), *GAP)


def sweep(document: Row) -> Outcomes:
    """Time of many penalties over that of one; of many classes of sparse rows over scikit-learn's lbfgs."""
    for row in rows_in(document):
        name, problem, value = text_in(row, "contender"), text_in(row, "problem"), spread(row, "over")
        if value and name.endswith("alphas"):
            goal = (2.0, 1.3) if "cuda" in problem else (4.0, 2.0)
            yield outcome(f"{problem}: {name} ÷ {text_in(row, 'base')}", value, *goal)
        elif value and name.startswith("laconic"):
            yield outcome(f"{problem}: {name} ÷ {text_in(row, 'base')}", value, 1.0, 0.2)


BILLIONS = {
    "quantize + code": (50, 200),
    "decode + dequantize + sum": (50, 200),
    "encode symbols": (40, 150),
    "decode symbols": (60, 200),
}
"""Goals of coders in 10⁹ values per second."""


def kernels(document: Row) -> Outcomes:
    """Rotations and coders have goals of their own; all others share one, which for NUQSGD at 4 bits is higher."""
    for row in rows_in(document):
        operation, payloads, value = row["operation"], row["n_payloads"], spread(row, "ratio_to_copy")
        name = f"{row['contender']} {operation}" + (f", P = {payloads}" if payloads else "")
        goal = (0.90 if row["contender"] == "nuqsgd-4" and payloads < 4 else 0.85, 1.0)
        if str(row["contender"]).startswith("rotated"):
            goal = (0.80, 1.0) if operation == PACK else (0.70, 0.95)
        billions = number_in(row, "billions")
        if operation in BILLIONS and billions:
            yield outcome(f"{name}, 10⁹ values/s", billions, *BILLIONS[operation])
        elif value and operation != "copy":
            yield outcome(f"{name} ÷ copy", value, *goal)


RING = ("ecd nuqsgd-4 ring", "ecd nuqsgd-8 ring")
SLOW_LINK, RING_LOSS = (2.0, 4.0), (1.02, 1.005)
DIVERGED = 1e9
"""Stands for a loss that is not finite, since JSON has no infinity."""


def decentralised(document: Row) -> Outcomes:
    """Loss on a ring, and speed on a ring with one slow link."""
    for row in rows_in(document):
        if row.get("contender") in RING:
            loss = number_in(row, LOSS)
            yield outcome(f"{row['contender']}: loss ÷ fp32", DIVERGED if loss is None else loss, *RING_LOSS)
            value = spread(row, FP32)
            if row.get("slow_rate") is not None and value:
                yield outcome(f"{row['contender']}: step over fp32", value, *SLOW_LINK)


NEAR = 1.005
"""Validation loss over that of fp32 up to which they count as equal."""
BITS = {"cnn-sgd": (1.0, 0.5), "lm-adamw": (2.0, 1.2)}


def training(document: Row) -> Outcomes:
    """For each task and number of workers, the fewest bits per value with the loss of fp32."""
    for task, workers in dict.fromkeys((row["task"], row["workers"]) for row in rows_in(document)):
        here = [row for row in rows_in(document) if (row["task"], row["workers"]) == (task, workers)]
        near = [row for row in here if (number_in(row, LOSS) or DIVERGED) <= NEAR]
        if task in BITS and len(near) > 1 and here[0]["n_steps"] >= 1000:
            best = min(near, key=lambda row: row["bits"])
            name = f"{task}, {workers} workers: fewest bits within 0.5 % of fp32's loss: {best['contender']}"
            yield outcome(name, best["bits"], *BITS[task])


def ddp_loss(document: Row) -> Outcomes:
    """The loss with 4-bit NUQSGD over that of fp32."""
    for row in rows_in(document):
        over = number_in(row, LOSS)
        if text_in(row, "contender") in ("nuqsgd-4/8192", "nuqsgd-4/512"):
            yield outcome(f"loss of {row['contender']} ÷ fp32", DIVERGED if over is None else over, 1.02, 1.005)


LM_RATE, OTHERS_LM = "1gbit", ("fp32", "bf16", "bf16+bf16", "powersgd", "powersgd-32", "nothing")


def language_model(document: Row) -> Outcomes:
    """Time to fp32's loss on a slow link with the best of laconic's codecs, over float32's and over bf16 gradients'."""
    for way in dict.fromkeys(text_in(row, "way") for row in rows_in(document)):
        ours = [row for row in rows_in(document) if (row["rate"], row["way"]) == (LM_RATE, way)]
        if reached := [row for row in ours if number_in(row, "speedup") and row["contender"] not in OTHERS_LM]:
            best = fastest(reached, "speedup")
            name = f"{way} at {LM_RATE}: time to fp32's loss, {{}} ÷ {best['contender']}"
            yield outcome(name.format("fp32"), best["speedup"], 4.0, 8.0)
            if number_in(best, "speedup_over_bf16"):
                yield outcome(name.format("bf16 hook" if way == "DDP" else "bf16 gradients"), best["speedup_over_bf16"],
                              2.0, 4.0)  # fmt: skip


CLOSE = 0.3
"""A prediction is good within 30 %."""


def plan(document: Row) -> Outcomes:
    """Regret, accuracy of predictions, and how often compression was recommended where it is slower."""
    regrets = [row["regret"] for row in rows_in(document, "regrets")]
    close = [abs(row["error"]) <= CLOSE for row in rows_in(document)]
    if regrets and close:
        wrong = sum(row["wrongly"] for row in rows_in(document, "regrets"))
        yield outcome("regret, median", Spread.of(regrets), 1.15, 1.05)
        yield outcome("regret, worst", max(regrets), 1.6, 1.25)
        yield outcome("predictions within 30 %", sum(close) / len(close), 0.7, 0.9)
        yield outcome("compression recommended, yet 5 % slower than bf16", float(wrong), 0.0, 0.0)


def _ring_setting(document: Row) -> str:
    slow = ", the link of the last of 4 hosts at 10mbit among 1gbit"
    is_slow = any(row.get("slow_rate") is not None for row in rows_in(document))
    return "a ring; the loss after the same number of steps" + (slow if is_slow else "")


NETWORK_SETTING = (
    "4 ranks, on hosts of their own where a rate is emulated, 2**22 values, 2 CPU cores of an idle machine; or 16 "
    "cores, where it says 4 threads; or one H200, where it says NCCL"
)
GOALS: dict[str, tuple[str | Callable[[Row], str], Callable[[Row], Outcomes] | str]] = {
    "codec": ("2 CPU cores, 2**26 float32 values, buckets of 8192, an idle machine; ÷ copy is speed over a torch copy_",
              codec),
    "codec-error": ("gradients that the suite makes; 1, 1.5, 2, 3 and 4 bits per value",
                    "benchmarks.codec_error:outcomes"),
    "exchange": (NETWORK_SETTING, network),
    "ddp": (NETWORK_SETTING, network),
    "fsdp-loss": ("a transformer of 24 million parameters, 4 ranks, 500 steps, 3 seeds", sharded_loss),
    "fsdp": ("a transformer of 24 million parameters, 4 NCCL ranks that share one H200", network),
    "glm": ("4 ranks of one thread over loopback, batches of 8, 2 CPU cores of an idle machine", glm),
    "glm-time-to": ("581,012 rows of 54 columns, one process, 2 CPU cores of an idle machine", time_to),
    "glm-optimum": ("default estimators in one process; bundled, drawn and public data, raw and scaled columns",
                    "benchmarks.glm.optimum:outcomes"),
    "glm-device": ("one H200, batches of 32, shapes in full; ours: the fastest of recipe C, whichever s and kernel",
                   device),
    "glm-sweep": ("1,280,000 rows of 1,024 columns and 10 classes in bfloat16, one H200 or 2 CPU cores; 6,412 texts of "
                  "105 classes", sweep),
    "kernels": ("one H200, 2**28 float32 values, buckets of 8192; ÷ copy is bytes moved a second over the fastest "
                "copy's", kernels),
    "decentralised": (_ring_setting, decentralised),
    "training": ("4 and 16 simulated workers, 1000 steps, 5 seeds; mean validation loss", training),
    "ddp-loss": ("4 simulated workers, 500 steps, 5 seeds; mean validation loss of a small network", ddp_loss),
    "lm": ("4 ranks, a transformer of 25 M parameters; the best of laconic's codecs", language_model),
    "plan": ("ranks 1, 2, 4; s from 1 to 64; links of 100 Mbit/s, 1 Gbit/s and loopback; an idle machine of 2 cores",
             plan),
    "papers-ca-sgd": ("4 ranks of one thread over loopback, or of one H200 at 10 Gbit/s, and batches of 8; or one H200 "
                      "and batches of 32; the best s",
                      "benchmarks.papers.ca_sgd_claims:outcomes"),
    "papers-nuqsgd": ("CIFAR-10, ResNet-20 for 160 epochs or ResNet-110 for 100, 4 workers with mini-batches of 128, 4 "
                      "bits, buckets of 8192, mean of 3 seeds", "benchmarks.papers.nuqsgd_claims:outcomes"),
}  # fmt: skip
"""By suite: the setting of the goals, and the function that judges a document, or where it is."""


def goals_of(document: Row) -> dict[str, Any]:
    """The goals that apply to a document, as its fields "goals" and "goals_for"."""
    setting, judge = GOALS[text_in(document, "suite")]
    if isinstance(judge, str):
        module, _, name = judge.partition(":")
        judge = getattr(import_module(module), name)
    said = setting(document) if callable(setting) else setting
    return {"goals": [asdict(one) for one in judge(document)], "goals_for": said}


def goals_of_rows(suite: str, rows: Sequence[Any], **more: Any) -> dict[str, Any]:
    """`goals_of` for a run's rows, before there is a document; `more` are further fields of it."""
    return {**more, **goals_of({"suite": suite, **more, "rows": [row_fields(row) for row in rows]})}
