"""Errors at the command line: bad input, and options as a person types them."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from laconic.errors import LaconicError, Option

NAMES = {"exclude": "drop", "sample_weight": "weight", "fit_intercept": "intercept", "random_state": "seed"}
"""Arguments of the library whose option on the command line has another name."""


class BadInput(LaconicError):
    """An argument, a file or a value that the user has to correct. `laconic` exits with 2."""


class Interrupted(LaconicError):
    """The user has pressed Ctrl-C, and there is something to resume from. `laconic` exits with 130."""


@contextmanager
def bad_input() -> Iterator[None]:
    """Turn errors into `BadInput`. Use it only around code that checks what the user gave."""
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
    """An argument of the library as the command line's option, with its value as a person types it.

    names  options that have another name than the argument, both without dashes

    >>> spell(Option("batch_size")), spell(Option("exclude", ("id", "day of birth"))), spell(Option("dense", True))
    ('--batch-size', "--drop 'id,day of birth'", '--dense')
    >>> spell(Option("fit_intercept", False)), spell(Option("target", ...))
    ('--no-intercept', '--target')
    """
    name, value = names.get(option.name, option.name).replace("_", "-"), option.value
    if value is None or value is ... or value is True:
        return f"--{name}"
    typed = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    return f"--no-{name}" if value is False else f"--{name} {shlex.quote(typed)}"
