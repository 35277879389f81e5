"""The tables of docs/performance.md, from the results of codec, exchange, ddp, glm and the GPU suites."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from benchmarks.pages import common, summary
from benchmarks.pages.common import goals, link, load, number, origin, presented, table
from benchmarks.pages.svg import BLUE, GREEN, GREY, ORANGE, PURPLE, Curve, curves
from benchmarks.scaling import NAMES
from benchmarks.training.suite import about
from laconic.bench.ddp import LOSSES

LINKS = {"1 Gbit/s": 0.125, "10 Gbit/s": 1.25, "25 Gbit/s": 3.125, "100 Gbit/s": 12.5, "NVLink, 450 GB/s": 450.0}
"""Bandwidth per rank in GB/s."""
TENSOR_RATE = 990e12
"""Operations per second of an H200's tensor cores in bfloat16, by the vendor's data sheet."""
GLM_INTRODUCTION = """\
## Generalised linear models

Each rank has a block of the columns. SGD sums margins over ranks in every iteration; CA-SGD sums them, and the Gram
matrix of the rows, once in s iterations, and gives the same iterates. Recipe C keeps data and margins in bfloat16. *no
messages* does the same work on every rank alone: no solver of the kind can be faster. Times are the slowest rank's; CPU
time is a rank's. a9a, bike sharing, covtype and freMTPL2 have two ranks and batches of 32, the others four and 8."""

SCALING_INTRODUCTION = """\
## Scaling

Time per batch on more and more ranks, with a core each. *strong*: 2,000 columns whatever the ranks; *weak*: 256 columns
on every rank. From `sgd fp32` to `ca_sgd fp32` is what s = 32 brings, from there to C and D what precision brings; 2-D
has teams of ranks, each at a batch of its own. *plan* is the cost model's prediction, from one calibration over
loopback with four ranks. NCCL ranks share one GPU, by MPS, and talk over sockets. 4,000 rows of 2,000 columns are few:
one process, which sends nothing, is the fastest of all here."""

SCALED = dict(zip(NAMES, (GREY, ORANGE, BLUE, GREEN, PURPLE), strict=True))


def result(name: str, level: int = 0) -> str:
    """The tables of a result file, and its origin. Losses after the few timed steps are left out."""
    return f"{presented(load(name), level, without=[LOSSES])}\n\n{origin(name)}"


def ddp_loss() -> str:
    """The section on the loss under DDP, once there is a result."""
    if not existing("ddp-loss"):
        return common.NOTHING
    return f"{about(load('ddp-loss'))}\n\n{result('ddp-loss', 4)}"


def entropy() -> str:
    """The speed at which entropy coding breaks even: coding a value takes as long as sending the bits it saves."""
    rows = {(row["contender"], row["operation"]): row for row in load("codec")["rows"] if row["via"] == "coder"}
    parts = []
    for scheme in ("nuqsgd-4", "qsgdinf-8"):
        encode, decode = (rows[f"rans on {scheme}", operation] for operation in ("encode", "decode"))
        fixed, coded = float(scheme.split("-")[1]), encode["bits_per_coordinate"]
        here = 1 / (1 / encode["values_per_second"] + 1 / decode["values_per_second"])
        saved = f"{number(fixed)} → {number(coded)} bits, −{100 * (1 - coded / fixed):.0f} %"
        break_even = [number(8 * gb / (fixed - coded)) for gb in LINKS.values()]
        parts.append([f"rans on {scheme}", saved, number(here / 1e9), *break_even])
    return table(["coder", "bits per value", "one core, 10⁹ values/s", *LINKS], parts)


def glm() -> str:
    """The section on the suite `glm`, from all its result files; empty without any."""
    names = [path.stem for path in sorted(common.RESULTS.glob("glm*.json"))]
    names = [name for name in names if load(name)["suite"] not in ("glm-device", "glm-stages")]
    return "\n\n".join([GLM_INTRODUCTION, goals(*names), *(result(name, 3) for name in names)]) if names else ""


def scaling() -> str:
    """The section on the suite `scaling`, from all its result files; empty without any."""
    names = [path.stem for path in sorted(common.RESULTS.glob("scaling*.json"))]
    images = "\n".join(f"![{title}](figures/{file})" for file, (title, _) in scaling_figures().items())
    drawn = f'<div class="figures" markdown>\n\n{images}\n\n</div>'
    parts = [SCALING_INTRODUCTION, drawn, plan_ratios(), *(result(name, 3) for name in names)]
    return "\n\n".join(parts) if names else ""


def plan_ratios() -> str:
    """Errors of predictions by column, over all ranks, links and both kinds of scaling."""
    found: dict[str, list[float]] = {}
    for row in load("scaling-16-cores")["rows"]:
        if row["predicted"] is not None:
            found.setdefault(row["column"], []).append(row["predicted"] / row["seconds"]["median"])
    rows = [[name, *map(number, (median(of), min(of), max(of)))] for name, of in found.items()]
    return table(["plan ÷ measured", "median", "least", "most"], rows)


