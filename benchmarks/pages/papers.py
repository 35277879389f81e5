"""The tables and figures of docs/papers.md, from the files benchmarks/results/papers-*.json.

Runs that differ in nothing but their seed, `papers-nuqsgd-NAME.json` and `papers-nuqsgd-NAME-seed1.json`, share a
section.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from statistics import mean

from benchmarks.pages import common
from benchmarks.pages.common import Document, number, origin, presented, table
from benchmarks.pages.svg import BLUE, GREEN, GREY, ORANGE, PURPLE, Curve, bars, curves

SUITES = ("papers-ca-sgd", "papers-nuqsgd")
PUBLISHED_TITLES = ("Published and measured", "Where in the papers, and what differs")
METHODS = {"fp32": GREY, "nuqsgd": BLUE, "qsgd": ORANGE, "qsgdinf": GREEN, "ef-sign": PURPLE}
RECIPES = {"fp32": ORANGE, "C": BLUE, "D": GREEN}
PUBLISHED_SPEED = (5.1, 6.8, "published: 5.1 to 6.8")
Drawn = dict[str, tuple[str, str]]
"""By the name of the file: a title, and the drawing."""
NOTHING = "No results of this suite are committed yet."
SEED = re.compile(r"-seed\d+$")


def percent(x: float | None, digits: int = 3) -> str:
    return "–" if x is None else f"{100 * x:z.{digits}f}"


def over_seeds(xs: Sequence[float | None], write: Callable[[float], str] = number) -> str:
    """The mean, and from where to where they go; one that has diverged leaves none."""
    found = [x for x in xs if x is not None]
    if len(found) < len(xs):
        return "–"
    low, high, middle = write(min(found)), write(max(found)), write(mean(found))
    return middle if low == high else f"{middle} ({low} to {high})"


def with_unit(x: str, unit: str) -> str:
    return x if x == "–" else f"{x} {unit.strip()}".strip()


def sentence(words: str) -> str:
    return words[0].upper() + words[1:]


def published(runs: Sequence[Document]) -> str:
    """The paper's figures beside ours."""
    claims = list(zip(*(made["published"] for made in runs), strict=True))
    rows = [
        [
            same[0]["what"],
            with_unit(same[0]["published"] if isinstance(same[0]["published"], str) else number(same[0]["published"]),
                      same[0]["unit"]),
            with_unit(over_seeds([claim["measured"] for claim in same]), same[0]["unit"]),
            holds([claim["holds"] for claim in same]),
        ]
        for same in claims
    ]  # fmt: skip
    return table(["what", "published", "here", "holds"], rows)


def holds(found: Sequence[bool | None]) -> str:
    """Yes or no; with several seeds, in how many."""
    if None in found:
        return "–"
    if len(set(found)) == 1:
        return "yes" if found[0] else "no"
    return f"in {sum(map(bool, found))} of {len(found)}"


def nuqsgd(runs: Sequence[Document]) -> list[str]:
    by_method = list(zip(*(made["rows"] for made in runs), strict=True))
    cells = [
        [
            same[0]["contender"],
            *(over_seeds([row[key] for row in same]) for key in ("variance_at_fp32", "variance")),
            number(same[0]["bound"]),
            over_seeds([row["loss"] for row in same]),
            over_seeds([row["accuracy"] for row in same], lambda x: percent(x, 1)),
            number(mean(row["seconds_per_epoch"] for row in same)),
            number(same[0]["bytes_sent"] / 1e3),
        ]
        for same in by_method
    ]
    headings = [
        *["method", "variance at fp32's gradients", "in its own run", "bound", "training loss", "test accuracy, %"],
        *["s per epoch", "kB per message"],
    ]
    coded = [same for same in by_method if same[0]["bits_by_coder"]]
    names = list(coded[0][0]["bits_by_coder"]) if coded else []
    bits = [
        [
            same[0]["contender"],
            *(number(mean(row["bits_by_coder"][name] for row in same)) for name in names),
            number(mean(row["entropy"] for row in same)),
        ]
        for same in coded
    ]
    return [
        table(headings, cells),
        "Bits per coordinate by coder, norms and headers included, on the gradients of the full-precision run:",
        table(["method", *names, "entropy"], bits),
    ]


def heading(suite: str, runs: Sequence[Document]) -> str:
    first = runs[0]["rows"][0]
    if suite == "papers-ca-sgd":
        kind = "a CPU" if first["device"] == "cpu" else "GPUs"
        return "One GPU" if first["ranks"] == 1 else f"{first['ranks']} ranks on {kind}"
    network = first["problem"].split()[-1].replace("resnet", "ResNet")
    seeds = [str(made["options"]["seed"]) for made in runs]
    shown = f"{network}, {first['ranks']} workers with batches of {first['batch_size']}"
    return shown + (f", seeds {', '.join(seeds)}" if len(seeds) > 1 else "")


def groups(suite: str) -> dict[str, list[str]]:
    """Names of result files, those of other seeds beside the first."""
    found: dict[str, list[str]] = {}
    for path in sorted(common.RESULTS.glob(f"{suite}*.json"), key=lambda path: path.stem):
        found.setdefault(SEED.sub("", path.stem), []).append(path.stem)
    return found


