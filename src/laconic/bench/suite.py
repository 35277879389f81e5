"""A benchmark suite: its options, its run function and its document.

The command line is derived from the options' dataclass: a field made by `option` becomes an option of the command.
See "Adding a benchmark suite" in docs/extending.md.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from importlib import import_module
from typing import Any

from laconic.measure.environment import Environment

Progress = Callable[[str], None]
"""A function called with the name of each part of a run before it begins."""


def no_progress(label: str) -> None:
    """Ignore progress."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A benchmark suite.

    options  a frozen dataclass; its fields are made by `option`, `__post_init__` raises `InvalidOption`, and `n_parts`
             is how often `run` reports progress
    run      returns the rows (dataclasses), or a mapping of "rows" and further fields of the document, such as another
             name as its "suite"; None on the ranks of torchrun other than the first. If it yields rows, those so far
             are kept when the run is interrupted
    help     of the command; its first line appears in the list of suites
    more     computes further fields of the document from it, such as goals
    page     default path of its page of charts; empty for none
    """

    name: str
    options: type[Any]
    run: Callable[[Any, Progress], Iterable[Any] | Mapping[str, Any] | None]
    help: str
    more: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda document: {}
    page: str = ""


def load(module: str) -> Suite:
    """The `SUITE` of a module."""
    found: Suite = import_module(module).SUITE
    return found


def run_document(suite: Suite, options: Any, progress: Progress, commit: str | None = None) -> dict[str, Any] | None:
    """Run a suite; its document, or None on the ranks of torchrun other than the first."""
    here = Environment.here(commit, getattr(options, "device", None) or "cpu")
    found = suite.run(options, progress)
    if found is None:
        return None
    said: dict[str, Any] = {**found} if isinstance(found, Mapping) else {"rows": found}
    rows: list[Any] = []
    try:
        rows.extend(said.pop("rows"))
    except KeyboardInterrupt:
        if not rows:
            raise
        said["interrupted"] = True
    made = document(said.pop("suite", suite.name), rows, here, options=published(options), **said)
    return {**made, **suite.more(made), "rows": made["rows"]}


def published(options: Any) -> dict[str, Any]:
    """A suite's options as JSON values; an options class may have its own `published`."""
    own = getattr(options, "published", None)
    return dict(own() if own else asdict(options))


def document(suite: str, rows: Sequence[Any], here: Environment, **more: Any) -> dict[str, Any]:
    """The document of a run, a JSON object: the suite's name, its rows with their environment, and `more` fields.

    A row from an earlier run keeps its own environment.
    """
    machine, fields = {"environment": asdict(here)}, map(row_fields, rows)
    return {"suite": suite, **more, "rows": [row if row.get("environment") else row | machine for row in fields]}


def row_fields(row: Any) -> dict[str, Any]:
    """The fields and properties of a dataclass; a mapping unchanged."""
    if not is_dataclass(row):
        return dict(row)
    derived = [name for name, member in vars(type(row)).items() if isinstance(member, property)]
    return {**asdict(row), **{name: getattr(row, name) for name in derived}}  # type: ignore[arg-type]
