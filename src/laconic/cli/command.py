"""Shared by all commands: options declared by dataclasses, parsers of numbers, errors and progress bars."""

import inspect
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import MISSING, Field, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

from laconic.errors import LaconicError, Option
from laconic.options import ARGUMENT, flags, option

if TYPE_CHECKING:
    from laconic.bench.suite import Suite

LARGEST = 2**63 - 1
"""The largest whole number accepted."""
_RATES = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES = {"ns": 1e-9, "us": 1e-6, "\N{MICRO SIGN}s": 1e-6, "\N{GREEK SMALL LETTER MU}s": 1e-6, "ms": 1e-3, "s": 1.0}


NAMES = {"exclude": "drop", "sample_weight": "weight", "fit_intercept": "intercept", "random_state": "seed"}
"""Arguments of the library and the options that have another name on the command line."""


class BadInput(LaconicError):
    """An argument, a file or a value that the user has to correct. `laconic` exits with 2."""


class Interrupted(LaconicError):
    """The user pressed Ctrl-C, and there is something to resume from. `laconic` exits with 130."""


@contextmanager
def bad_input() -> Iterator[None]:
    """Turn errors into `BadInput`. Use it only around code that checks user input."""
    try:
        yield
    except LaconicError:
        raise
    except (ValueError, TypeError) as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        where = f"cannot write {error.filename}: " if error.filename else ""
        raise BadInput(f"{where}{error.strerror or error}") from error


def spell(option: Option, names: Mapping[str, str] = NAMES) -> str:
    """An argument of the library spelled as an option of the command line, with its value as typed there.

    names  argument to option where they differ, both without dashes

    >>> spell(Option("batch_size")), spell(Option("dense", True))
    ('--batch-size', '--dense')
    >>> print(spell(Option("exclude", ("id", "day, month"))))
    --drop 'id,"day, month"'
    >>> spell(Option("fit_intercept", False)), spell(Option("target", ...))
    ('--no-intercept', '--target')
    """
    name, value = names.get(option.name, option.name).replace("_", "-"), option.value
    if value is None or value is ... or value is True:
        return f"--{name}"
    typed = ",".join(map(_quoted, map(str, value))) if isinstance(value, (tuple, list)) else str(value)
    return f"--no-{name}" if value is False else f"--{name} {shlex.quote(typed)}"


_WORD = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^,]*?))\s*(?:,|$)', re.DOTALL)
"""A word of a list, in quotes or not, and the comma after it."""


def words_of(text: str) -> list[str]:
    """The words of a list with commas. Quotes are those of CSV, around a word that holds commas or begins with blanks.

    >>> words_of('a, b,"c,d"," e",')
    ['a', 'b', 'c,d', ' e']
    """
    found = [match.groups() for match in _WORD.finditer(text)]
    return [
        plain if quoted is None else quoted.replace('""', '"') for quoted, plain in found if quoted is not None or plain
    ]


def _quoted(word: str) -> str:
    return word if words_of(word) == [word] else '"' + word.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Printing:
    """Options of what a command prints: JSON, and progress or not."""

    as_json: bool = option(False, "Print JSON instead of text and tables.", flag="--json")
    quiet: bool = option(False, "No progress bar.", flag="--quiet -q")


