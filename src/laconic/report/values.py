"""Numbers and words out of documents, and how people write them.

Anyone may have written a document: what is not as hoped for is None or plain text.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Row = Mapping[str, Any]
LONGEST = 300
"""Characters of a value that are shown; what is longer is cut."""


def under(row: Any, key: str) -> Any:
    """What stands under a key; None if `row` is no object or has nothing there."""
    return row.get(key) if isinstance(row, Mapping) else None


def finite(value: Any) -> float | None:
    """A finite float, of a spread its median; else None.

    >>> finite(3), finite({"median": 0.5}), finite(True), finite(10**400), finite("3")
    (3.0, 0.5, None, None, None)
    """
    value = value.get("median") if isinstance(value, Mapping) else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def percentiles(value: Any) -> tuple[float, float] | None:
    """The 20th and 80th percentile of a spread, if they differ.

    >>> percentiles({"median": 0.5, "p20": 0.4, "p80": 0.6})
    (0.4, 0.6)
    """
    low, high = finite(under(value, "p20")), finite(under(value, "p80"))
    return None if low is None or high is None or low == high else (low, high)


def number_in(row: Any, key: str) -> float | None:
    """The finite number under a key; of a spread its median; else None.

    >>> number_in({"seconds": {"median": 0.5, "p20": 0.4, "p80": 0.6}}, "seconds"), number_in({"loss": "low"}, "loss")
    (0.5, None)
    """
    return finite(under(row, key))


def text_in(row: Any, key: str, otherwise: str = "") -> str:
    """The value under a key as text."""
    value = under(row, key)
    return otherwise if value is None else plain(value)


def rows_in(document: Any, key: str = "rows") -> list[Row]:
    """The objects of the list under a key; whatever is no object is passed over."""
    found = under(document, key)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def names_in(rows: Sequence[Row], key: str) -> list[str]:
    """The different texts under a key, in order of appearance."""
    return list(dict.fromkeys(text_in(row, key) for row in rows))


def plain(value: Any) -> str:
    """Any JSON value as a short text.

    >>> plain("a"), plain(True), plain([1, 2]), plain(None), plain({"median": 1.0, "p20": 0.9, "p80": 1.2})
    ('a', 'yes', '1, 2', '–', '1 (0.9–1.2)')
    """
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    median, spread = finite(value), percentiles(value)
    if isinstance(value, Mapping) and median is not None:
        return f"{median:.4g}" + (f" ({spread[0]:.4g}–{spread[1]:.4g})" if spread else "")
    if isinstance(value, list) and all(isinstance(x, str | int | float) for x in value):
        value = ", ".join(plain(x) for x in value)
    said = value if isinstance(value, str) else json.dumps(value)
    return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"


Unit = Literal["", "n", "s", "ms", "µs", "B", "kB", "MB", "M", "×", "%", "bits", "GB/s", "bit/s"]
"""What a number is of: nothing, a count, seconds, bytes, a ratio, a share (0.01 is 1 %), bits, bytes or bits a second.
Of seconds, bytes and bit/s a prefix is chosen; "ms", "µs", "kB", "MB" and "M" (millions) are for headings that name
them."""

PREFIXES: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "bit/s": ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s")),
    "B": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
}
FIXED = {"ms": 1e3, "µs": 1e6, "kB": 1e-3, "MB": 1e-6, "M": 1e-6}


def shown(x: float | None, unit: Unit = "", digits: int = 3) -> str:
    """`digits` significant digits and the unit; a dash for nothing.

    >>> shown(40.0, "n"), shown(0.5, "n"), shown(0.2724, "ms")
    ('40', '0.500', '272')
    >>> shown(0.2724, "s"), shown(25165824, "B"), shown(2.415, "×"), shown(0.005, "%"), shown(None), shown(1.6e-9)
    ('272 ms', '25.2 MB', '2.42 ×', '0.500 %', '–', '1.60e-9')
    """
    if x is None:
        return "–"
    if unit in PREFIXES:
        size, name = next((p for p in PREFIXES[unit] if abs(x) >= 0.9995 * p[0]), PREFIXES[unit][-1])
        return f"{_digits(x / size, digits)} {name if x else unit}"
    if unit in FIXED:
        return _digits(x * FIXED[unit], digits)
    if unit == "n" and x == int(x):
        return f"{x:,.0f}"
    scaled = 100 * x if unit == "%" else x
    unit = "" if unit == "n" else unit
    return f"{_digits(scaled, digits)} {unit}".rstrip()


def ranged(low: float, high: float, unit: Unit = "", digits: int = 3) -> str:
    """A range, with the unit once where both ends have the same.

    >>> ranged(0.265, 0.281, "s"), ranged(0.9e-3, 1.1e-3, "s"), ranged(2.1, 2.5, "×")
    ('265–281 ms', '900 µs–1.10 ms', '2.10–2.50')
    """
    if unit == "×":
        unit = ""
    (first, _, name), (last, _, other) = (shown(x, unit, digits).partition(" ") for x in (low, high))
    return f"{first}–{last} {name}".rstrip() if name == other else f"{first} {name}–{last} {other}"


def _digits(x: float, digits: int) -> str:
    if x == 0 or not math.isfinite(x):
        return "0" if x == 0 else f"{x}".replace("inf", "∞")
    if not 1e-4 <= abs(x) < 1e7:
        base, power = f"{x:.{digits - 1}e}".split("e")
        return f"{base}e{int(power)}"
    return f"{x:,.0f}" if abs(x) >= 10 ** (digits - 1) - 0.5 else f"{x:#.{digits}g}"
