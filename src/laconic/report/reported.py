"""Runs to a page: each run's view, the machine it ran on, and a summary of all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from laconic.report.blocks import Bars, Cell, Curves, Grid, Section
from laconic.report.html import web_page
from laconic.report.presentation import ENVIRONMENT, machine
from laconic.report.registry import sections
from laconic.report.run import FIT, Run
from laconic.report.values import names_in, rows_in, text_in

HELP = "Click a curve's name to hide it; point at a curve, or focus it and use the arrow keys, for its values."


def report(title: str, runs: Sequence[Run]) -> tuple[str, dict[str, Any]]:
    """The page, and a summary of what is on it."""
    merged = with_fits_merged(runs)
    made = [section for run in merged for section in sections_of(run)]
    if len(merged) == 1:
        made = [replace(section, tag="") for section in made]
    n_rows = sum(len(rows_in(run.document)) or 1 for run in runs)
    lead = f"{_count(len(runs), 'run')}, {_count(n_rows, 'row')}."
    if any(isinstance(block, Curves) for section in made for block in section.blocks):
        lead += " " + HELP
    summary = [_summary(runs)] if len(merged) > 1 else []
    page = web_page(title, lead, [*summary, *made])
    return page, {
        "title": title,
        "runs": [
            {"name": run.name, "suite": run.suite, "rows": len(rows_in(run.document)), "sections": _titles(run)}
            for run in merged
        ],
        "charts": sum(isinstance(b, Curves | Bars) for s in made for b in s.blocks),
        "tables": sum(isinstance(b, Grid) for s in made for b in s.blocks),
        "bytes": len(page.encode("utf-8", "replace")),
    }


def sections_of(run: Run) -> list[Section]:
    """A run's sections, the first with the machine it ran on and the file's name."""
    made = sections(run.suite, run.document)
    if not made:
        return [Section(run.name, [], "There is nothing in this run.")]
    first = replace(made[0], tag=run.name, blocks=[*machine(run.document), *made[0].blocks])
    return [first, *made[1:]]


def with_fits_merged(runs: Sequence[Run]) -> list[Run]:
    """All fits as one run, at the place of the first, so that their curves share a chart."""
    fits = [{**run.document, "name": run.name} for run in runs if run.suite == FIT]
    merged: list[Run] = []
    for run in runs:
        if run.suite != FIT:
            merged.append(run)
        elif not any(other.suite == FIT for other in merged):
            merged.append(Run(run.name if len(fits) == 1 else f"{len(fits)} fits", FIT, {"rows": fits}))
    return merged


def _summary(runs: Sequence[Run]) -> Section:
    rows = []
    for run in runs:
        inside = rows_in(run.document)
        here = [row[ENVIRONMENT] for row in inside if isinstance(row.get(ENVIRONMENT), Mapping)]
        verdicts = [text_in(goal, "verdict") for goal in rows_in(run.document, "goals")]
        held = sum(verdict in ("aim", "floor") for verdict in verdicts)
        goals = Cell(f"{held} of {len(verdicts)}", held / len(verdicts)) if verdicts else Cell("–")
        device = ", ".join(filter(None, names_in(here, "gpu") + names_in(here, "cpu")))
        cells = [run.name, run.suite], [device or "–", _short(here, "commit", 12), _short(here, "date", 10)]
        rows.append(
            [
                *map(Cell, cells[0]),
                Cell(str(len(inside)), float(len(inside))) if inside else Cell("–"),
                goals,
                *map(Cell, cells[1]),
            ]
        )
    headings = ["run", "suite", "rows", "goals met", "machine", "commit", "date"]
    return Section("Runs", [Grid("What is on this page", headings, rows)])


def _short(environments: Sequence[Any], key: str, length: int) -> str:
    names = names_in(environments, key)
    found = dict.fromkeys(name[:length] for name in names if name)
    return ", ".join(found) or "–"


def _titles(run: Run) -> list[str]:
    return [section.title for section in sections_of(run)]


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
