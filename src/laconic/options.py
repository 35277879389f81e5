"""Options: declared once, as fields of a dataclass that commands are derived from, and checked alike everywhere."""

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
    """Return the value as an `int`; raise `InvalidOption` if it is no whole number from `least` to `most`.

    Any integer type will do, NumPy's too; `True` and 4.0 will not.

    owner  whose option it is, put in front of the message

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
    """Return a time limit, a timedelta or seconds, as a timedelta; raise `InvalidOption` if it is none.

    torch counts nanoseconds in 64 bits: it would take a limit of centuries for one that is over.

    >>> check_timeout(30).total_seconds()
    30.0
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if value is None or (type(seconds) in (int, float) and 0 < seconds <= MAX_SECONDS):
        return None if value is None else timedelta(seconds=seconds)
    what = f" must be a timedelta or seconds, above 0 and up to {MAX_SECONDS}; got {value!r}"
    raise InvalidOption(Option("timeout"), what)


ARGUMENT = "DATA"
"""As a flag: no option, but an argument in its place on the command line."""


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
    """A field of a dataclass of options, with what the command line says of it.

    default      None where whoever runs it chooses; a tuple for a list; MISSING if it must be given
    flag         such as "--codec", where the command's option is not called as the field is; "--output -o" for two;
                 `ARGUMENT`; None for what the command line does not have
    metavar      what stands for its value in the help text
    least, most  of a whole number
    parse        the text to the value, where that is none of the usual ones
    """
    said = {"help": help, "flag": flag, "metavar": metavar, "least": least, "most": most, "parse": parse}
    return field(default=default, metadata=said)


def like(declared: Any, name: str) -> Any:
    """A field as it is declared in another dataclass: the same default and the same option."""
    one = next(one for one in fields(declared) if one.name == name)
    return field(default=one.default, metadata=one.metadata)


def flags(options: Any) -> dict[str, str]:
    """The names, without dashes, of options that the command line calls otherwise than the fields.

    options  the dataclass or one of it
    """
    said = {one.name: one.metadata.get("flag") for one in fields(options)}
    return {name: flag.split(" ")[0].split("/")[0].lstrip("-") for name, flag in said.items() if flag}


def check_counts(options: Any) -> None:
    """Raise `InvalidOption` if a whole number among the options is below the least that its field allows."""
    for one in fields(options):
        value = getattr(options, one.name)
        if isinstance(value, int) and not isinstance(value, bool):
            check_int(one.name, value, one.metadata.get("least", 1))


def check_names(asked: Collection[str], known: Collection[str], what: str) -> None:
    """Raise `InvalidOption` if nothing is asked for, or something that is not among the known names."""
    for name in asked:
        if name not in known:
            raise InvalidOption(f"unknown {what} {name!r}; choose from {', '.join(known)}")
    if not asked:
        raise InvalidOption(f"no {what} to run; choose from {', '.join(known)}")