def options_command(
    run: Callable[..., None],
    name: str,
    *options: "type[Any] | tuple[type[Any], Sequence[str]]",
    unset: Sequence[type[Any]] = (),
) -> Callable[..., None]:
    """A Typer command with an option for each field of some dataclasses (see `laconic.options`).

    run      called with one mapping per dataclass, from field to given value; its docstring is the help text
    options  dataclasses, or pairs of a dataclass and the fields that the command has
    unset    dataclasses for which `run` gets only the options typed, without defaults

    Errors name options as the command spells them.
    """
    groups = [one if isinstance(one, tuple) else (one, [each.name for each in fields(one)]) for one in options]
    kinds = {key: str(kind) for one, _ in groups for key, kind in get_type_hints(one).items()}
    chosen = [(i, each) for i, (one, some) in enumerate(groups) for each in fields(one) if each.name in some]
    taken = [(i, each) for i, each in chosen if each.metadata["flag"] is not None]
    groups_of = {each.name: i for i, each in taken}
    defaults = {each.name: None if groups[i][0] in unset else each.default for i, each in taken}
    parameters = {each.name: _parameter(each, kinds[each.name], defaults[each.name]) for _, each in taken}
    spelling = NAMES | {field: flag for one, _ in groups for field, flag in flags(one).items()}

    def command(**given: Any) -> None:
        asked: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        try:
            for key, value in given.items():
                if value not in (None, []):
                    asked[groups_of[key]][key] = _items(key, kinds[key], value) if "Sequence" in kinds[key] else value
            run(*map(asked.__getitem__, range(len(groups))))
        except LaconicError as error:
            error.parts = (error.message(partial(spell, names=spelling)),)
            raise

    command.__name__, command.__doc__ = name, run.__doc__
    command.__annotations__ = {key: kind for key, (kind, _) in parameters.items()}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for key, (kind, default) in parameters.items()
        ]
    )
    return command


def _parameter(one: "Field[Any]", kind: str, default: Any) -> tuple[Any, Any]:
    """The annotation and the default of a field's parameter. Defaults of lists are not shown."""
    said = one.metadata
    words = (said["flag"] or f"--{one.name.replace('_', '-')}").split(" ")
    shown = partial(typer.Option, *words, help=said["help"], metavar=said["metavar"] or None)
    if said["flag"] == ARGUMENT:
        shown = partial(typer.Argument, help=said["help"], metavar=said["metavar"] or None)
    default = inspect.Parameter.empty if default is MISSING else default
    parse = said["parse"] or (PARSERS.get(said["metavar"]) if "float" in kind else None)
    if parse is not None:
        return Annotated[Any, shown(parser=parse)], default
    if "Sequence" in kind:
        return Annotated[list[str] | None, shown()], None
    if kind == "bool | str":  # if not given, it is chosen automatically
        return Annotated[bool | None, shown()], None
    if kind.startswith("<class 'bool"):
        return Annotated[bool, shown()], default
    if "str" in kind and ("int" in kind or "float" in kind):
        return Annotated[Any, shown(parser=whole_number(or_text=True))], default
    if "int" in kind:
        return Annotated[int | None, shown(parser=whole_number(said["least"], said["most"]))], default
    if "float" in kind:
        return Annotated[float | None, shown(parser=whole_number(None))], default
    return Annotated[(Path if "Path" in kind else str) | None, shown()], default


def _items(name: str, kind: str, value: Sequence[str]) -> tuple[Any, ...]:
    """The items typed for a list option; `--drop a --drop b` is `--drop a,b`."""
    words = [word for text in value for word in words_of(text)]
    parse: Callable[[str], Any] = whole_number() if "int" in kind else whole_number(None) if "float" in kind else str
    try:
        return tuple(map(parse, words))
    except typer.BadParameter as error:
        raise BadInput(Option(name), f": {error.message}") from error


class Suites(TyperGroup):
    """Commands that include suites; a suite is imported only when its command is invoked."""

    def suites(self) -> Mapping[str, str]:
        """Names of suites, and the modules that define their SUITE."""
        return {"demo": "laconic.bench.demo"}

    def load(self, name: str) -> "Suite":
        from laconic.bench.suite import load

        return load(self.suites()[name])

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.suites(), *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in self.suites():
            return own
        from laconic.cli.bench import command

        alone = typer.Typer(add_completion=False)
        alone.command(name=cmd_name)(command(self.load(cmd_name)))
        return typer.main.get_command(alone)


