"""Summary of the measurements, one line each, for README.md and the beginning of docs/performance.md.

Goals are looked up by prefix, since their names end in the fastest s.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.pages.common import RESULTS, load, table

PROBLEMS = ("epsilon", "susy", "higgs", "synth", "poisson-synth")
SHOWN = {"fp32": "float32", "nuqsgd-4/8192": "NUQSGD", "qsgdinf-4/8192": "QSGDInf", "qsgd-4/8192": "QSGD",
         "dithered-0.5": "Dithered(0.5)"}  # fmt: skip
"""Methods whose accuracy and variance are shown."""


@dataclass(frozen=True)
class Line:
    """A line of the summary: what was measured, the function that formats it, and the files it is from."""

    what: str
    measured: Callable[[], str]
    files: tuple[str, ...]

    def cells(self) -> list[str]:
        return [self.what, self.measured(), "<br>".join(f"`{file}`" for file in self.files)]


def digits(x: float) -> str:
    return f"{x:.2f}" if x < 2 else f"{x:.1f}" if x < 20 else f"{x:.0f}"


def goal(file: str, begin: str) -> float:
    (found,) = (g for g in load(file)["goals"] if g["name"].startswith(begin))
    return float(found["value"]["median"])


def times(file: str, *begins: str) -> str:
    """Speed ratios, one per goal."""
    return " / ".join(f"{digits(goal(file, begin))}×" for begin in begins)


def plain(file: str, *begins: str) -> str:
    return " / ".join(digits(goal(file, begin)) for begin in begins)


def slow_link(*graphs: str) -> str:
    rows = {row["contender"]: row["speedup_over_fp32"]["median"] for row in load("decentralised-slow-link")["rows"]}
    return " / ".join(f"{digits(rows[f'ecd nuqsgd-4 {graph}'])}×" for graph in graphs)


def casgd_ranks(problems: tuple[str, ...]) -> str:
    (s,) = {g["name"].split()[-1] for g in load("glm")["goals"] for p in problems if _best(g["name"], p)}
    found = [g["value"]["median"] for p in problems for g in load("glm")["goals"] if _best(g["name"], p)]
    return f"{', '.join(f'{x:.0f}×' for x in found)} (s = {s})"


def _best(name: str, problem: str) -> bool:
    return name.startswith(f"{problem}: sgd fp32 ÷ ca_sgd C at the best s")


def worst_gap(file: str) -> str:
    found = [g["value"]["median"] for g in load(file)["goals"] if ": loss of " in g["name"]]
    return f"{max(map(abs, found)):.1g} %"


def paper_speeds() -> str:
    found = [
        g["value"]["median"]
        for g in load("papers-ca-sgd-h200")["goals"]
        if ": graphed fp32 SGD ÷ ca_sgd C" in g["name"]
    ]
    return ", ".join(f"{digits(x)}×" for x in found)


def by_method(file: str, key: str, write: Callable[[float], str]) -> str:
    """Names of the methods that were run, each with its value under this key."""
    rows = {row["contender"]: row for row in load(file)["rows"]}
    known = [(label, rows[name][key]) for name, label in SHOWN.items() if rows.get(name, {}).get(key) is not None]
    return ", ".join(f"{label} {write(value)}" for label, value in known)


def resnet() -> list[Line]:
    """Accuracy and variance of ResNet-20, once there is a result, from the one with the most runs."""
    found = {path.stem: load(path.stem)["rows"] for path in sorted(RESULTS.glob("papers-nuqsgd-resnet20*.json"))}
    if not found:
        return []
    file, rows = max(found.items(), key=lambda one: sum(len(row["seeds"]) for row in one[1]))
    first, seeds = rows[0], sorted({len(row["seeds"]) for row in rows})
    said = f"ResNet-20 on CIFAR-10, {first['n_epochs']} epochs, 4 simulated workers, {first['precision']}, {seeds[0]}"
    said += f" to {seeds[-1]} seeds" if len(seeds) > 1 else " seeds"
    return [
        line(f"{said}: test accuracy", partial(by_method, key="accuracy", write=lambda x: f"{100 * x:.2f} %"), file),
        line("normalised variance on the same gradients there",
             partial(by_method, key="variance_at_fp32", write=digits), file),
    ]  # fmt: skip


def trained(task: str) -> str:
    """Loss over that of fp32 with 4 workers."""
    rows = {row["contender"]: row for row in load("training")["rows"] if (row["task"], row["workers"]) == (task, 4)}
    found = [rows[f"nuqsgd-4/{size}"] for size in (8192, 512)]
    return " / ".join(f"{row['loss_over_fp32']:.3f} ± {row['ratio_error']:.3f}" for row in found)


def by_bucket(file: str) -> str:
    """Speed of 4-bit NUQSGD over a float32 and a bfloat16 all-reduce, in buckets of 8192 and of 512."""
    rows = {row["contender"]: row for row in load(file)["rows"]}
    found = [rows[f"{name} scatter_reduce"] for name in ("nuqsgd-4", "nuqsgd-4/512")]
    return "; ".join(
        " / ".join(f"{digits(row[f'speedup_over_{name}']['median'])}×" for row in found) for name in ("fp32", "bf16")
    )


def line(what: str, measured: Callable[..., str], file: str, *asked: str) -> Line:
    return Line(what, partial(measured, file, *asked), (file,))


ON_TWO_CORES = [
    line("4-bit NUQSGD quantize + pack, speed ÷ a plain `copy_` of the same array", plain, "codec",
         "nuqsgd-4 quantize + pack"),
    line("unpack + dequantize + add, the same ratio", plain, "codec", "nuqsgd-4 unpack + dequantize + add"),
    Line("RANS on those symbols: bits ÷ entropy", lambda: f"{goal('codec', 'rans bits a coordinate'):.3f}", ("codec",)),
    line("average over 4 ranks at 1 Gbit/s, 4-bit NUQSGD in buckets of 8192 / 512: speed-up over a float32; over a "
         "bfloat16 all-reduce", by_bucket, "exchange-1gbit"),
    line("at 100 Mbit/s, buckets of 8192, with RANS, over float32", times, "exchange-100mbit",
         "100 Mbit/s: best of nuqsgd-4"),
    line("at 20 Mbit/s, buckets of 8192, with RANS, over float32", times, "exchange-20mbit",
         "20 Mbit/s: nuqsgd-4-rans"),
    line("over loopback, buckets of 8192 / 512: over float32; over bfloat16", by_bucket, "exchange-unlimited"),
    line("a training step of 4.2 M parameters at 1 Gbit/s, buckets of 512: speed-up over DDP / over PyTorch's bf16 "
         "hook", times, "ddp-1gbit",
         *(f"1 Gbit/s: step of nuqsgd-4/512 over {other}" for other in ("fp32", "the bf16 hook"))),
    Line("an iteration of logistic SGD on 4 ranks, epsilon's 2000 columns, batches of 8: float32 SGD ÷ CA-SGD in "
         "Recipe C", lambda: casgd_ranks(PROBLEMS[:1]), ("glm",)),
    Line("the same for SUSY, HIGGS, synth and Poisson-synth shapes", lambda: casgd_ranks(PROBLEMS[1:]), ("glm",)),
    line("loss of Recipe C from that of float32 SGD after the same batches, worst of the five", worst_gap, "glm"),
    line("covtype in one process, to 1 % of the optimum: `SGDClassifier` ÷ ours / `LogisticRegression` (lbfgs) ÷ ours; "
         "ours stops within the first epoch, which `SGDClassifier` cannot",
         times, "glm-time-to", "covtype: SGDClassifier", "covtype: LogisticRegression"),
    line("reading LIBSVM, speed ÷ scikit-learn's", times, "glm-time-to", "reading LIBSVM"),
    Line("`laconic plan`: time of the recommended option ÷ the fastest measured, median / worst",
         lambda: f"{goal('plan', 'regret, median'):.2f} / {goal('plan', 'regret, worst'):.2f}", ("plan",)),
    Line("a step with one link of 10 Mbit/s among 1 Gbit/s, 4-bit ECD-PSGD on a ring / a star ÷ float32 all-reduce",
         lambda: slow_link("ring", "star"),
         ("decentralised-slow-link",)),
]  # fmt: skip
ON_H200 = [
    *(Line(f"validation loss of {what} after {{n_steps}} steps in 4-bit NUQSGD ÷ float32's, buckets of 8192 / 512, "
           "± standard error over {n_seeds} seeds".format_map(load("training")["rows"][0]), partial(trained, task),
           ("training",))
      for task, what in (("cnn-sgd", "a convolutional network under SGD"), ("lm-adamw", "a transformer under AdamW"))),
    line("4-bit NUQSGD quantize + pack, bytes moved a second ÷ the fastest copy's", plain, "kernels-h200",
         "nuqsgd-4 quantize + pack"),
    line("unpack + dequantize + sum of 1 / 4 / 8 payloads, the same ratio", plain, "kernels-h200",
         *(f"nuqsgd-4 unpack + dequantize + sum, P = {p}" for p in (1, 4, 8))),
    line("`Dithered` at error 0.25, quantize + code / decode + sum of 1 / of 8 payloads, 10⁹ values a second", plain,
         "kernels-h200", "dithered-0.25 quantize + code",
         *(f"dithered-0.25 decode + dequantize + sum, P = {p}" for p in (1, 8))),
    line("RANS on 4-bit NUQSGD, encode / decode, 10⁹ symbols a second", plain, "kernels-h200",
         "rans on nuqsgd-4 encode", "rans on nuqsgd-4 decode"),
    Line("Recipe C on 400,000 × 2000 / 11,000,000 × 28 / 100,000 × 32,768, an iteration",
         lambda: plain("glm-h200", *(f"{p}: µs an iteration" for p in ("epsilon", "higgs", "wide"))) + " µs",
         ("glm-h200",)),
    line("the first two: float32 SGD in a CUDA graph ÷ ours", times, "glm-h200",
         "epsilon: graphed fp32 SGD", "higgs: graphed fp32 SGD"),
    line("the same for a JAX loop, compiled", times, "glm-h200", "epsilon: jax fp32 SGD", "higgs: jax fp32 SGD"),
    Line("the CA-SGD paper's problems, epsilon, SUSY, HIGGS, synth and Poisson-synth: float32 SGD in a CUDA graph ÷ "
         "CA-SGD in Recipe C (the paper, on A100s: 5.1 to 6.8)", paper_speeds, ("papers-ca-sgd-h200",)),
    line("loss of Recipe C from that of float32 SGD there, worst of the five (the paper: within 0.5 %)", worst_gap,
         "papers-ca-sgd-h200"),
    *resnet(),
]  # fmt: skip
SECTIONS = {"two cores": ON_TWO_CORES, "H200": ON_H200}


def measured(lines: list[Line]) -> str:
    return table(["what", "measured", "from"], [one.cells() for one in lines])
