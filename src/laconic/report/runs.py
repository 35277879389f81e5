"""Read documents of runs from files and folders, and make one page of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from laconic.errors import LaconicError
from laconic.report.charts import Bars, Curves
from laconic.report.html import web_page
from laconic.report.presentation import Section, machine, sections
from laconic.report.tables import ENVIRONMENT, Cell, Cells, Column, RowTable
from laconic.report.values import Row, names_in, rows_in, text_in

EXPECTED = "a JSON document that `laconic bench`, `analyze`, `demo --json`, `plan -o` or `fit --json` wrote"
FIT, PLAN = "fit", "plan-made"
KINDS = {list: "list", str: "string", bool: "boolean", type(None): "null"}
"""JSON's names for values that are neither objects nor numbers."""
HELP = " Click a curve's name to hide it; point at a curve, or focus it and use the arrow keys, for its values."


class NotARun(LaconicError, ValueError):
    """A file without a run to report on."""


@dataclass(frozen=True, slots=True)
class Run:
    """A document, its kind, and its name, which is that of its file."""

    name: str
    suite: str
    document: dict[str, Any]


def read_runs(paths: Sequence[Path]) -> tuple[list[Run], list[tuple[str, str]]]:
    """All runs in these files and folders, and (file, reason) for other files of a folder. A file must be a run."""
    runs: list[Run] = []
    passed_over: list[tuple[str, str]] = []
    for path in paths:
        before = len(runs)
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            try:
                runs.append(read_run(file))
            except NotARun as error:
                if file is path:
                    raise
                passed_over.append((str(file), str(error)))
        if len(runs) == before:
            raise NotARun(f"{path}: no .json file in this folder is a run; expected {EXPECTED}")
    return runs, passed_over


def read_run(path: Path) -> Run:
    """The run in a file; raises `NotARun` if there is none. Numbers that JSON lacks, such as NaN, are read as None."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except OSError as error:
        raise NotARun(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        why = f"{error.msg} in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else str(error)
        why = f"byte {error.start} is not UTF-8" if isinstance(error, UnicodeDecodeError) else why
        raise NotARun(f"{path} is not JSON: {why}; expected {EXPECTED}") from error
    if not isinstance(document, dict):
        kind = KINDS.get(type(document), "number")
        raise NotARun(f"{path} holds a JSON {kind}, not an object; expected {EXPECTED}")
    suite = _suite(document)
    if suite is None:
        keys = ", ".join(list(document)[:4]) or "none"
        why = f'{path} has no "suite" with "rows", and no "history" of a fit (its keys: {keys})'
        raise NotARun(f"{why}; expected {EXPECTED}")
    return Run(path.name.removesuffix(".json"), suite, document)


def _suite(document: Row) -> str | None:
    suite = document.get("suite")
    if isinstance(suite, str) and isinstance(document.get("rows"), list):
        return suite
    if isinstance(document.get("history"), list) and "family" in document:
        return FIT
    return PLAN if "laconic_plan" in document and isinstance(document.get("options"), list) else None


def report(title: str, runs: Sequence[Run]) -> tuple[str, dict[str, Any]]:
    """The HTML page of some runs, and a summary of it as JSON values."""
    made = [(run, sections_of(run)) for run in with_fits_merged(runs)]
    several = len(made) > 1
    shown = [replace(section, tag=section.tag if several else "") for _, some in made for section in some]
    blocks = [block for section in shown for block in section.blocks]
    n_rows = sum(len(rows_in(run.document)) or 1 for run in runs)
    lead = f"{_count(len(runs), 'run')}, {_count(n_rows, 'row')}."
    lead += HELP if any(isinstance(block, Curves) for block in blocks) else ""
    page = web_page(title, lead, [*([_summary(runs)] if several else []), *shown])
    return page, {
        "title": title,
        "runs": [
            {
                "name": run.name,
                "suite": run.suite,
                "rows": len(rows_in(run.document)),
                "sections": [section.title for section in some],
            }
            for run, some in made
        ],
        "charts": sum(isinstance(block, Curves | Bars) for block in blocks),
        "tables": sum(isinstance(block, Cells) for block in blocks),
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
    """The runs with all fits merged into the first one, so that their curves share a chart."""
    fits = [{**run.document, "name": run.name} for run in runs if run.suite == FIT]
    first = next((i for i, run in enumerate(runs) if run.suite == FIT), None)
    return [
        Run(run.name if len(fits) == 1 else f"{len(fits)} fits", FIT, {"rows": fits}) if i == first else run
        for i, run in enumerate(runs)
        if i == first or run.suite != FIT
    ]


def _summary(runs: Sequence[Run]) -> Section:
    """A table of the runs: the size of each, how many goals it met, and where it was measured."""
    rows = []
    for run in runs:
        inside, goals = rows_in(run.document), rows_in(run.document, "goals")
        here = [row[ENVIRONMENT] for row in inside if isinstance(row.get(ENVIRONMENT), Mapping)]
        held = sum(text_in(goal, "verdict") in ("aim", "floor") for goal in goals)
        met = Cell(f"{held} of {len(goals)}", held / len(goals)) if goals else None
        about = {"run": run.name, "suite": run.suite, "rows": len(inside) or None, "goals met": met}
        where = {"machine": _all(here, "gpu", "cpu"), "commit": _all(here, "commit", most=12)}
        rows.append(about | where | {"date": _all(here, "date", most=10)})
    columns = [Column(name, name, "n" if name == "rows" else None) for name in rows[0]]
    return Section("Runs", [RowTable("What is on this page", columns).grid(rows)])


def _all(environments: Sequence[Row], *keys: str, most: int | None = None) -> str | None:
    """The environments' distinct values under these keys, joined."""
    found = [name[:most] for key in keys for name in names_in(environments, key) if name]
    return ", ".join(dict.fromkeys(found)) or None


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
