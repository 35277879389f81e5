"""What a table of schemes says, in sentences made from its rows."""

from collections.abc import Sequence

from laconic.bench.survey import Finding

ABOUT_EQUAL = 1.15


def findings(rows: Sequence[Finding]) -> list[str]:
    """A sentence each on variance at equal bits, on size, and on the bounds."""
    by_label = {row.scheme: row for row in rows}
    widths = sorted({row.bits for row in rows})
    compared = [sentence for bits in widths if (sentence := _at_equal_bits(by_label, bits))]
    sized = _sizes(by_label["nuqsgd-4"]) if "nuqsgd-4" in by_label else ""
    return [sentence for sentence in (*compared, sized, _bounds(rows)) if sentence]


def times(a: float, b: float) -> str:
    """How a compares with b.

    >>> times(1.0, 80.0), times(3.0, 1.0), times(1.0, 1.1)
    ('80 times below', '3.0 times above', 'about equal to')
    """
    if a == b or (a and b and max(a / b, b / a) <= ABOUT_EQUAL):
        return "about equal to"
    if not a or not b:
        return "below" if a < b else "above"
    return f"{_short(b / a)} times below" if a < b else f"{_short(a / b)} times above"


def _short(x: float) -> str:
    return f"{x:.2g}" if x < 1 or x >= 1000 else f"{x:.1f}" if x < 10 else f"{x:.0f}"


def _at_equal_bits(rows: dict[str, Finding], bits: int) -> str | None:
    try:
        ours, qsgd, inf = (rows[f"{name}-{bits}"].variance for name in ("nuqsgd", "qsgd", "qsgdinf"))
    except KeyError:
        return None
    return (
        f"At {bits} bits NUQSGD's variance, {_short(ours)}, is {times(ours, qsgd)} QSGD's ({_short(qsgd)}) "
        f"and {times(ours, inf)} QSGDInf's ({_short(inf)})."
    )


def _sizes(row: Finding) -> str:
    name, coded = min(row.coded_bits.items(), key=lambda item: item[1])
    against = f", {100 * (coded / row.entropy - 1):.1f} % above the entropy" if row.entropy else ""
    return (
        f"{name} codes 4-bit NUQSGD in {coded:.2f} bits a coordinate{against}; "
        f"with norms and header the gradient is {32 / row.total_bits:.1f} times smaller than in fp32."
    )


def _bounds(rows: Sequence[Finding]) -> str:
    above = [row.scheme for row in rows if row.variance > row.bound]
    if above:
        return f"Above its proved bound: {', '.join(above)}."
    return f"All {len(rows)} variances are within their proved bounds."
