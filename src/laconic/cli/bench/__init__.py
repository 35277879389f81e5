"""`laconic bench SUITE`: a command for each suite, made when it is asked for."""

from typing import Any

import typer
from typer.core import TyperGroup

from laconic.cli.errors import BadInput

MOVED = {name: name for name in ("papers", "decentralised", "plan", "kernels")} | {
    "glm --device": "glm-device",
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
        from laconic.cli.bench.command import command

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