def whole_number(
    least: int | None = 1, most: int | None = None, *, or_text: bool = False
) -> Callable[[str | int], Any]:
    """A parser of whole numbers from `least` to `most`, also written as powers; with least=None, of any number.

    or_text  accept any number or text, such as auto, for the callee to check

    >>> whole_number()("8192"), whole_number()("2**26")
    (8192, 67108864)
    >>> list(map(whole_number(or_text=True), ["2**4", "0.5", "auto"]))
    [16, 0.5, 'auto']
    """

    def parse(text: str | int) -> Any:
        match = re.fullmatch(r"(-?\d{1,19})(?:(?:\*\*|\^)(\d{1,2}))?", str(text).strip(), re.ASCII)
        value = int(int(match[1]) ** int(match[2] or 1)) if match else None
        if or_text:
            with suppress(ValueError):
                return float(text) if value is None else value if value <= LARGEST else text
            return text
        if least is None:
            with suppress(ValueError):
                return float(text)
            raise typer.BadParameter(f"expected a number, such as 0.5 or 1e-4, got {text!r}")
        if value is not None and least <= value <= (most or LARGEST):
            return value
        allowed = f" from {least} to {most}" if most else f", at least {least}"
        if not most and value is not None and value > LARGEST:
            allowed = " below 2**63"
        raise typer.BadParameter(f"expected a whole number{allowed}, such as 2**10, got {text!r}")

    parse.__name__ = "NUMBER" if or_text or least is None else "INTEGER"
    return parse


def link_rate(text: str) -> float:
    """Parse a link rate to bits per second, also in the form that plans print.

    >>> link_rate("25gbit"), link_rate("100mbit"), link_rate("3.1 Gbit/s")
    (25000000000.0, 100000000.0, 3100000000.0)
    """
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)\s*([kmgt])bit(?:/s)?", text.strip().lower(), re.ASCII)
    value = float(match[1]) * _RATES[match[2]] if match else 0.0
    if not value > 0:
        raise typer.BadParameter(f"expected a rate such as 25gbit, 400gbit or 100mbit, got {text!r}")
    return value


def duration(text: str) -> float:
    """Parse a duration to seconds.

    >>> duration("20us"), duration("80ms")
    (2e-05, 0.08)
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([a-zµμ]+)", text.strip().lower())
    if match is None or match[2] not in _TIMES:
        raise typer.BadParameter(f"expected a time such as 20us, 80ms or 1.5s, got {text!r}")
    return float(f"{float(match[1]) * _TIMES[match[2]]:.12g}")


PARSERS = {"RATE": link_rate, "TIME": duration}
"""Parsers by the option's metavar."""


@contextmanager
def progress(n_steps: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with a step's name before each of `n_steps` steps."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn())
    with bar(n_steps, *columns, quiet=quiet) as (shown, task):
        begun = 0

        def begin(label: str) -> None:
            nonlocal begun
            shown.update(task, description=label, completed=begun)
            begun += 1

        yield begin


@contextmanager
def rows_progress(n_rows: int, *, quiet: bool, bytes_per_row: float = 0.0) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with a number of rows just done; with `bytes_per_row`, the bar counts bytes."""
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn

    unit = bytes_per_row or 1.0
    count = DownloadColumn() if bytes_per_row else MofNCompleteColumn()
    with bar(int(n_rows * unit), BarColumn(), count, quiet=quiet) as (shown, task):
        yield lambda n: shown.advance(task, n * unit)


@contextmanager
def bar(total: int | None, *columns: Any, quiet: bool, label: str = "", **fields: Any) -> Iterator[tuple[Any, Any]]:
    """A progress bar with these columns and the elapsed time, and its task; disabled if `quiet` or no terminal."""
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    disable = quiet or not sys.stderr.isatty()
    made = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=disable, transient=True)
    with nullcontext() if disable else made:  # some versions of rich end even a disabled bar with a line
        yield made, made.add_task(label, total=total, **fields)
