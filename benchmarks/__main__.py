"""`python -m benchmarks SUITE`."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from benchmarks import report as _  # noqa: F401 (registers the suites)
from benchmarks.decentralised.command import decentralised
from benchmarks.glm.command import glm
from benchmarks.kernels.command import kernels
from benchmarks.papers.command import papers
from benchmarks.plan.command import plan
from laconic.cli.command import with_lists
from laconic.cli.main import main as run
from laconic.cli.report import report

app = typer.Typer(
    help="Run the papers again, compare with rivals, and write the pages of the documentation.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (papers, decentralised, plan, kernels, glm):
    app.command()(with_lists(command))


app.command()(report)


@app.command()
def pages(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if a page is out of date.")] = False,
) -> None:
    """Write the tables and figures of README and docs from benchmarks/results."""
    from benchmarks.pages import ROOT, written

    stale = {path: text for path, text in written().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        typer.echo(f"{'out of date' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.write_text(text)
    if check and stale:
        raise typer.Exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m benchmarks`; the exit code is as for `laconic`."""
    return run(arguments, app, "benchmarks")


if __name__ == "__main__":
    sys.exit(main())
