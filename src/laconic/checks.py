"""Checks of arguments that all layers share."""

from numbers import Integral
from typing import Any

MAX_SEED = 2**63 - 1
"""Of a random stream: saved states keep it in an int64."""


def whole(name: str, value: Any, least: int, most: int | None = None, *, hint: str = "") -> int:
    """The value as an `int`, or a `ValueError` that names it where it is no whole number from `least` to `most`.

    Any integer type will do, NumPy's too; `True` and 4.0 will not.

    >>> whole("bits", 4, 2, 8)
    4
    >>> whole("bits", True, 2, 8)
    Traceback (most recent call last):
        ...
    ValueError: bits must be a whole number from 2 to 8; got True
    """
    good = type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))  # the first is fast
    if not good or value < least or (most is not None and value > most):
        allowed = f", at least {least}" if most is None else f" from {least} to {most}"
        raise ValueError(f"{name} must be a whole number{allowed}{hint}; got {value!r}")
    return int(value)
