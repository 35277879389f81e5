"""Read numbers and texts from documents, which are not trusted: unexpected values become None or plain text."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
LONGEST = 300
"""Characters of a value that are shown; the rest is cut."""


def under(row: Any, key: str) -> Any:
    """The value under a key; None if `row` is not an object or lacks the key."""
    return row.get(key) if isinstance(row, Mapping) else None


def finite(value: Any) -> float | None:
    """A finite float (the median of a spread); None for anything else.

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
    """The finite number (the median of a spread) under a key, else None.

    >>> number_in({"seconds": {"median": 0.5, "p20": 0.4, "p80": 0.6}}, "seconds"), number_in({"loss": "low"}, "loss")
    (0.5, None)
    """
    return finite(under(row, key))


def text_in(row: Any, key: str, otherwise: str = "") -> str:
    """The value under a key as text."""
    value = under(row, key)
    return otherwise if value is None else plain(value)


def rows_in(document: Any, key: str = "rows") -> list[Row]:
    """The objects of the list under a key; other items are skipped."""
    found = under(document, key)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def names_in(rows: Sequence[Row], key: str) -> list[str]:
    """The distinct texts under a key, in order of appearance."""
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