def section(suite: str) -> str:
    """Every result of a suite, one after another."""
    parts: list[str] = []
    for group, names in groups(suite).items():
        runs = [common.load(name) for name in names]
        images = [f"![{title}](figures/{name})" for name, (title, _) in drawn(group, runs).items()]
        parts += [f"### {heading(suite, runs)}", sentence(runs[0]["about"]), published(runs)]
        parts += ['<div class="figures" markdown>\n\n' + "\n".join(images) + "\n\n</div>"]
        shown = nuqsgd(runs) if suite == "papers-nuqsgd" else [presented(runs[0], 4, PUBLISHED_TITLES)]
        parts += [*shown, origin(*names)]
    return "\n\n".join(parts) or NOTHING


def figures() -> dict[str, str]:
    """Every figure's file, and the drawing."""
    return {
        name: drawing
        for suite in SUITES
        for group, names in groups(suite).items()
        for name, (_, drawing) in drawn(group, [common.load(name) for name in names]).items()
    }


def drawn(group: str, runs: Sequence[Document]) -> Drawn:
    """All figures of a group of runs that differ in their seed alone."""
    return _ca_sgd_figures(group, runs[0]) if group.startswith("papers-ca-sgd") else _nuqsgd_figures(group, runs)


def _ca_sgd_figures(group: str, made: Document) -> Drawn:
    """Speed beside the published one, then each problem's loss against seconds."""
    problems = list(dict.fromkeys(row["problem"] for row in made["rows"]))
    baseline = made["rows"][0]["contender"]
    recipes = [name for name in RECIPES if any(_is_ours(row, name) for row in made["rows"])]
    speeds = [
        (problem, [_fastest(made, problem, name)["speedup_over_fp32"]["median"] for name in recipes])
        for problem in problems
    ]
    title = "Speed of CA-SGD at its best s"
    names = [(f"CA-SGD, {name}", RECIPES[name]) for name in recipes]
    found = {f"{group}-speed.svg": (title, bars(title, f"× {baseline}", speeds, names, PUBLISHED_SPEED))}
    for problem in problems:
        base = next(row for row in made["rows"] if row["problem"] == problem and row["baseline"])
        shown = [Curve(baseline, GREY, _points(base["curve"][1:], "seconds", "loss"))]
        for name in recipes:
            row = _fastest(made, problem, name)
            shown.append(Curve(f"{name}, s = {row['s']}", RECIPES[name], _points(row["curve"][1:], "seconds", "loss")))
        title = f"{problem}: loss over time"
        found[f"{group}-{problem}.svg"] = title, curves(title, "seconds", "loss", shown, x_log=True)
    return found


def _nuqsgd_figures(group: str, runs: Sequence[Document]) -> Drawn:
    """Variance, loss and accuracy of the first run over its iterations; accuracy at the end over all seeds, if many."""
    rows = runs[0]["rows"]
    lossy = [row for row in rows if not row["baseline"]]
    network = rows[0]["problem"].split()[-1].replace("resnet", "ResNet")
    titles = [f"{network}: variance at fp32's gradients", f"{network}: training loss", f"{network}: test accuracy"]
    kinds = ["variance", "loss", "accuracy"]
    drawings = [
        curves(titles[0], "iterations", "E‖Q(g) − g‖² ÷ ‖g‖²", _curves(lossy, "variance_at_fp32"), y_log=True),
        curves(titles[1], "iterations", "cross entropy", _curves(rows, "loss", after_start=True)),
        curves(titles[2], "iterations", "%", _curves(rows, "accuracy", 100.0)),
    ]
    coded = [row for row in lossy if row["bits_by_coder"]]
    if coded:
        names = list(zip(coded[0]["bits_by_coder"], (GREY, ORANGE, GREEN, BLUE), strict=False))
        sizes = [
            (same[0]["contender"], [mean(row["bits_by_coder"][name] for row in same) for name, _ in names])
            for same in zip(*(made["rows"] for made in runs), strict=True)
            if same[0]["bits_by_coder"]
        ]
        titles.append(f"{network}: size by coder")
        kinds.append("bits")
        drawings.append(bars(titles[-1], "bits per coordinate", sizes, names))
    made = zip(kinds, titles, drawings, strict=True)
    return {f"{group}-{kind}.svg": (title, drawing) for kind, title, drawing in made}


def _curves(rows: Sequence[Document], key: str, factor: float = 1.0, after_start: bool = False) -> list[Curve]:
    return [
        Curve(row["contender"], METHODS[row["method"]], _points(row["curve"][after_start:], "iteration", key, factor))
        for row in rows
    ]


def _points(curve: Sequence[Document], x: str, y: str, factor: float = 1.0) -> list[tuple[float, float]]:
    return [(point[x], factor * point[y]) for point in curve if point.get(y) is not None]


def _is_ours(row: Document, recipe: str) -> bool:
    return bool(row["solver"] == "ca_sgd" and row["recipe"] == recipe)


def _fastest(made: Document, problem: str, recipe: str) -> Document:
    own = [row for row in made["rows"] if row["problem"] == problem and _is_ours(row, recipe)]
    return max(own, key=lambda row: row["speedup_over_fp32"]["median"])


WRITERS: dict[str, Callable[[], str]] = {suite: partial(section, suite) for suite in SUITES}
