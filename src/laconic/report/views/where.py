"""What the ranks of a run are and what is between them, in words."""

from collections.abc import Sequence

from laconic.report.values import Row, number_in, text_in


def where(rows: Sequence[Row]) -> str:
    """Ranks, links and sizes of the first row.

    >>> where([{"ranks": 4, "rate": "1gbit", "n": 4194304}])
    '4 ranks, links of 1gbit, 4,194,304 values'
    """
    first = rows[0] if rows else {}
    ranks, n = number_in(first, "ranks"), number_in(first, "n")
    said = [f"{ranks:.0f} ranks" if ranks != 1 else "1 rank"] if ranks is not None else []
    if first.get("simulated") is True:
        said.append("simulated")
    elif first.get("rate"):
        slow = f", the last of {text_in(first, 'slow_rate')}" if first.get("slow_rate") else ""
        said.append(f"links of {text_in(first, 'rate')}{slow}")
    elif ranks is not None and "rate" in first:
        said.append("loopback")
    if n is not None:
        said.append(f"{n:,.0f} values")
    return ", ".join(said) or "ranks"
