"""`laconic bench SUITE` and `laconic demo`: a command per suite, created on demand from the suite's options."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

from laconic.atomic_write import atomic_write
from laconic.cli.command import BadInput, Printing, Suites, bad_input, options_command, progress
from laconic.options import option

if TYPE_CHECKING:
    from laconic.bench.suite import Suite


@dataclass(frozen=True, slots=True)
class RunOptions(Printing):
    """Where the output of a suite goes."""

    commit: str | None = option(
        None, "Commit of this copy, to be written down; by default git's answer.", metavar="HASH"
    )
    output: Path | None = option(None, "Write the rows here as JSON, too.", metavar="FILE.json")  # noqa: RUF009
    report: Path | None = option(None, "Write a page of charts here, too.", metavar="FILE.html")  # noqa: RUF009


@dataclass(frozen=True, slots=True)
class PageOptions(RunOptions):
    """`RunOptions` for a suite that writes a page by default."""

    no_report: bool = option(False, "Write no page.")


def command(suite: "Suite") -> Callable[..., None]:
    """A Typer command with a parameter for each field of the suite's options."""
    common = PageOptions if suite.page else RunOptions

    def run(asked: dict[str, Any], given: dict[str, Any]) -> None:
        run_suite(suite, asked, common(**given))

    run.__doc__ = suite.help
    return options_command(run, suite.name, suite.options, common)


def page_of(suite: "Suite", common: RunOptions) -> Path | None:
    """The path of the page, if any: a suite's default page is not written with --json."""
    if getattr(common, "no_report", False):
        if common.report:
            raise BadInput("--report says where the page goes, --no-report that there is none; give one of them")
        return None
    return common.report or (Path(suite.page) if suite.page and not common.as_json else None)


def run_suite(suite: "Suite", asked: dict[str, Any], common: RunOptions) -> None:
    """Make the options, run the suite, write its document and page, and print the document or its presentation."""
    from laconic.bench.suite import run_document
    from laconic.report import Run, show, terminal
    from laconic.report import report as make_page

    page, first = page_of(suite, common), os.environ.get("RANK", "0") == "0"
    with ExitStack() as stack:
        with bad_input():
            options = suite.options(**asked)
            paths = [path for path in (common.output, page) if path and first]
            files: dict[Path | None, IO[Any]] = {path: stack.enter_context(atomic_write(path)) for path in paths}
        begin = stack.enter_context(progress(options.n_parts, quiet=common.quiet or not first))
        document = run_document(suite, options, begin, common.commit)
        if document is None:
            return
        written, name = json.dumps(document, indent=2, allow_nan=False), document["suite"]
        if common.output in files:
            files[common.output].write(written + "\n")
        if page in files:
            files[page].write(make_page(f"laconic {suite.name}", [Run(suite.name, name, document)])[0])
    if common.as_json:
        typer.echo(written)
        return
    show(terminal(name, document))
    if page:
        typer.echo(f"\nCharts of all this: {page.resolve()}")


MOVED = {name: name for name in ("papers", "decentralised", "plan", "kernels")}
MOVED |= {"glm --time-to": "glm-time-to", "codec --error": "codec-error"}
"""Suites and options that moved from the package to the repository, and the suite that has them there."""


class BenchSuites(Suites):
    """The suites of `laconic bench`."""

    def suites(self) -> Mapping[str, str]:
        from laconic.bench import SUITES

        return SUITES

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command and its arguments; raises `BadInput` if a suite is unknown, or a suite or option has moved."""
        given = {word.partition("=")[0] for word in args}
        for words, suite in MOVED.items():
            if words.split()[0] == args[0] and set(words.split()) <= given:
                raise BadInput(f"bench {words} is now `python -m benchmarks {suite}` in laconic's repository")
        if args[0] not in (known := self.list_commands(ctx)):
            raise BadInput(f"there is no suite {args[0]!r}; choose one of {', '.join(known)}")
        return super().resolve_command(ctx, args)


app = typer.Typer(help="Measure this machine, its network and its ranks.", cls=BenchSuites)


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Measure this machine, its network and its ranks."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
