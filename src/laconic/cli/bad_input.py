"""What the user gave and we cannot use."""

from collections.abc import Iterator
from contextlib import contextmanager

from laconic.errors import LaconicError


class BadInput(LaconicError):
    """An argument, a file or a value that has to be mended at the keyboard."""


@contextmanager
def bad_input() -> Iterator[None]:
    """Errors in here are about what the user gave: put it only around code that looks at that."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        where = f"cannot write {error.filename}: " if error.filename else ""
        raise BadInput(f"{where}{error.strerror or error}") from error
