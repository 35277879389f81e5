"""The tables and figures of docs/papers.md, from benchmarks/results/{papers-*,sensitivity,imagenet*}.json.

The claims table comes first: one line per claim, for all its problems. Documents from before verdicts had two sides are
judged again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean

from benchmarks.pages import common
from benchmarks.pages.common import Document, number, origin, presented, table
from benchmarks.pages.svg import BLUE, GREEN, GREY, ORANGE, PURPLE, Curve, bars, curves
from benchmarks.papers import ca_sgd_claims, nuqsgd_claims
from benchmarks.papers.claims import BEYOND, HOLDS, NO, Claim
from benchmarks.training.run import PAPER

SUITES = ("papers-ca-sgd", "papers-nuqsgd")
CLAIMS = {"papers-ca-sgd": ca_sgd_claims.claims, "papers-nuqsgd": nuqsgd_claims.claims}
PUBLISHED_TITLES = ("Published and measured", "Where in the papers, and what differs")
COLOURS = (GREY, BLUE, "#c2255c", GREEN, PURPLE, "#8d6e4b", ORANGE, "#5c940d", "#f06595", "#0b7285")
METHODS = dict(zip(("fp32", *PAPER), COLOURS, strict=False))
RECIPES = {"fp32": ORANGE, "C": BLUE, "D": GREEN}
WORKERS = 4, 128
"""Workers and images of each, of most runs of the NUQSGD suite."""
PUBLISHED_SPEED = (5.1, 6.8, "published: 5.1 to 6.8")
Drawn = dict[str, tuple[str, str]]
"""Figures by file name: (title, SVG)."""
WORST_FIRST = (NO, HOLDS, BEYOND)


def names(suite: str) -> list[str]:
    """Names of a suite's result files."""
    return sorted(path.stem for path in common.RESULTS.glob(f"{suite}*.json"))


def claims_table(only: Sequence[str] = ()) -> str:
    """The table of claims, by default all: published, ours, verdict and run of each, from its most reliable run.

    Other runs are named where their verdict differs; below the table, every "no" is explained.
    """
    lines: dict[str, list[Line]] = {}
    for suite in SUITES:
        for line in (line for name in names(suite) for line in _lines(suite, name)):
            if not only or any(words in line.what for words in only):
                lines.setdefault(line.what, []).append(line)
    if not lines:
        return common.NOTHING
    best = [sorted(same, key=lambda line: line.weight, reverse=True) for same in lines.values()]
    heads = ["claim", "published", "ours", "counts as the same", "verdict", "run"]
    made = table(heads, [first.cells(others) for first, *others in best])
    refused: dict[str, list[str]] = {}
    for first, *others in best if not only else ():
        named = [(first, first.what), *((o, f"{o.what} ({o.where})") for o in others if o.verdict != first.verdict)]
        for line, claim in named:
            if line.verdict == NO:
                refused.setdefault(line.why, []).append(claim)
    explained = [f"**No: {'; '.join(claims)}.** {why[:1].upper()}{why[1:]}" for why, claims in refused.items()]
    return "\n\n".join([made, *explained])


def from_precision(name: str = "papers-ca-sgd-h200") -> str:
    """The range of Recipe C's speed over CA-SGD in float32, for a run's problems."""
    (found,) = (line.ours for line in _lines("papers-ca-sgd", name) if line.what.startswith("of that, from precision"))
    return found


@dataclass(frozen=True, slots=True)
class Line:
    """A claim of one document, for all its problems.

    name    of its file
    where   short name of the run
    weight  sort key of the run, the largest is shown: epochs for a loss, seeds, and the lower speedup
    """

    what: str
    n_problems: int
    published: str
    ours: str
    verdict: str
    width: str
    why: str
    name: str
    where: str
    run: str
    weight: tuple[float, ...]

    def cells(self, others: "Sequence[Line]") -> list[str]:
        what = f"{self.what} ({self.n_problems} problems)" if self.n_problems > 1 else self.what
        differ = [f"; {one.where}: {one.verdict}" for one in others if one.verdict not in (self.verdict, "–")]
        verdict = self.verdict + "".join(differ)
        return [what, self.published, self.ours, self.width, verdict, f"{self.run} (`{self.name}`)"]


