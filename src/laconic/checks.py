"""Checks of arguments that all layers share."""

from numbers import Integral
from typing import Any

from laconic.errors import InvalidOption, Option

MAX_SEED = 2**63 - 1
"""Largest seed of a random stream: saved states keep it in an int64."""


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
