"""`laconic report RUN...`."""

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from laconic.atomic_write import atomic_write
from laconic.cli.command import BadInput


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="JSON that `laconic bench`, analyze, plan, demo or fit wrote; or folders of it."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.html", help="Where the page goes.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="The page's heading.")] = "laconic report",
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary of the page as JSON.")] = False,
) -> None:
    """Put runs on one HTML page of charts and tables, which needs no network and no other file."""
    import laconic.bench  # noqa: F401 (registers the presentations of its suites)
    from laconic.report import read_runs
    from laconic.report import report as make

    if output.suffix == ".json" or output.resolve() in {path.resolve() for path in runs}:
        raise BadInput(f"cannot write {output}: the page is HTML, and runs are JSON; give -o FILE.html")
    found, passed_over = read_runs(runs)
    page, summary = make(title, found)
    with atomic_write(output) as file:
        file.write(page)
    for _, why in passed_over:
        typer.echo(f"laconic: passed over: {' '.join(why.split())}", err=True)
    if as_json:
        names = [name for name, _ in passed_over]
        typer.echo(json.dumps({"output": str(output), **summary, "passed_over": names}, indent=2))
    else:
        counts = {"run": len(found), "chart": summary["charts"], "table": summary["tables"]}
        contents = ", ".join(f"{n} {what}{'s' if n != 1 else ''}" for what, n in counts.items())
        typer.echo(f"{output}: {contents}")
    if show:
        webbrowser.open(output.resolve().as_uri())
