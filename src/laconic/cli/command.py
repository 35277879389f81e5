"""What every command shares: options that take lists, and Ctrl-C in one line."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from laconic.errors import LaconicError

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
