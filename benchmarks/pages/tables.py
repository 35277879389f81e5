"""What the makers of pages share: result files, numbers, tables, and the places on a page that they fill."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs"
NUMERIC = re.compile(r"[\d.,()–−+e% -]*")


def load(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(headings: list[str], rows: list[list[str]]) -> str:
    """In Markdown; columns of numbers are set to the right."""
    numeric = [all(NUMERIC.fullmatch(row[i]) for row in rows) for i in range(len(headings))]
    lines = [headings, ["---:" if right else "---" for right in numeric], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(x: float | None) -> str:
    """Three digits; four next to 1, where the third says nothing."""
    if x is None:
        return "–"
    return f"{x:.4g}" if abs(x - 1) < 0.01 else f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"


def spread(x: dict | float | None) -> str:
    if not isinstance(x, dict):
        return number(x)
    median, low, high = (number(x[key]) for key in ("median", "p20", "p80"))
    return median if low == high else f"{median} ({low}–{high})"


def link(rate: str | None) -> str:
    """`10mbit` as people write it."""
    if rate is None:
        return "loopback"
    ((count, unit),) = re.findall(r"^([\d.]+)([kmg]bit)$", rate)
    return f"{count} {unit.capitalize()}/s"


def origin(name: str) -> str:
    """The file, and the machine, versions and commit that it names."""
    here = load(name)["rows"][0]["environment"]
    if "gpu" in here:
        machine = f"{here['gpu']}, CUDA {here['cuda']}, torch {here['torch']}, Triton {here['triton']}"
    else:
        machine = f"{here['cpu']}, {here['n_cores']} cores, torch {here['torch']}, Numba {here['numba']}"
    commit, *changed = here["commit"].split("+")
    changes = ", with changes that were not committed" if changed else ""
    return f"`benchmarks/results/{name}.json`: {machine}, commit {commit[:12]}{changes}, {here['date'][:10]}."


def goals(*names: str) -> str:
    """What a suite set out to reach: needed is what it must (the file's floor), aim what it should."""
    verdicts = {"aim": "aim", "floor": "needed", "missed": "missed"}
    rows = [
        [goal["name"], spread(goal["value"]), number(goal["floor"]), number(goal["aim"]), verdicts[goal["verdict"]]]
        for name in names
        for goal in load(name)["goals"]
    ]
    return table(["what", "measured (20–80 %)", "needed", "aim", "reached"], rows)


def rendered(page: str, sections: Mapping[str, Callable[[], str]]) -> str:
    """The page with what stands between `<!-- a section's name -->` and `<!-- end -->` made anew."""

    def fill(match: re.Match) -> str:
        made = sections[match[1]]()
        return f"<!-- {match[1]} -->\n\n{made}\n\n<!-- end -->" if made else f"<!-- {match[1]} -->\n<!-- end -->"

    return re.sub(r"<!-- (?!end)(.*?) -->.*?<!-- end -->", fill, page, flags=re.DOTALL)
