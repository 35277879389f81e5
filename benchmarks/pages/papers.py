"""Write the tables of docs/papers.md, and its figures, from the files benchmarks/results/papers-*.json.

`python -m benchmarks pages` rewrites what stands between the page's markers; a test checks that it is up to
date. Runs that differ in nothing but their seed, `papers-nuqsgd-NAME.json` and `papers-nuqsgd-NAME-seed1.json`, are
one section.
"""

import re
from collections.abc import Sequence
from statistics import mean

from benchmarks.pages import papers_figures, tables
from benchmarks.pages.tables import DOCS, number, origin, spread, table

PAGE = DOCS / "papers.md"
NOTHING = "No results of this suite are committed yet."
SEED = re.compile(r"-seed\d+$")


def percent(x: float | None, digits: int = 3) -> str:
    return "–" if x is None else f"{100 * x:z.{digits}f}"


def over_seeds(xs: Sequence[float | None], write=number) -> str:
    """The mean, and from where to where they go; one that has diverged leaves none."""
    if any(x is None for x in xs):
        return "–"
    low, high, middle = (write(f(xs)) for f in (min, max, mean))
    return middle if low == high else f"{middle} ({low} to {high})"


def with_unit(x: str, unit: str) -> str:
    return x if x == "–" else f"{x} {unit.strip()}".strip()


def sentence(words: str) -> str:
    return words[0].upper() + words[1:]


def published(runs: list[dict]) -> str:
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


def ca_sgd(runs: list[dict]) -> list[str]:
    parts, rows = [], runs[0]["rows"]
    for problem in dict.fromkeys(row["problem"] for row in rows):
        own = [row for row in rows if row["problem"] == problem]
        first = own[0]
        parts.append(
            f"**{problem}**, {first['n_rows']:,} × {first['n_features']:,}, {first['family']}; rows: {first['source']}."
        )
        cells = [
            [
                row["contender"],
                number(1e6 * row["seconds"]["median"]),
                spread(row["speedup_over_fp32"]),
                number(row["speedup_over_eager"]),
                f"{row['loss']:.5g}",
                percent(row["loss_gap"], 4),
                percent(row["largest_gap"], 4),
            ]
            for row in own
        ]
        headings = ["contender", "µs", "× fp32 (20–80 %)", "× eager", "loss", "gap, %", "largest gap, %"]
        parts.append(table(headings, cells))
    return parts


def nuqsgd(runs: list[dict]) -> list[str]:
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
        *["s an epoch", "kB a message"],
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
        "Bits a coordinate by coder, norms and headers included, on the gradients of the full-precision run:",
        table(["method", *names, "entropy"], bits),
    ]


def heading(suite: str, runs: list[dict]) -> str:
    first = runs[0]["rows"][0]
    if suite == "papers-ca-sgd":
        return "One GPU" if first["device"] != "cpu" else f"{first['ranks']} ranks on a CPU"
    network = first["problem"].split()[-1].replace("resnet", "ResNet")
    seeds = [str(made["options"]["seed"]) for made in runs]
    shown = f"{network}, {first['ranks']} workers with batches of {first['batch_size']}"
    return shown + (f", seeds {', '.join(seeds)}" if len(seeds) > 1 else "")


def groups(suite: str) -> dict[str, list[str]]:
    """Names of result files, those of other seeds beside the first."""
    found: dict[str, list[str]] = {}
    for path in sorted(tables.RESULTS.glob(f"{suite}*.json"), key=lambda path: path.stem):
        found.setdefault(SEED.sub("", path.stem), []).append(path.stem)
    return found


def section(suite: str) -> str:
    """Every result of a suite, one after another."""
    show = {"papers-ca-sgd": ca_sgd, "papers-nuqsgd": nuqsgd}[suite]
    parts: list[str] = []
    for group, names in groups(suite).items():
        runs = [tables.load(name) for name in names]
        drawn = [f"![{title}](figures/{name})" for name, (title, _) in papers_figures.drawn(group, runs).items()]
        parts += [f"### {heading(suite, runs)}", sentence(runs[0]["about"]), published(runs)]
        parts += ['<div class="figures" markdown>\n\n' + "\n".join(drawn) + "\n\n</div>"]
        parts += [*show(runs), "\n".join(origin(name) for name in names)]
    return "\n\n".join(parts) or NOTHING


def rendered(page: str) -> str:
    """The page with every section made anew."""
    return tables.rendered(page, {name: lambda name=name: section(name) for name in ("papers-ca-sgd", "papers-nuqsgd")})


def figures() -> dict[str, str]:
    """Every figure's file, and the drawing."""
    return {
        name: drawing
        for suite in ("papers-ca-sgd", "papers-nuqsgd")
        for group, names in groups(suite).items()
        for name, (_, drawing) in papers_figures.drawn(group, [tables.load(name) for name in names]).items()
    }
