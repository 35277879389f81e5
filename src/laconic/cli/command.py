"""What every command shares: options that take lists, or that a dataclass declares, and Ctrl-C in one line."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from laconic.cli.errors import BadInput, spell
from laconic.cli.fit_options import names
from laconic.cli.numbers import whole_number
from laconic.errors import LaconicError
from laconic.options import flags

LIST = ",..."
"""The end of the metavar of an option that takes several values."""


class Interrupted(LaconicError):
    """The user has pressed Ctrl-C, and there is something to resume from."""


def with_lists(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose options that take lists may be repeated: `--drop a --drop b` is `--drop a,b`.

    function  takes such an option, one whose metavar ends in ",...", as a text with commas or None
    """
    kinds = get_type_hints(function, include_extras=True)
    lists = {name: info for name, kind in kinds.items() if (info := _list_option(kind)) is not None}

    @wraps(function)
    def command(**given: Any) -> None:
        for name in lists:
            given[name] = ",".join(given[name]) if given[name] else None
        function(**given)

    parameters = inspect.signature(function).parameters.values()
    changed = [
        one.replace(
            annotation=Annotated[list[str] | None, lists[one.name]] if one.name in lists else kinds[one.name],
            default=[one.default] if one.name in lists and one.default else one.default,
        )
        for one in parameters
    ]
    command.__signature__ = inspect.Signature(changed)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in changed}
    del command.__wrapped__
    return command


def _list_option(kind: Any) -> Any:
    """The option of an annotation that takes a list, or None."""
    for info in getattr(kind, "__metadata__", ()):
        if (getattr(info, "metavar", None) or "").endswith(LIST):
            return info
    return None


def options_command(run: Callable[..., None], name: str, *options: type[Any]) -> Callable[..., None]:
    """A command with an option for each field of some dataclasses (see `laconic.options`), as Typer takes it.

    run  is called with a mapping for each dataclass, of what was given by field; its docstring is the help
    """
    hints = [get_type_hints(one) for one in options]
    kinds = {key: str(kind) for one in hints for key, kind in one.items()}
    parameters = {one.name: _parameter(one, kinds[one.name]) for each in options for one in fields(each)}

    def command(**given: Any) -> None:
        asked = {key: _value(kinds[key], value) for key, value in given.items() if value is not None}
        run(*({key: asked[key] for key in one if key in asked} for one in hints))

    command.__name__, command.__doc__ = name, run.__doc__
    command.__annotations__ = {key: kind for key, (kind, _) in parameters.items()}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for key, (kind, default) in parameters.items()
        ]
    )
    return with_lists(command)


def _parameter(one: "Field[Any]", kind: str) -> tuple[Any, Any]:
    """The annotation and the default of a field's parameter. Lists are texts with commas, which are not shown."""
    said = one.metadata
    words = (said["flag"] or f"--{one.name.replace('_', '-')}").split(" ")
    shown = partial(typer.Option, *words, help=said["help"], metavar=said["metavar"] or None)
    default = None if one.default is MISSING else one.default
    if "Sequence" in kind:
        return Annotated[str | None, shown()], None
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


@contextmanager
def resumable(checkpoint: Path | None) -> Iterator[None]:
    """Around a fit: tell whoever interrupts it how to resume, if there is a checkpoint."""
    from laconic.glm.checkpoint import MANIFEST

    try:
        yield
    except KeyboardInterrupt as error:
        if checkpoint is None or not (checkpoint / MANIFEST).exists():
            raise
        how = f"the same command with --resume goes on from what {checkpoint} holds"
        raise Interrupted(f"interrupted; {how}") from error