def scaling_figures() -> dict[str, tuple[str, str]]:
    """Figures by file name, (title, SVG): time per batch against ranks, measured and predicted (dashed)."""
    found = {}
    for path in sorted(common.RESULTS.glob("scaling*.json")):
        rows = load(path.stem)["rows"]
        for kind, rate in dict.fromkeys((row["kind"], row["rate"]) for row in rows if row["ranks"] > 1):
            where = [row for row in rows if row["kind"] == kind and (row["ranks"] == 1 or row["rate"] == rate)]
            shown = [curve for name, colour in SCALED.items() for curve in _scaled(where, name, colour)]
            ranks = sorted({row["ranks"] for row in where})
            title = f"{kind}, {link(rate)}, {'NCCL ranks on one GPU' if rows[0]['device'] else 'CPU ranks'}"
            file = f"{path.stem}-{kind}-{rate or 'loopback'}.svg"
            drawing = curves(title, "ranks", "µs per batch", shown, x_log=True, y_log=True, dots=True, x_ticks=ranks)
            found[file] = title, drawing
    return found


def _scaled(rows: Sequence[common.Document], name: str, colour: str) -> list[Curve]:
    """A contender's time in µs by ranks, and its prediction, if any."""
    own = [row for row in rows if row["column"] == name]
    measured = [(row["ranks"], 1e6 * row["seconds"]["median"]) for row in own]
    planned = [(row["ranks"], 1e6 * row["predicted"]) for row in own if row["predicted"] is not None]
    plan = Curve("plan" if name == NAMES[-1] else "", colour, planned, "3 3")
    return [Curve(name, colour, measured), *([plan] if planned else [])]


def figures() -> dict[str, str]:
    """Figures by file name, as SVG."""
    return {file: drawing for file, (_, drawing) in scaling_figures().items()}


def gpu_floors() -> str:
    """For each problem, the least time to read and compute an iteration of Recipe C, and the measured time."""
    copy = next(row for row in load("kernels-h200")["rows"] if row["operation"] == "copy")["gb_per_second"] * 1e9
    found, rows = load("glm-h200")["rows"], []
    for problem in dict.fromkeys(row["problem"] for row in found):
        ours = [row for row in found if row["problem"] == problem and row["is_ours"] and row["recipe"] == "C"]
        best = min(ours, key=lambda row: row["seconds"]["median"])
        b, n, s = best["batch_size"], best["n_features"], best["s"]
        n_bytes, operations = 2 * b * n, s * b * b * n if best["solver"] == "ca_sgd" else 4 * b * n
        rows.append(
            [
                problem,
                best["contender"],
                f"{n_bytes / 1e3:.4g} KB, {1e6 * n_bytes / copy:.2g} µs",
                f"{operations / 1e6:.3g} M, {1e6 * operations / TENSOR_RATE:.2g} µs",
                f"{1e6 * best['seconds']['median']:.3g} µs",
            ]
        )
    read, computed = "rows read once, at the copy's rate", "products, at 990 · 10¹² per second"
    return table(["problem", "fastest", read, computed, "measured"], rows)


def existing(*names: str) -> list[str]:
    """The names that have a result file."""
    return [name for name in names if (common.RESULTS / f"{name}.json").exists()]


def found_goals(*names: str) -> str:
    """Goals of the existing result files."""
    return goals(*existing(*names))


CORES = ("exchange-16-cores", "ddp-16-cores")
NCCL = ("exchange-nccl-10gbit", "exchange-nccl-1gbit", "ddp-nccl", "ddp-nccl-8")
RATES = ("1gbit", "100mbit", "20mbit", "unlimited")
WRITERS: dict[str, Callable[[], str]] = {
    **{name: partial(summary.measured, lines) for name, lines in summary.SECTIONS.items()},
    "codec goals": partial(goals, "codec"),
    "codec": partial(result, "codec"),
    "entropy": entropy,
    "network goals": partial(goals, *(f"exchange-{rate}" for rate in RATES), "ddp-1gbit"),
    **{f"exchange {rate}": partial(result, f"exchange-{rate}") for rate in RATES},
    "ddp": partial(result, "ddp-1gbit"),
    "ddp loss": ddp_loss,
    "cores goals": partial(found_goals, *CORES, "exchange-nccl-10gbit"),
    "cores": lambda: "\n\n".join(map(result, existing(*CORES))),
    "nccl": lambda: "\n\n".join(map(result, existing(*NCCL))),
    "fsdp goals": partial(found_goals, "fsdp-1gbit", "fsdp-loss"),
    "fsdp": partial(result, "fsdp-1gbit"),
    "fsdp loss": partial(result, "fsdp-loss"),
    "fsdp memory": partial(result, "fsdp-memory"),
    "glm": glm,
    "scaling": scaling,
    "gpu goals": partial(goals, "glm-h200", "kernels-h200"),
    "gpu kernels": partial(result, "kernels-h200"),
    "gpu floors": gpu_floors,
    "gpu stages": partial(result, "glm-stages-h200", 4),
    "gpu glm": partial(result, "glm-h200", 4),
}
"""Functions that write sections of a page, by the name of the marker."""
