"""Pictures as SVG that stand alone: bars and curves on logarithmic axes, on a ground of their own, light or dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from laconic.report.blocks import Axis, Bar, Bars, Curves
from laconic.report.values import shown

STYLE = (
    "svg{background:#fff}text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:15px}"
    ".dim{fill:#59636e}.grid{stroke:#8b949e;stroke-opacity:.3}.curve{fill:none;stroke-width:2}"
    ".low{fill:#0969da}.high{fill:#0969da;fill-opacity:.28}"
    "@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.dim{fill:#9198a1}"
    ".low{fill:#58a6ff}.high{fill:#58a6ff;fill-opacity:.3}}"
)
COLOURS = ("#2f6fdb", "#d9480f", "#2b8a3e", "#9c36b5", "#b08900", "#0b7285", "#c2255c", "#6b7280")
DASHES = ("", "7 4", "2 4")
LABEL, PLOT, VALUE, LINE, BARS_TOP = 250, 560, 110, 22, 46
"""Of bars: widths of the columns, height of a line and of the heading, in pixels."""
HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 400, 76, 530, 40, 52
"""Of curves: the height, where the plot begins and ends across, and its margins; names stand to its right."""
NAME, LETTER = 42, 8
"""From the plot to a name, and what a letter takes at most on average."""
FEWEST_TICKS = 4


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic scale from `low` at pixel `begin` to `high` at pixel `end`."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        span = math.log(self.high) - math.log(self.low) or 1.0
        return self.begin + (self.end - self.begin) * (math.log(value) - math.log(self.low)) / span

    def ticks(self) -> list[float]:
        """Powers of ten; where they are few, twice and five times these too."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1,), (1, 2, 5)):
            found = [m * 10.0**i for i in powers for m in steps if self.low * 0.999 <= m * 10.0**i <= self.high * 1.001]
            if len(found) >= FEWEST_TICKS:
                return found
        return found or [self.low]


def bars(chart: Bars) -> str:
    """One line per bar on a logarithmic scale: a solid bar to its value, a pale one to its limit.

    Where these are not positive and finite there is no bar.

    >>> bars(Bars("t", [Bar("a", 1e-3, limit=1e-1)], limit="bound")).startswith("<svg")
    True
    """
    title, rows, key = chart.title, chart.bars, ("measured", chart.limit)
    values = [v for row in rows for v in (row.value, row.limit) if v and math.isfinite(v) and v > 0] or [1.0]
    first, last = math.floor(math.log10(min(values))), math.floor(math.log10(max(values))) + 1
    axis = _Axis(10.0**first, 10.0**last, LABEL, LABEL + PLOT)
    height = BARS_TOP + LINE * (len(rows) + 1) + 8
    parts = [_text(8, 18, title, "title")]
    for i, (kind, name) in enumerate(zip(("low", "high"), key, strict=True)):
        left = LABEL + 130 * i
        parts += [f'<rect class="{kind}" x="{left}" y="28" width="12" height="10"/>', _text(left + 18, 38, name)]
    for power in range(first, last + 1):
        x = axis.at(10.0**power)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{BARS_TOP}" y2="{height - 26}"/>')
        parts.append(_text(x, height - 10, f"1e{power}", "dim", "middle"))
    parts += [part for i, row in enumerate(rows) for part in _bar(row, BARS_TOP + LINE * i, axis)]
    return _svg(title, LABEL + PLOT + VALUE, height, parts)


def _bar(row: Bar, y: int, axis: _Axis) -> list[str]:
    parts = [_text(8, y + 15, f"{row.label}  {row.group}".rstrip())]
    for value, kind in ((row.limit, "high"), (row.value, "low")):
        if value and value > 0:
            length = max(1.0, axis.at(min(value, axis.high)) - axis.begin)
            parts.append(f'<rect class="{kind}" x="{LABEL}" y="{y + 3}" width="{length:.1f}" height="{LINE - 7}"/>')
    low = f"{row.value:.2g}" if row.value and row.value > 0 else "0"
    high = f"{row.limit:.2g}" if row.limit is not None and math.isfinite(row.limit) else "none"
    return [*parts, _text(LABEL + PLOT + 8, y + 15, f"{low} / {high}", "dim")]


