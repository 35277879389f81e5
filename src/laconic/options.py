"""Options declared once, as fields of dataclasses from which commands are derived, and checks shared by all."""

from collections.abc import Callable, Collection
from dataclasses import field, fields
from datetime import timedelta
from numbers import Integral
from typing import Any

from laconic.errors import InvalidOption, Option

MAX_SEED = 2**63 - 1
"""Largest seed of a random stream: saved states keep it in an int64."""
MAX_SECONDS = 10**9
"""Longest time limit, 31 years."""


def check_int(name: str, value: Any, least: int, most: int | None = None, *, owner: str = "", hint: str = "") -> int:
    """Return the value as an `int`; raise `InvalidOption` unless it is a whole number from `least` to `most`.

    Any integer type is accepted, NumPy's too, but not `True` or 4.0.

    owner  the object that has the option, the prefix of the message

    >>> check_int("bits", 4, 2, 8)
    4
    >>> check_int("bits", True, 2, 8, owner="nuqsgd")
    Traceback (most recent call last):
        ...
    laconic.errors.InvalidOption: nuqsgd: bits must be a whole number from 2 to 8; got True
    """
    good = type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))  # the first is fast
    if not good or value < least or (most is not None and value > most):
        allowed = f", at least {least}" if most is None else f" from {least} to {most}"
        prefix = f"{owner}: " if owner else ""
        raise InvalidOption(prefix, Option(name), f" must be a whole number{allowed}{hint}; got {value!r}")
    return int(value)


def check_timeout(value: Any) -> timedelta | None:
    """Return a time limit, a timedelta or seconds, as a timedelta; raise `InvalidOption` if it is invalid.

    torch counts nanoseconds in 64 bits, so a limit of centuries would overflow and count as expired.

    >>> check_timeout(30).total_seconds()
    30.0
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if value is None or (type(seconds) in (int, float) and 0 < seconds <= MAX_SECONDS):
        return None if value is None else timedelta(seconds=seconds)
    what = f" must be a timedelta or seconds, above 0 and up to {MAX_SECONDS}; got {value!r}"
    raise InvalidOption(Option("timeout"), what)


ARGUMENT = "DATA"
"""As `flag`: a positional argument instead of an option."""


def option(
    default: Any,
    help: str,
    *,
    flag: str | None = "",
    metavar: str = "",
    least: int = 1,
    most: int | None = None,
    parse: Callable[[str], Any] | None = None,
) -> Any:
    """A dataclass field that is also an option of the command line.

    default      None if chosen at run time; a tuple for a list; MISSING if required
    flag         such as "--codec", where the option's name differs from the field's; "--output -o" for two; `ARGUMENT`;
                 None for a field that is not on the command line
    metavar      placeholder for its value in the help text
    least, most  bounds of a whole number
    parse        parser of the text, where the field's type does not imply one
    """
    said = {"help": help, "flag": flag, "metavar": metavar, "least": least, "most": most, "parse": parse}
    return field(default=default, metadata=said)


def like(declared: Any, name: str) -> Any:
    """A field with the default and the option of the same field in another dataclass."""
    one = next(one for one in fields(declared) if one.name == name)
    return field(default=one.default, metadata=one.metadata)


def flags(options: Any) -> dict[str, str]:
    """Field to option name, without dashes, where they differ.

    options  the dataclass or an instance of it
    """
    said = {one.name: one.metadata.get("flag") for one in fields(options)}
    return {name: flag.split(" ")[0].split("/")[0].lstrip("-") for name, flag in said.items() if flag}


def check_counts(options: Any) -> None:
    """Raise `InvalidOption` if a whole number among the options is below the minimum of its field."""
    for one in fields(options):
        value = getattr(options, one.name)
        if isinstance(value, int) and not isinstance(value, bool):
            check_int(one.name, value, one.metadata.get("least", 1))


def check_names(asked: Collection[str], known: Collection[str], what: str) -> None:
    """Raise `InvalidOption` if `asked` is empty or has a name that is not in `known`."""
    for name in asked:
        if name not in known:
            raise InvalidOption(f"unknown {what} {name!r}; choose from {', '.join(known)}")
    if not asked:
        raise InvalidOption(f"no {what} to run; choose from {', '.join(known)}")
