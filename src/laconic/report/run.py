"""Documents that laconic wrote, out of files and folders."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laconic.errors import LaconicError

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


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of some paths, and what else lay in a folder: (file, why it is none)."""

    runs: list[Run]
    passed_over: list[tuple[str, str]]


def read_runs(paths: Sequence[Path]) -> Runs:
    """Every run of these files and folders. A file must be one; of a folder the JSON files that are."""
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
    return Runs(runs, passed_over)


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