def lines(chart: Curves) -> str:
    """The curves of a chart over its first axis, both axes logarithmic. Raises `ValueError` if a point is not above 0.

    >>> from laconic.report.blocks import Curve
    >>> lines(Curves("t", Axis("y", "y"), [Curve("a", [{"x": 1, "y": 2}])], [Axis("x", "x")])).startswith("<svg")
    True
    """
    first = chart.used_axes()[0]
    points = [[(point[first.key], point[chart.y.key]) for point in curve.points] for curve in chart.curves]
    xs, ys = ([point[i] for some in points for point in some] for i in (0, 1))
    if not xs or min(xs) <= 0 or min(ys) <= 0:
        raise ValueError("a chart on logarithmic axes needs points, all above 0")
    across = _Axis(min(xs), max(xs), LEFT, RIGHT)
    up = _Axis(min(ys), max(ys), HEIGHT - BOTTOM, TOP)
    width = RIGHT + NAME + LETTER * max(len(curve.name) for curve in chart.curves)
    parts = [_text(LEFT, 22, chart.title, "title"), *_grid(first, chart.y, across, up)]
    for i, some in enumerate(points):
        drawn, name = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in some), escape(chart.curves[i].name)
        parts.append(f'<polyline class="curve" {_ink(i)} points="{drawn}"><title>{name}</title></polyline>')
    order = sorted(range(len(points)), key=lambda i: -points[i][-1][1])  # the highest end first
    for place, i in enumerate(order):
        x, y = RIGHT + 14, TOP + 8 + 20 * place
        parts.append(f'<line class="curve" {_ink(i)} x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}"/>')
        parts.append(_text(RIGHT + NAME, y + 4, chart.curves[i].name))
    return _svg(chart.title, width, HEIGHT, parts)


def text_bar(value: float, smallest: float, largest: float, width: int = 20) -> str:
    """A bar of blocks on a logarithmic scale, for a terminal.

    >>> text_bar(1e-2, 1e-4, 1.0, 4), text_bar(0.0, 1e-4, 1.0, 4)
    ('██', '')
    """
    if not (value > 0 and smallest > 0):
        return ""
    if not math.isfinite(value):
        return "█" * width + "→"
    return "█" * max(1, round(_Axis(smallest, largest, 0, width).at(min(max(value, smallest), largest))))


def _grid(x_axis: Axis, y_axis: Axis, across: _Axis, up: _Axis) -> list[str]:
    parts = []
    for x in across.ticks():
        p = across.at(x)
        parts.append(f'<line class="grid" x1="{p:.1f}" y1="{TOP}" x2="{p:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(_text(p, HEIGHT - BOTTOM + 18, _tick(x, x_axis), "", "middle"))
    for y in up.ticks():
        p = up.at(y)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{p:.1f}" x2="{RIGHT}" y2="{p:.1f}"/>')
        parts.append(_text(LEFT - 8, p + 4, _tick(y, y_axis), "", "end"))
    parts.append(_text((LEFT + RIGHT) / 2, HEIGHT - 12, x_axis.name, "", "middle"))
    return [*parts, _text(LEFT, TOP - 4, y_axis.name, "", "end")]


def _tick(value: float, axis: Axis) -> str:
    """One digit, as ticks have."""
    return shown(value, axis.unit, 1)


def _ink(i: int) -> str:
    dash = DASHES[i // len(COLOURS) % len(DASHES)]
    return f'stroke="{COLOURS[i % len(COLOURS)]}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    more = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:g}" y="{y:g}"{more}>{escape(words)}</text>'


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(title)}"><style>{STYLE}</style>\n{body}\n</svg>\n'
    )
