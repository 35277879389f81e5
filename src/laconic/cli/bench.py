"""`laconic bench SUITE`: a command for each suite, made when it is asked for, from the dataclass of its options."""

import inspect
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, Field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

from laconic.atomic_write import atomic_write
from laconic.cli.command import with_lists
from laconic.cli.errors import BadInput, bad_input, spell
from laconic.cli.fit_options import names
from laconic.cli.numbers import whole_number
from laconic.cli.progress import progress
from laconic.errors import LaconicError

if TYPE_CHECKING:
    from laconic.bench.suite import Suite

Output = Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the rows here as JSON, too.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the rows as JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Commit = Annotated[
    str | None, typer.Option(metavar="HASH", help="Commit of this copy, to be written down; by default git's answer.")
]
COMMON = {"commit": (Commit, None), "output": (Output, None), "as_json": (AsJson, False), "quiet": (Quiet, False)}
"""Options of every suite: type and default."""


def command(suite: "Suite") -> Callable[..., None]:
    """A function with a parameter for each field of the suite's options, as Typer takes it."""
    kinds = get_type_hints(suite.options)
    chosen = {one.name: _parameter(one, str(kinds[one.name])) for one in fields(suite.options)}

    def run(**given: Any) -> None:
        common = {name: given.pop(name) for name in COMMON}
        asked = {name: _value(str(kinds[name]), value) for name, value in given.items() if value is not None}
        run_suite(suite, asked, **common)

    parameters = {**chosen, **COMMON}
    run.__name__, run.__doc__ = suite.name, suite.help
    run.__annotations__ = {name: kind for name, (kind, _) in parameters.items()}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in parameters.items()
        ]
    )
    return with_lists(run)


def _parameter(one: "Field[Any]", kind: str) -> tuple[Any, Any]:
    """The annotation and the default of a field's parameter. Lists are texts with commas, which are not shown."""
    said = one.metadata
    flags = [said["flag"]] if said.get("flag") else [f"--{one.name.replace('_', '-')}"]
    more: dict[str, Any] = {"help": said["help"], "metavar": said.get("metavar") or None}
    default = None if one.default is MISSING else one.default
    if "Sequence" in kind:
        return Annotated[str | None, typer.Option(*flags, **more)], None
    if kind.startswith("<class 'bool"):
        return Annotated[bool, typer.Option(*flags, **more)], False
    if "Path" in kind:
        return Annotated[Path | None, typer.Option(*flags, **more)], default
    if "float" in kind:
        return Annotated[float | None, typer.Option(*flags, **more)], default
    if "int" in kind:
        parser = whole_number(said["least"])
        return Annotated[int | None, typer.Option(*flags, parser=parser, **more)], default
    return Annotated[str | None, typer.Option(*flags, **more)], default


def _value(kind: str, value: Any) -> Any:
    """What was typed, as the field takes it."""
    if "Sequence" not in kind:
        return value
    words = names(value)
    return tuple(whole_number()(word) for word in words) if "int" in kind else words


def run_suite(
    suite: "Suite", asked: dict[str, Any], *, output: Path | None, as_json: bool, quiet: bool, commit: str | None
) -> None:
    """Make the options, run the suite, write its document, and print that or what it shows."""
    from laconic.bench.suite import run_document
    from laconic.report import show, terminal

    first = os.environ.get("RANK", "0") == "0"
    with ExitStack() as stack:
        with _spelt(suite), bad_input():
            options = suite.options(**asked)
            file = stack.enter_context(atomic_write(output)) if output and first else None
        begin = stack.enter_context(progress(options.n_parts, quiet=quiet or not first))
        with _spelt(suite):
            document = run_document(suite, options, begin, commit)
        if document is None:
            return
        written = json.dumps(document, indent=2, allow_nan=False)
        if file:
            file.write(written + "\n")
    if as_json:
        typer.echo(written)
    else:
        show(terminal(document["suite"], document))


@contextmanager
def _spelt(suite: "Suite") -> Iterator[None]:
    """Errors speak of the command's options by their own names."""
    flags = {one.name: one.metadata["flag"].lstrip("-") for one in fields(suite.options) if one.metadata.get("flag")}
    try:
        yield
    except LaconicError as error:
        raise BadInput(error.message(partial(spell, names=flags))) from error


MOVED = {name: name for name in ("papers", "decentralised", "plan", "kernels")} | {
    "glm --time-to": "glm-time-to",
}
"""Suites and options that the package no longer has, and what runs them in the repository."""


class Suites(TyperGroup):
    """The suites as commands; only those that are asked for are imported."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        from laconic.bench import SUITES

        return list(SUITES)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command and its arguments. Raises `BadInput` that says where a suite or an option has gone."""
        given = {word.partition("=")[0] for word in args}
        for words, suite in MOVED.items():
            if words.split()[0] == args[0] and set(words.split()) <= given:
                raise BadInput(f"bench {words} is now `python -m benchmarks {suite}` in laconic's repository")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a suite."""
        from laconic.bench import SUITES
        from laconic.bench.suite import load

        if cmd_name not in SUITES:
            return None
        alone = typer.Typer(add_completion=False)
        alone.command(name=cmd_name)(command(load(SUITES[cmd_name])))
        return typer.main.get_command(alone)


app = typer.Typer(help="Measure this machine, its network and its ranks.", cls=Suites)


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Measure this machine, its network and its ranks."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