def _lines(suite: str, name: str) -> Iterator[Line]:
    document = common.load(name)
    claims, groups = CLAIMS[suite](document), dict[str, list[Claim]]()
    for claim in claims:
        problem, colon, what = claim.what.partition(": ")
        groups.setdefault(what if colon and problem == claim.problem else claim.what, []).append(claim)
    row = document["rows"][0]
    epochs, seeds = row.get("n_epochs") or 0, len(row.get("seeds", ()))
    speeds = [claim.measured or 0.0 for claim in claims if (claim.unit, claim.better) == ("×", "more")]
    for what, same in groups.items():
        first, verdicts = same[0], [claim.verdict for claim in same]
        worst = next((verdict for verdict in WORST_FIRST if verdict in verdicts), "–")
        published, width = _with_unit(first.published, first.unit), first.holds_for if worst != "–" else ""
        weight = (not published.startswith("not "), epochs if "loss" in what else 0, seeds, -mean(speeds or [0.0]))
        run = name, _where(row), ", ".join(filter(None, [_length(document["rows"]), first.seeds]))
        yield Line(what, len(same), published, _range(same), worst, width, first.why, *run, weight)


def _with_unit(x: float | str | None, unit: str) -> str:
    said = x if isinstance(x, str) else number(round(x, 2) if unit == "points" and x is not None else x)
    return said if said == "–" or said.startswith("not ") else f"{said} {unit.strip()}".strip()


def _range(same: Sequence[Claim]) -> str:
    found = sorted(claim.measured for claim in same if claim.measured is not None)
    if not found:
        return "diverged"
    low, high = (_with_unit(x, same[0].unit) for x in (found[0], found[-1]))
    return low if low == high else f"{low.removesuffix(same[0].unit).strip()} to {high}"


def _where(row: Document) -> str:
    """Short name of a run: a network with what sets its run apart, or the number and kind of ranks."""
    if "workers" in row:
        many = row["workers"], row["batch_size"]
        other = "" if many == WORKERS else " on {} × {} images".format(*many)
        return f"{row['problem'].split()[-1]}{other} at rate {row.get('learning_rate', 0.1):g}, {row['precision']}"
    kind = "NCCL ranks" if row.get("device") == "cuda" else "ranks"
    return "one GPU" if kind != "ranks" and row["ranks"] == 1 else f"{row.get('ranks')} {kind}"


def _length(rows: Sequence[Document]) -> str:
    """`_where`, and the length of the run."""
    row = rows[0]
    if "workers" in row:
        many = f"{n} seeds" if (n := len(row["seeds"])) > 1 else "one seed"
        return f"{_where(row)}, {row['n_epochs']} epochs, {many}"
    passes = sorted(one.get("n_epochs") or 0.0 for one in rows)
    length = f"{passes[0]:.3g} to {passes[-1]:.3g} epochs" if passes[0] else f"{row['n_iterations']} iterations"
    return f"{_where(row)}, {length}"


def published(suite: str, document: Document) -> str:
    """A table of all claims of one document: the paper's figure beside ours, problem by problem."""
    rows = [
        [claim.what, _with_unit(claim.published, claim.unit), _with_unit(claim.measured, claim.unit),
         claim.verdict or "–", claim.holds_for]
        for claim in CLAIMS[suite](document)
    ]  # fmt: skip
    return table(["what", "published", "here", "verdict", "holds for"], rows)


def section(suite: str) -> str:
    """The section of a suite: all its results."""
    parts: list[str] = []
    for name in names(suite):
        document = common.load(name)
        images = [f"![{title}](figures/{file})" for file, (title, _) in drawn(name, document).items()]
        parts += [
            f"### {_length(document['rows'])}",
            document["about"][:1].upper() + document["about"][1:],
        ]
        parts += [published(suite, document), '<div class="figures" markdown>\n\n' + "\n".join(images) + "\n\n</div>"]
        parts += [presented(document, 4, PUBLISHED_TITLES), origin(name)]
    return "\n\n".join(parts) or common.NOTHING


def figures() -> dict[str, str]:
    """Figures by file name, as SVG."""
    return {
        file: drawing
        for suite in SUITES
        for name in names(suite)
        for file, (_, drawing) in drawn(name, common.load(name)).items()
    }


def drawn(name: str, document: Document) -> Drawn:
    """The figures of a document."""
    return (_ca_sgd_figures if name.startswith(SUITES[0]) else _nuqsgd_figures)(name, document)


