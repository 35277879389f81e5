"""Rates, times and shares as people type them."""

import re

import typer

_RATES = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES = {"ns": 1e-9, "us": 1e-6, "\N{MICRO SIGN}s": 1e-6, "\N{GREEK SMALL LETTER MU}s": 1e-6, "ms": 1e-3, "s": 1.0}


def link_rate(text: str | float) -> float:
    """Bits a second; as plans print them, too.

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


link_rate.__name__, duration.__name__ = "RATE", "TIME"
