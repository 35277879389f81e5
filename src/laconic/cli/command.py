"""Commands whose options a dataclass declares."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from laconic.cli.errors import BadInput, spell
from laconic.cli.fit import names
from laconic.cli.numbers import whole_number
from laconic.errors import LaconicError
from laconic.options import flags


def options_command(run: Callable[..., None], name: str, *options: type[Any]) -> Callable[..., None]:
    """A command with an option for each field of some dataclasses (see `laconic.options`), as Typer takes it.

    run  is called with a mapping for each dataclass, of what was given by field; its docstring is the help
    """
    hints = [get_type_hints(one) for one in options]
    kinds = {key: str(kind) for one in hints for key, kind in one.items()}
    parameters = {one.name: _parameter(one, kinds[one.name]) for each in options for one in fields(each)}

    def command(**given: Any) -> None:
        asked = {key: _value(kinds[key], value) for key, value in given.items() if value not in (None, [])}
        run(*({key: asked[key] for key in one if key in asked} for one in hints))

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
    default = None if one.default is MISSING else one.default
    if "Sequence" in kind:
        return Annotated[list[str] | None, shown()], None
    if kind.startswith("<class 'bool"):
        return Annotated[bool, shown()], False
    if said["parse"] is not None:
        return Annotated[Any, shown(parser=said["parse"])], default
    for word, found in (("Path", Path), ("float", float)):
        if word in kind:
            return Annotated[found | None, shown()], default
    if "int" in kind:
        return Annotated[int | None, shown(parser=whole_number(said["least"]))], default
    return Annotated[str | None, shown()], default


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
