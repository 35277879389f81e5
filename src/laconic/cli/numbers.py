"""Numbers, rates and times as people type them."""

import re
from collections.abc import Callable

import typer

LARGEST = 2**63 - 1
"""The largest whole number that is taken."""
_RATES = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES = {"ns": 1e-9, "us": 1e-6, "\N{MICRO SIGN}s": 1e-6, "\N{GREEK SMALL LETTER MU}s": 1e-6, "ms": 1e-3, "s": 1.0}


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


def number_or_text(text: str) -> int | float | str:
    """A number where it is one; else the text, such as auto, which is for whoever takes it to judge.

    >>> number_or_text("2**4"), number_or_text("0.5"), number_or_text("auto")
    (16, 0.5, 'auto')
    """
    whole = _value(text)
    if whole is not None:
        return whole if whole <= LARGEST else text
    try:
        return float(text)
    except ValueError:
        return text


def link_rate(text: str | float) -> float:
    """Bits per second; as plans print them, too.

    >>> link_rate("25gbit"), link_rate("100mbit"), link_rate("3.1 Gbit/s")
    (25000000000.0, 100000000.0, 3100000000.0)
    """
    if isinstance(text, float):  # a default
        return text
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)\s*([kmgt])bit(?:/s)?", str(text).strip().lower(), re.ASCII)
    value = float(match[1]) * _RATES[match[2]] if match else 0.0
    if not value > 0:
        raise typer.BadParameter(f"expected a rate such as 25gbit, 400gbit or 100mbit, got {text!r}")
    return value


def duration(text: str | float) -> float:
    """Seconds.

    >>> duration("20us"), duration("80ms")
    (2e-05, 0.08)
    """
    if isinstance(text, float):  # a default
        return text
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([a-zµμ]+)", str(text).strip().lower())
    if match is None or match[2] not in _TIMES:
        raise typer.BadParameter(f"expected a time such as 20us, 80ms or 1.5s, got {text!r}")
    return float(f"{float(match[1]) * _TIMES[match[2]]:.12g}")


def _value(text: str | int) -> int | None:
    """None for what is no number."""
    match = re.fullmatch(r"(-?\d{1,19})(?:(?:\*\*|\^)(\d{1,2}))?", str(text).strip(), re.ASCII)
    return int(int(match[1]) ** int(match[2] or 1)) if match else None
