"""The figures of docs/papers.md, from the documents of `python -m benchmarks papers`."""

from collections.abc import Mapping, Sequence
from statistics import mean

from benchmarks.pages.figures import BLUE, GREEN, GREY, ORANGE, PURPLE
from benchmarks.pages.plots import Curve, bars, curves

METHODS = {"fp32": GREY, "nuqsgd": BLUE, "qsgd": ORANGE, "qsgdinf": GREEN, "ef-sign": PURPLE}
RECIPES = {"fp32": ORANGE, "C": BLUE, "D": GREEN}
PUBLISHED_SPEED = (5.1, 6.8, "published: 5.1 to 6.8")
Drawn = dict[str, tuple[str, str]]
"""By the name of the file: a title, and the drawing."""


def drawn(group: str, runs: Sequence[Mapping]) -> Drawn:
    """All figures of a group of runs that differ in their seed alone."""
    return ca_sgd(group, runs[0]) if group.startswith("papers-ca-sgd") else nuqsgd(group, runs)


def ca_sgd(group: str, made: Mapping) -> Drawn:
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
        lanes = [Curve(baseline, GREY, _points(base["curve"][1:], "seconds", "loss"))]
        for name in recipes:
            row = _fastest(made, problem, name)
            lanes.append(Curve(f"{name}, s = {row['s']}", RECIPES[name], _points(row["curve"][1:], "seconds", "loss")))
        title = f"{problem}: loss over time"
        found[f"{group}-{problem}.svg"] = title, curves(title, "seconds", "loss", lanes, x_log=True)
    return found


def nuqsgd(group: str, runs: Sequence[Mapping]) -> Drawn:
    """Variance, loss and accuracy of the first run over its iterations; accuracy at the end over all seeds, if many."""
    rows = runs[0]["rows"]
    lossy = [row for row in rows if not row["baseline"]]
    network = rows[0]["problem"].split()[-1].replace("resnet", "ResNet")
    titles = [f"{network}: variance at fp32's gradients", f"{network}: training loss", f"{network}: test accuracy"]
    kinds = ["variance", "loss", "accuracy"]
    drawings = [
        curves(titles[0], "iterations", "E‖Q(g) − g‖² ÷ ‖g‖²", _lanes(lossy, "variance_at_fp32"), y_log=True),
        curves(titles[1], "iterations", "cross entropy", _lanes(rows, "loss", after_start=True)),
        curves(titles[2], "iterations", "%", _lanes(rows, "accuracy", 100.0)),
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
        drawings.append(bars(titles[-1], "bits a coordinate", sizes, names))
    return {f"{group}-{kind}.svg": shown for kind, *shown in zip(kinds, titles, drawings, strict=True)}


def _lanes(rows: Sequence[Mapping], key: str, factor: float = 1.0, after_start: bool = False) -> list[Curve]:
    return [
        Curve(row["contender"], METHODS[row["method"]], _points(row["curve"][after_start:], "iteration", key, factor))
        for row in rows
    ]


def _points(curve: Sequence[Mapping], x: str, y: str, factor: float = 1.0) -> list[tuple[float, float]]:
    return [(point[x], factor * point[y]) for point in curve if point.get(y) is not None]


def _is_ours(row: Mapping, recipe: str) -> bool:
    return row["solver"] == "ca_sgd" and row["recipe"] == recipe


def _fastest(made: Mapping, problem: str, recipe: str) -> Mapping:
    own = [row for row in made["rows"] if row["problem"] == problem and _is_ours(row, recipe)]
    return max(own, key=lambda row: row["speedup_over_fp32"]["median"])
