"""Runs: documents out of files and folders, the presentation of each suite, and a page of them all."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from laconic.errors import LaconicError
from laconic.report.blocks import Bars, Cell, Cells, Curves, Section
from laconic.report.html import web_page
from laconic.report.presentation import ENVIRONMENT, AllRows, Column, Presentation, RowTable, Settings, machine
from laconic.report.values import Row, names_in, rows_in, text_in

EXPECTED = "a JSON document that `laconic bench`, `analyze`, `demo --json`, `plan -o` or `fit --json` wrote"
FIT, PLAN = "fit", "plan-made"


class NotARun(LaconicError, ValueError):
    """A file that holds nothing to report on."""


@dataclass(frozen=True, slots=True)
class Run:
    """A document, what kind it is, and what to call it: the name of its file."""

    name: str
    suite: str
    document: dict[str, Any]


def read_runs(paths: Sequence[Path]) -> tuple[list[Run], list[tuple[str, str]]]:
    """Every run of these files and folders; a file must be one. Also what else lay in a folder: (file, why not)."""
    runs: list[Run] = []
    passed_over: list[tuple[str, str]] = []
    for path in paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        before = len(runs)
        for file in files:
            try:
                runs.append(read_run(file))
            except NotARun as error:
                if not path.is_dir():
                    raise
                passed_over.append((str(file), str(error)))
        if len(runs) == before:
            raise NotARun(f"{path}: no .json file in this folder is a run; expected {EXPECTED}")
    return runs, passed_over


def read_run(path: Path) -> Run:
    """The run in a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise NotARun(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise NotARun(f"{path} is not JSON: byte {error.start} is not UTF-8; expected {EXPECTED}") from error
    try:
        document = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        why = f"{error.msg} in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise NotARun(f"{path} is not JSON: {why}; expected {EXPECTED}") from error
    return Run(path.name.removesuffix(".json"), _suite(document, path), document)


def _suite(document: Any, path: Path) -> str:
    if not isinstance(document, dict):
        raise NotARun(f"{path} holds a JSON {_kind(document)}, not an object; expected {EXPECTED}")
    suite = document.get("suite")
    if isinstance(suite, str) and isinstance(document.get("rows"), list):
        return suite
    if isinstance(document.get("history"), list) and "family" in document:
        return FIT
    if "laconic_plan" in document and isinstance(document.get("options"), list):
        return PLAN
    keys = ", ".join(list(document)[:4]) or "none"
    raise NotARun(
        f'{path} has no "suite" with "rows", and no "history" of a fit (its keys: {keys}); expected {EXPECTED}'
    )


def _kind(value: Any) -> str:
    kinds = {list: "list", str: "string", bool: "boolean", type(None): "null"}
    return next((name for kind, name in kinds.items() if isinstance(value, kind)), "number")


_REGISTERED: dict[str, tuple[Presentation, ...] | str] = {}


def register(suite: str, *presentations: Presentation, lazily: str = "") -> None:
    """Show documents of a suite this way from now on, a section or more for each presentation.

    lazily  instead, where they are: "package.module:NAME" of a `Presentation` or a tuple of them, imported when needed
    """
    _REGISTERED[suite] = lazily or presentations


def registered() -> list[str]:
    """The names of all suites that have a presentation."""
    return list(_REGISTERED)


def presentations(suite: str) -> tuple[Presentation, ...]:
    """How to show a suite; of one that nobody has registered, its options and its rows."""
    found = _REGISTERED.get(suite, ())
    if isinstance(found, str):
        module, _, name = found.partition(":")
        made = getattr(import_module(module), name)
        found = _REGISTERED[suite] = (made,) if isinstance(made, Presentation) else tuple(made)
    return found or (Presentation(suite, [Settings(), AllRows("The rows")], all_rows=False),)


def sections(suite: str, document: Row) -> list[Section]:
    """The sections of a document; of several presentations only those that have something to show."""
    shown = presentations(suite)
    made = [section for one in shown for section in one.sections(document)]
    return made if len(shown) == 1 else [section for section in made if section.blocks]


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
        "tables": sum(isinstance(b, Cells) for s in made for b in s.blocks),
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
        inside, goals = rows_in(run.document), rows_in(run.document, "goals")
        here = [row[ENVIRONMENT] for row in inside if isinstance(row.get(ENVIRONMENT), Mapping)]
        held = sum(text_in(goal, "verdict") in ("aim", "floor") for goal in goals)
        device, commit, date = _all(here, "gpu", "cpu"), _all(here, "commit", most=12), _all(here, "date", most=10)
        met = Cell(f"{held} of {len(goals)}", held / len(goals)) if goals else None
        about = {"run": run.name, "suite": run.suite, "rows": len(inside) or None, "goals met": met}
        rows.append(about | {"machine": device, "commit": commit, "date": date})
    columns = [Column(name, name, "n" if name == "rows" else None) for name in rows[0]]
    return Section("Runs", [RowTable("What is on this page", columns).grid(rows)])


def _all(environments: Sequence[Any], *keys: str, most: int | None = None) -> str | None:
    """What the environments have under the keys."""
    found = [name[:most] for key in keys for name in names_in(environments, key) if name]
    return ", ".join(dict.fromkeys(found)) or None


def _titles(run: Run) -> list[str]:
    return [section.title for section in sections_of(run)]


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
