"""`python -m benchmarks SUITE`: run a suite; or judge documents by goals, write pages, make a report."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import SUITES
from laconic.bench.suite import Suite
from laconic.cli.command import Suites
from laconic.cli.main import main as run
from laconic.cli.report import report


class JudgedSuites(Suites):
    """The suites of this package, and those of `laconic bench`; documents are judged by their goals."""

    def suites(self) -> Mapping[str, str]:
        """Names of suites, and the modules that define their SUITE."""
        return SUITES

    def load(self, name: str) -> Suite:
        """A suite by its name."""
        from benchmarks.goals import GOALS, goals_of

        return replace(super().load(name), more=lambda made: goals_of(made) if made["suite"] in GOALS else {})


app = typer.Typer(
    help="Run the papers again, compare with rivals and goals, and write the pages of the documentation.",
    cls=JudgedSuites,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(report)


@app.callback(invoke_without_command=True)
def benchmarks(context: typer.Context) -> None:
    """Run the papers again, compare with rivals and goals, and write the pages of the documentation."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command()
def goals(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Documents of the suites, or folders of them.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the goals as JSON.")] = False,
) -> None:
    """Judge documents by the goals of their suites. `python -m benchmarks SUITE` does so with the run it makes."""
    from benchmarks.goals import GOALS, goals_of
    from laconic.report import read_runs, show
    from laconic.report.presentation import Presentation
    from laconic.report.terminal import section_lines

    judged = {one.name: goals_of(one.document) for one in read_runs(runs)[0] if one.suite in GOALS}
    if as_json:
        typer.echo(json.dumps(judged, indent=2))
        return
    for name, document in judged.items():
        for section in Presentation(name, [], all_rows=False).sections(document):
            show(section_lines(section))


@app.command()
def pages(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if a page is out of date.")] = False,
) -> None:
    """Write the tables and figures of README and docs from benchmarks/results."""
    from benchmarks.pages import written
    from benchmarks.pages.common import ROOT

    stale = {path: text for path, text in written().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        typer.echo(f"{'out of date' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.write_text(text)
    if check and stale:
        raise typer.Exit(1)


main = partial(run, command=app, name="benchmarks")
"""Run a command line; the exit code is as for `laconic`."""

if __name__ == "__main__":
    sys.exit(main())
