"""What commands do alike: a list is given once, files take the place of files only, and Ctrl-C ends in one line."""

import os.path
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from laconic.errors import LaconicError

LIST = ",..."
"""The end of the metavar of an option that takes several values."""
WRITTEN = ("output", "save", "chart", "report")
"""Parameters that say where a file goes."""


class Interrupted(LaconicError):
    """The user has pressed Ctrl-C, and there is something to go on from."""


class Command(TyperCommand):
    """A command of `laconic`."""

    def make_parser(self, ctx: Any) -> Any:
        parser: Any = super().make_parser(ctx)
        parser.parse_args = _checked(ctx, parser.parse_args)
        return parser


def _checked(ctx: Any, parse: Callable[..., Any]) -> Callable[..., Any]:
    """Parse as `parse` does, then look at the lists and the files."""

    def parse_args(args: Sequence[str]) -> Any:
        values, rest, order = parse(args=args)
        _check_lists(ctx, order)
        _check_files(ctx, values)
        return values, rest, order

    return parse_args


def _check_lists(ctx: Any, order: Sequence[Any]) -> None:
    """Of an option that is given twice a parser keeps the last; of a list that would silently be a part."""
    for option in order:
        metavar = option.metavar or ""
        if metavar.endswith(LIST) and order.count(option) > 1:
            ctx.fail(f"{option.opts[0]} is given twice; give it once, with commas: {option.opts[0]} {metavar}")


def _check_files(ctx: Any, values: Mapping[str, Any]) -> None:
    """What is written is renamed into place at the end, and root may rename over /dev/null."""
    for path in (values[name] for name in WRITTEN if isinstance(values.get(name), str)):
        if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
            ctx.fail(f"cannot write {path}: it is a device or a pipe, and a file would take its place")


@contextmanager
def resumable(checkpoint: Path | None) -> Iterator[None]:
    """Around a fit: who interrupts it is told how to go on, where there is something to go on from."""
    from laconic.glm.checkpoint import MANIFEST

    try:
        yield
    except KeyboardInterrupt as error:
        if checkpoint is None or not (checkpoint / MANIFEST).exists():
            raise
        how = f"the same command with --resume goes on from what {checkpoint} holds"
        raise Interrupted(f"interrupted; {how}") from error
