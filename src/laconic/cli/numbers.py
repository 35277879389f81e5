"""Numbers as people type them."""

import re
from collections.abc import Callable

import typer

from laconic.cli.errors import BadInput

AUTO = "auto"
LARGEST = 2**63 - 1
"""Of all whole numbers; messages speak of it only to who asks for more."""


def whole_number(least: int = 1, most: int | None = None) -> Callable[[str | int], int]:
    """A parser of whole numbers from `least` to `most`, which may be written as powers.

    >>> whole_number()("8192"), whole_number()("2**26")
    (8192, 67108864)
    """

    def parse(text: str | int) -> int:
        value = _value(text)
        if value is not None and least <= value <= (most or LARGEST):
            return value
        allowed = f" from {least} to {most}" if most else f", at least {least}"
        if not most and value is not None and value > LARGEST:
            allowed = " below 2**63"
        raise typer.BadParameter(f"expected a whole number{allowed}, such as 2**10, got {text!r}")

    parse.__name__ = "INTEGER"
    return parse


def whole_or_auto(name: str, text: str) -> int | None:
    """An option that is a whole number from 1, or auto, which is None.

    >>> whole_or_auto("--s", "2**4"), whole_or_auto("--s", "auto")
    (16, None)
    """
    value = _value(text)
    if text != AUTO and (value is None or not 1 <= value <= LARGEST):
        raise BadInput(f"{name} must be a whole number, at least 1, or {AUTO}; got {text!r}")
    return value


def positive_or_auto(name: str, text: str) -> float | None:
    """An option that is a number above zero, or auto, which is None.

    >>> positive_or_auto("--eta0", "0.5"), positive_or_auto("--eta0", "auto")
    (0.5, None)
    """
    if text == AUTO:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise BadInput(f"{name} must be a positive number or {AUTO}, got {text!r}")
    return value


def _value(text: str | int) -> int | None:
    """None for what is no number."""
    match = re.fullmatch(r"(-?\d{1,19})(?:(?:\*\*|\^)(\d{1,2}))?", str(text).strip(), re.ASCII)
    return int(int(match[1]) ** int(match[2] or 1)) if match else None
