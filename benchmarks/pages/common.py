"""Shared by the writers of pages: result files, Markdown tables, and filling a page between its markers."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.goals import goals_of
from laconic.report import markdown, sections
from laconic.report.tables import Cells

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
NUMERIC = re.compile(r"[\d.,()–−+e% -]*")
Document = dict[str, Any]


NOTHING = "No results of this suite are committed yet."


def load(name: str) -> Document:
    """A result file by its name."""
    found: Document = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def filled(page: str, writers: Mapping[str, Callable[[], str]]) -> str:
    """The page with the text between `<!-- a section's name -->` and `<!-- end -->` regenerated."""

    def fill(match: re.Match[str]) -> str:
        made = writers[match[1]]()
        return f"<!-- {match[1]} -->\n\n{made}\n\n<!-- end -->" if made else f"<!-- {match[1]} -->\n<!-- end -->"

    return re.sub(r"<!-- (?!end)(.*?) -->.*?<!-- end -->", fill, page, flags=re.DOTALL)


def presented(document: Document, level: int = 0, without: Sequence[str] = ()) -> str:
    """The tables of a document, as its suite's presentation declares them, without goals. Repeated notes appear once.

    level    of headings with the tables' titles; 0 for none
    without  titles of tables to leave out
    """
    blocks = [block for section in sections(document["suite"], document) for block in section.blocks]
    grids = [block for block in blocks if isinstance(block, Cells) and block.title not in ("Goals", *without)]
    last = {grid.note: i for i, grid in enumerate(grids)}
    return markdown([grid if last[grid.note] == i else replace(grid, note="") for i, grid in enumerate(grids)], level)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, columns of numbers aligned right."""
    numeric = [all(NUMERIC.fullmatch(row[i]) for row in rows) for i in range(len(headings))]
    lines = [headings, ["---:" if right else "---" for right in numeric], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(x: float | None) -> str:
    """A number with three digits; four near 1, where the third would be 0."""
    if x is None:
        return "–"
    return f"{x:.4g}" if abs(x - 1) < 0.01 else f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"


def spread(x: Mapping[str, float] | float | None) -> str:
    """A median between its 20th and 80th percentile."""
    if not isinstance(x, Mapping):
        return number(x)
    median, low, high = (number(x[key]) for key in ("median", "p20", "p80"))
    return median if low == high else f"{median} ({low}–{high})"


def link(rate: str | None) -> str:
    """A link rate such as `10mbit` as people write it."""
    if rate is None:
        return "loopback"
    ((count, unit),) = re.findall(r"^([\d.]+)([kmg]bit)$", rate)
    return f"{count} {unit.capitalize()}/s"


def origin(*names: str) -> str:
    """A sentence with the files, and the machine, versions and commit of each."""
    return "\n".join(_origin(name) for name in names)


def _origin(name: str) -> str:
    places = [row["environment"] for row in load(name)["rows"]]
    by: dict[str, dict[str, None]] = {}
    for one in places:
        by.setdefault(_machine(one), {})[f"{_commit(one['commit'])}, {one['date'][:10]}"] = None
    made = [f"{machine}, {'; '.join(runs)}" for machine, runs in by.items()]
    return f"`benchmarks/results/{name}.json`: {'. '.join(made)}."


def _machine(here: Document) -> str:
    if here.get("gpu"):
        return f"{here['gpu']}, CUDA {here['cuda']}, torch {here['torch']}, Triton {here['triton']}"
    return f"{here['cpu']}, {here['n_cores']} cores, torch {here['torch']}, Numba {here['numba']}"


def _commit(said: str) -> str:
    commit, *changed = said.split("+")
    return f"commit {commit[:12]}" + ", with changes that were not committed" * bool(changed)


def goals(*names: str) -> str:
    """A table of targets and results: "needed" is the floor, which a suite must reach, "aim" what it should reach."""
    verdicts = {"aim": "aim", "floor": "needed", "missed": "missed"}
    rows = [
        [goal["name"], spread(goal["value"]), number(goal["floor"]), number(goal["aim"]), verdicts[goal["verdict"]]]
        for name in names
        for goal in goals_of(load(name))["goals"]
    ]
    return table(["what", "measured (20–80 %)", "needed", "aim", "reached"], rows)
