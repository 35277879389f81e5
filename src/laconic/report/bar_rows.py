"""A bar as an SVG of its own, as wide as there is room: lengths are shares of the width, so no script is needed."""

from math import floor, log10

from laconic.report.blocks import Bar, Bars
from laconic.report.units import ranged, shown

SHARE = 96.0
"""Per cent of the width that the longest bar takes."""


def bar_rows(one: Bars) -> list[tuple[str, str]]:
    """For each bar its SVG and its value as text.

    >>> bar_rows(Bars("t", [Bar("a", 2.0), Bar("b", None)], "×"))[0][1]
    '2.00 ×'
    """
    scale = _Scale(one)
    return [(_svg(bar, one, scale), _value(bar, one)) for bar in one.bars]


class _Scale:
    """Where on a bar a value is, in per cent."""

    def __init__(self, one: Bars) -> None:
        candidates = [one.reference, *(x for bar in one.bars for x in (bar.value, bar.limit, *(bar.spread or ())))]
        values = [x for x in candidates if x is not None and x > 0] or [1.0]
        self.log = one.log
        self.largest: float = max(values)
        self.first = floor(log10(min(values)) - 1e-9)

    def at(self, x: float) -> float:
        if x <= 0:
            return 0.0
        if not self.log:
            return SHARE * (x / self.largest)
        share: float = max(0.0, log10(x) - self.first) / (log10(self.largest) - self.first or 1.0)
        return SHARE * share


def _svg(bar: Bar, one: Bars, scale: _Scale) -> str:
    parts = []
    if bar.limit is not None:
        parts.append(f'<rect class="limit" y="3" height="14" width="{scale.at(bar.limit):.2f}%"/>')
    if bar.value is not None and bar.value > 0:
        parts.append(f'<rect class="bar" y="3" height="14" width="{max(0.3, scale.at(bar.value)):.2f}%"/>')
    if bar.limit is not None:
        x = f"{scale.at(bar.limit):.2f}%"
        parts.append(f'<line class="tick" x1="{x}" x2="{x}" y1="1" y2="19"/>')
    if bar.spread is not None:
        low, high = (f"{scale.at(x):.2f}%" for x in bar.spread)
        parts.append(f'<line class="whisker" x1="{low}" x2="{high}" y1="10" y2="10"/>')
    if one.reference is not None:
        x = f"{scale.at(one.reference):.2f}%"
        parts.append(f'<line class="reference" x1="{x}" x2="{x}" y1="0" y2="20"/>')
    return f'<svg class="track" height="20" aria-hidden="true" focusable="false">{"".join(parts)}</svg>'


def _value(bar: Bar, one: Bars) -> str:
    text = shown(bar.value, one.unit)
    if bar.limit is not None:
        text += f" / {shown(bar.limit, one.unit)}"
    if bar.spread is not None:
        text += f" ({ranged(*bar.spread, one.unit)})"
    return text
