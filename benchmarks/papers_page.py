"""Write the tables of docs/papers.md from the files benchmarks/results/papers-*.json.

`python benchmarks/papers_page.py` rewrites what stands between the page's markers; a test checks that it is up to
date.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "papers.md"
NOTHING = "No results of this suite are committed yet."


def table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(x: float | None) -> str:
    return "–" if x is None else f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"


def spread(x: dict) -> str:
    return f"{number(x['median'])} ({number(x['p20'])}–{number(x['p80'])})"


def percent(x: float | None, digits: int = 3) -> str:
    return "–" if x is None else f"{100 * x:.{digits}f}"


def origin(path: Path, made: dict) -> str:
    here = made["rows"][0]["environment"]
    machine = here.get("gpu") or f"{here['cpu']}, {here['n_cores']} cores"
    commit = (here["commit"] or "none")[:12]
    return f"`benchmarks/results/{path.name}`: {machine}, torch {here['torch']}, commit {commit}, {here['date'][:10]}."


def value(x: float | str | None, unit: str) -> str:
    return "–" if x is None else f"{x if isinstance(x, str) else number(x)} {unit.strip()}".strip()


def published(made: dict) -> str:
    rows = [
        [
            claim["what"],
            value(claim["published"], claim["unit"]),
            value(claim["measured"], claim["unit"]),
            {True: "yes", False: "no", None: "–"}[claim["holds"]],
            claim["note"],
        ]
        for claim in made["published"]
    ]
    return table(["what", "published", "here", "holds", "what differs"], rows)


def ca_sgd(made: dict) -> list[str]:
    parts = []
    for problem in dict.fromkeys(row["problem"] for row in made["rows"]):
        rows = [row for row in made["rows"] if row["problem"] == problem]
        first = rows[0]
        parts.append(
            f"**{problem}**, {first['n_rows']:,} × {first['n_features']:,}, {first['family']}; rows: {first['source']}."
        )
        cells = [
            [
                row["contender"],
                number(1e6 * row["seconds"]["median"]),
                spread(row["speedup_over_fp32"]),
                number(row["speedup_over_eager"]),
                number(row["loss"]),
                percent(row["loss_gap"]),
                percent(row["largest_gap"]),
            ]
            for row in rows
        ]
        headings = ["contender", "µs", "× fp32 (20–80 %)", "× eager", "loss", "gap, %", "largest gap on the way, %"]
        parts.append(table(headings, cells))
    return parts


def nuqsgd(made: dict) -> list[str]:
    first = made["rows"][0]
    rows = [
        [
            row["contender"],
            number(row["variance"]),
            number(row["variance_at_fp32"]),
            number(row["bound"]),
            number(row["loss"]),
            percent(row["accuracy"], 2),
            number(1e3 * row["seconds"]["median"]),
            number(row["seconds_per_epoch"]),
            number(row["bytes_sent"] / 1e3),
        ]
        for row in made["rows"]
    ]
    headings = [
        *["method", "variance, own run", "variance at fp32's gradients", "bound", "training loss", "test accuracy, %"],
        *["ms an iteration", "s an epoch", "kB a message"],
    ]
    coded = [row for row in made["rows"] if row["bits_by_coder"]]
    names = list(coded[0]["bits_by_coder"]) if coded else []
    bits = [
        [row["contender"], *(number(row["bits_by_coder"][name]) for name in names), number(row["entropy"])]
        for row in coded
    ]
    return [
        f"**{first['problem']}**, {first['n']:,} parameters.",
        table(headings, rows),
        "Bits a coordinate, by coder, on the gradients of the full-precision run:",
        table(["method", *names, "entropy"], bits),
    ]


def section(suite: str) -> str:
    """Every result of a suite, one after another."""
    tables = {"papers-ca-sgd": ca_sgd, "papers-nuqsgd": nuqsgd}[suite]
    parts: list[str] = []
    for path in sorted(RESULTS.glob(f"{suite}*.json")):
        made = json.loads(path.read_text())
        parts += [f"### {path.stem}", made["about"], published(made), *tables(made), origin(path, made)]
    return "\n\n".join(parts) or NOTHING


def rendered(page: str) -> str:
    """The page with every section made anew."""

    def fill(match: re.Match) -> str:
        return f"<!-- {match[1]} -->\n\n{section(match[1])}\n\n<!-- end -->"

    return re.sub(r"<!-- (papers-[a-z-]+) -->.*?<!-- end -->", fill, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
