"""What commands do alike: a list is given once, and Ctrl-C ends in one line."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from laconic.errors import LaconicError

LIST = ",..."
"""The end of the metavar of an option that takes several values."""


class Interrupted(LaconicError):
    """The user has pressed Ctrl-C, and there is something to go on from."""


class Command(TyperCommand):
    """A command of `laconic`."""

    def make_parser(self, ctx: Any) -> Any:
        parser: Any = super().make_parser(ctx)
        parser.parse_args = _lists_once(ctx, parser.parse_args)
        return parser


def _lists_once(ctx: Any, parse: Callable[..., Any]) -> Callable[..., Any]:
    """Of an option that is given twice a parser keeps the last; of a list that would silently be a part."""

    def parse_args(args: Sequence[str]) -> Any:
        values, rest, order = parse(args=args)
        for option in order:
            metavar = option.metavar or ""
            if metavar.endswith(LIST) and order.count(option) > 1:
                ctx.fail(f"{option.opts[0]} is given twice; give it once, with commas: {option.opts[0]} {metavar}")
        return values, rest, order

    return parse_args


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
