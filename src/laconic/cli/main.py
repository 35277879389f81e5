"""The command `laconic`. Exit codes: 0 done, 2 bad input and 130 Ctrl-C (one line on stderr), 1 anything else."""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

import typer

from laconic._version import __version__
from laconic.cli import analyze, bench, convert, fit, plan, predict, report
from laconic.cli.command import Interrupted, Suites, spell
from laconic.errors import LaconicError

USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
"""The base class of command-line errors; Typer gives it no public name."""

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 plus the signal's number, as in shells."""

app = typer.Typer(
    name="laconic",
    help="Train on many machines, say less.",
    cls=Suites,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench.app, name="bench")
for _command in (fit.fit, predict.predict, convert.convert, plan.plan, analyze.analyze, report.report):
    app.command()(_command)


@app.callback(invoke_without_command=True)
def laconic(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Train on many machines, say less."""
    if version:
        typer.echo(f"laconic {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def main(arguments: Sequence[str] | None = None, command: typer.Typer = app, name: str = "laconic") -> int:
    """Run a command line, by default `laconic`; the exit code.

    Errors that the user cannot correct are raised, with their traceback.
    """
    if sys.stdout is None:  # and the next file that is opened would be taken for it
        return _complain(name, "stdout is closed; send it to a file, or to /dev/null", 1)
    for stream in (sys.stdout, sys.stderr):  # characters that its encoding lacks, such as µ, are escaped
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = command(args=None if arguments is None else list(arguments), prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except USAGE_ERROR as error:
        return _complain(name, getattr(error, "format_message", error.__str__)())
    except LaconicError as error:
        return _complain(name, error.message(spell), INTERRUPTED if isinstance(error, Interrupted) else 2)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except OSError as error:
        if not _lost_stdout():
            raise
        return _complain(name, f"cannot write to stdout: {error.strerror}", 1)
    if code == INTERRUPTED:  # Typer also returns this after Ctrl-C
        return _complain(name, "interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _lost_stdout() -> bool:
    """Whether stdout takes not even the end of a line. What is left is dropped: Python would try it again at exit."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def _complain(name: str, message: str, code: int = 2) -> int:
    sys.stderr.write(f"{name}: {' '.join(message.split())}\n")
    return code
