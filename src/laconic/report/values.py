"""Numbers and words out of documents that anyone may have written: what is not as hoped for is None or plain text."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
LONGEST = 300
"""Characters of a value that are shown; what is longer is cut."""


def number_in(row: Any, key: str) -> float | None:
    """The finite number under a key; of a spread its median; else None.

    >>> number_in({"seconds": {"median": 0.5, "p20": 0.4, "p80": 0.6}}, "seconds"), number_in({"loss": "low"}, "loss")
    (0.5, None)
    """
    value = row.get(key) if isinstance(row, Mapping) else None
    return finite(value.get("median") if isinstance(value, Mapping) else value)


def spread_in(row: Any, key: str) -> tuple[float, float] | None:
    """The 20th and 80th percentile under a key, where there are any that differ.

    >>> spread_in({"seconds": {"median": 0.5, "p20": 0.4, "p80": 0.6}}, "seconds")
    (0.4, 0.6)
    """
    value = row.get(key) if isinstance(row, Mapping) else None
    if not isinstance(value, Mapping):
        return None
    low, high = finite(value.get("p20")), finite(value.get("p80"))
    return None if low is None or high is None or low == high else (low, high)


def finite(value: Any) -> float | None:
    """A finite float, or None.

    >>> finite(3), finite(True), finite(10**400), finite("3")
    (3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def text_in(row: Any, key: str, otherwise: str = "") -> str:
    """The value under a key as text."""
    value = row.get(key) if isinstance(row, Mapping) else None
    return otherwise if value is None else plain(value)


def plain(value: Any) -> str:
    """Any JSON value as a short text.

    >>> plain("a"), plain(True), plain([1, 2]), plain(None), plain({"median": 1.0, "p20": 0.9, "p80": 1.2})
    ('a', 'yes', '1, 2', '–', '1 (0.9–1.2)')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, list) and all(isinstance(x, str | int | float) for x in value):
        return _cut(", ".join(plain(x) for x in value))
    return _cut(value if isinstance(value, str) else json.dumps(value))


def rows_in(document: Any, key: str = "rows") -> list[Row]:
    """The objects of the list under a key; whatever is no object is passed over."""
    found = document.get(key) if isinstance(document, Mapping) else None
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def names_in(rows: Sequence[Row], key: str) -> list[str]:
    """The different texts under a key, in order of appearance."""
    return list(dict.fromkeys(text_in(row, key) for row in rows))


def _mapping(value: Row) -> str:
    median = number_in({"value": value}, "value")
    if median is None:
        return _cut(json.dumps(value))
    spread = spread_in({"value": value}, "value")
    return f"{median:.4g}" + (f" ({spread[0]:.4g}–{spread[1]:.4g})" if spread else "")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
