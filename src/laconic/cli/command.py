"""Commands whose options a dataclass declares."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from laconic.cli.errors import BadInput, spell
from laconic.cli.numbers import number_or_text, whole_number
from laconic.errors import LaconicError
from laconic.options import ARGUMENT, flags, option


@dataclass(frozen=True, slots=True)
class Printing:
    """What a command prints, and whether it shows how far it is."""

    as_json: bool = option(False, "Print JSON instead of text and tables.", flag="--json")
    quiet: bool = option(False, "No progress bar.", flag="--quiet -q")


def options_command(
    run: Callable[..., None], name: str, *options: "type[Any] | tuple[type[Any], Sequence[str]]"
) -> Callable[..., None]:
    """A command with an option for each field of some dataclasses (see `laconic.options`), as Typer takes it.

    run      is called with a mapping for each dataclass, of what was given by field; its docstring is the help
    options  dataclasses, or a dataclass and those of its fields that the command has
    """
    groups = [one if isinstance(one, tuple) else (one, [each.name for each in fields(one)]) for one in options]
    kinds = {key: str(kind) for one, _ in groups for key, kind in get_type_hints(one).items()}
    chosen = [[each for each in fields(one) if each.name in some] for one, some in groups]
    taken = [[each for each in group if each.metadata["flag"] is not None] for group in chosen]
    parameters = {each.name: _parameter(each, kinds[each.name]) for group in taken for each in group}

    def command(**given: Any) -> None:
        asked = {key: _value(kinds[key], value) for key, value in given.items() if value not in (None, [])}
        run(*({each.name: asked[each.name] for each in group if each.name in asked} for group in taken))

    command.__name__, command.__doc__ = name, run.__doc__
    command.__annotations__ = {key: kind for key, (kind, _) in parameters.items()}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for key, (kind, default) in parameters.items()
        ]
    )
    return command


def _parameter(one: "Field[Any]", kind: str) -> tuple[Any, Any]:
    """The annotation and the default of a field's parameter. Defaults of lists are not shown."""
    said = one.metadata
    words = (said["flag"] or f"--{one.name.replace('_', '-')}").split(" ")
    shown = partial(typer.Option, *words, help=said["help"], metavar=said["metavar"] or None)
    if said["flag"] == ARGUMENT:
        shown = partial(typer.Argument, help=said["help"], metavar=said["metavar"] or None)
    default = inspect.Parameter.empty if one.default is MISSING else one.default
    if said["parse"] is not None:
        return Annotated[Any, shown(parser=said["parse"])], default
    if "Sequence" in kind:
        return Annotated[list[str] | None, shown()], None
    if kind.startswith("<class 'bool"):
        return Annotated[bool, shown()], default
    if "str" in kind and ("int" in kind or "float" in kind):
        return Annotated[Any, shown(parser=number_or_text)], default
    if "int" in kind:
        return Annotated[int | None, shown(parser=whole_number(said["least"], said["most"]))], default
    found = Path if "Path" in kind else float if "float" in kind else str
    return Annotated[found | None, shown()], default


def names(given: Sequence[str] | None) -> tuple[str, ...]:
    """What an option that takes a list and may be repeated has got: `--drop a --drop b` is `--drop a,b`.

    >>> names(["a, b", "c"]), names(None)
    (('a', 'b', 'c'), ())
    """
    return tuple(filter(None, map(str.strip, ",".join(given or ()).split(","))))


def _value(kind: str, value: Any) -> Any:
    """What was typed, as the field takes it."""
    if "Sequence" not in kind:
        return value
    words = names(value)
    return tuple(whole_number()(word) for word in words) if "int" in kind else words


@contextmanager
def spelt(options: type[Any]) -> Iterator[None]:
    """Errors speak of the options by the names that the command gives them."""
    try:
        yield
    except LaconicError as error:
        raise BadInput(error.message(partial(spell, names=flags(options)))) from error