def _ca_sgd_figures(name: str, made: Document) -> Drawn:
    """A figure of speed beside the published one, then one of each problem's loss against seconds."""
    problems = list(dict.fromkeys(row["problem"] for row in made["rows"]))
    baseline = made["rows"][0]["contender"]
    recipes = [recipe for recipe in RECIPES if any(_is_ours(row, recipe) for row in made["rows"])]
    speeds = [
        (problem, [_fastest(made, problem, recipe)["speedup_over_fp32"]["median"] for recipe in recipes])
        for problem in problems
    ]
    title = "Speed of CA-SGD at its best s"
    colours = [(f"CA-SGD, {recipe}", RECIPES[recipe]) for recipe in recipes]
    found = {f"{name}-speed.svg": (title, bars(title, f"× {baseline}", speeds, colours, PUBLISHED_SPEED))}
    for problem in problems:
        base = next(row for row in made["rows"] if row["problem"] == problem and row["baseline"])
        shown = [Curve(baseline, GREY, _points(base["curve"][1:], "seconds", "loss"))]
        for recipe in recipes:
            row = _fastest(made, problem, recipe)
            points = _points(row["curve"][1:], "seconds", "loss")
            shown.append(Curve(f"{recipe}, s = {row['s']}", RECIPES[recipe], points))
        title = f"{problem}: loss over time"
        found[f"{name}-{problem}.svg"] = title, curves(title, "seconds", "loss", shown, x_log=True)
    return found


def _nuqsgd_figures(name: str, made: Document) -> Drawn:
    """Figures of variance, loss and accuracy by iteration, means over seeds; and of sizes under each coder."""
    rows = made["rows"]
    network = rows[0]["problem"].split()[-1].replace("resnet", "ResNet")
    lossy = [row for row in rows if not row["baseline"]]
    coded = [row for row in lossy if row["bits_by_coder"] and "fixed" in row["bits_by_coder"]]
    shown = {
        "variance": (f"{network}: variance at fp32's gradients", "E‖Q(g) − g‖² ÷ ‖g‖²", lossy, "variance_at_fp32", 1.0),
        "loss": (f"{network}: training loss", "cross entropy", rows, "loss", 1.0),
        "accuracy": (f"{network}: test accuracy", "%", rows, "accuracy", 100.0),
    }
    found = {
        f"{name}-{kind}.svg": (
            title,
            curves(title, "iterations", unit, _curves(own, key, factor), y_log=kind == "variance"),
        )
        for kind, (title, unit, own, key, factor) in shown.items()
        if any(point.get(key) is not None for row in own for point in row["curve"])
    }
    if coded:
        colours = list(zip(coded[0]["bits_by_coder"], (GREY, ORANGE, GREEN, BLUE), strict=False))
        sizes = [(row["contender"], [mean([row["bits_by_coder"][coder]]) for coder, _ in colours]) for row in coded]
        title = f"{network}: size by coder"
        found[f"{name}-bits.svg"] = title, bars(title, "bits per coordinate", sizes, colours)
    return found


def _curves(rows: Sequence[Document], key: str, factor: float) -> list[Curve]:
    known = all(row["contender"] in METHODS for row in rows)
    return [
        Curve(
            row["contender"],
            METHODS[row["contender"]] if known else COLOURS[i % len(COLOURS)],
            _points(row["curve"][1:], "iteration", key, factor),
        )
        for i, row in enumerate(rows)
    ]


def _points(curve: Sequence[Document], x: str, y: str, factor: float = 1.0) -> list[tuple[float, float]]:
    return [(point[x], factor * point[y]) for point in curve if point.get(y) is not None]


def _is_ours(row: Document, recipe: str) -> bool:
    return bool(row["solver"] == "ca_sgd" and row["recipe"] == recipe)


def _fastest(made: Document, problem: str, recipe: str) -> Document:
    own = [row for row in made["rows"] if row["problem"] == problem and _is_ours(row, recipe)]
    return max(own, key=lambda row: row["speedup_over_fp32"]["median"])


def tables(*results: str) -> str:
    """The tables of some results, and the origin of each; titles where there are several."""
    made = [[presented(common.load(name), 4 * (len(results) > 1)), origin(name)] for name in results]
    return "\n\n".join(part for parts in made for part in parts)


WRITERS: dict[str, Callable[[], str]] = {
    "papers-claims": claims_table,
    "sensitivity": partial(tables, "sensitivity"),
    "imagenet": partial(tables, "imagenet", "imagenet-nccl"),
    **{suite: partial(section, suite) for suite in SUITES},
}
