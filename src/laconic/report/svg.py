"""Bars and curves as SVG: bars inside a page, and standalone pictures with a light or dark background of their own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from laconic.report.charts import Axis, Bar, BarChart, Bars, Curves
from laconic.units import ranged, shown

STYLE = (
    "svg{background:#fff}text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:15px}"
    ".dim{fill:#59636e}.grid{stroke:#8b949e;stroke-opacity:.3}.curve{fill:none;stroke-width:2}"
    ".bar{fill:#0969da}.limit{fill:#b6d4f5}.tick,.whisker,.reference{stroke:#1f2328}"
    "@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.dim{fill:#9198a1}"
    ".bar{fill:#58a6ff}.limit{fill:#1d3a4d}.tick,.whisker,.reference{stroke:#e6edf3}}"
)
COLOURS = ("#2f6fdb", "#d9480f", "#2b8a3e", "#9c36b5", "#b08900", "#0b7285", "#c2255c", "#6b7280")
DASHES = ("", "7 4", "2 4")
SHARE = 96.0
"""Per cent of the width that the longest bar takes."""
LABEL, PLOT, LINE, BARS_TOP = 250, 560, 22, 46
"""Layout of bar charts in pixels: widths of names and bars, heights of a line and of the heading."""
HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 400, 76, 530, 40, 52
"""Layout of line charts in pixels: the height, left and right end of the plot, its margins; names are to its right."""
NAME, LETTER = 42, 8
"""Pixels from the plot to a name, and per letter of a name."""
FEWEST_TICKS = 4


def esc(text: str) -> str:
    """Text escaped for HTML; lone surrogates become question marks.

    >>> esc('<script>"&')
    '&lt;script&gt;&quot;&amp;'
    """
    return escape(text.encode("utf-8", "replace").decode("utf-8"), quote=True)


def tag(name: str, inside: str | None = None, **attributes: str | float) -> str:
    """An element of HTML or SVG around `inside`, which is markup already; empty attributes are left out.

    >>> tag("rect", class_="bar", x=1.5), tag("th", "a", scope="", data_v="2")
    ('<rect class="bar" x="1.5"/>', '<th data-v="2">a</th>')
    """
    pairs = [(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value != ""]
    said = "".join(f' {key}="{value}"' for key, value in pairs)
    return f"<{name}{said}/>" if inside is None else f"<{name}{said}>{inside}</{name}>"


@dataclass(frozen=True, slots=True)
class Scale:
    """A logarithmic or linear scale from the number `low` at position `begin` to `high` at `end`."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = True

    def at(self, x: float) -> float:
        """The position of x, clipped to the ends.

        >>> Scale(1.0, 100.0, 0, 60).at(10.0), Scale(0.0, 4.0, 0, 60, log=False).at(3.0), Scale(1.0, 100.0, 0, 60).at(0)
        (30.0, 45.0, 0.0)
        """
        x, low, high = min(max(x, self.low), self.high), self.low, self.high
        if self.log:
            x, low, high = math.log(x), math.log(low), math.log(high)
        return self.begin + (self.end - self.begin) * ((x - low) / (high - low or 1.0))

    def ticks(self) -> list[float]:
        """Powers of ten; where they are few, also 2 and 5 times these."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1,), (1, 2, 5)):
            found = [m * 10.0**i for i in powers for m in steps if self.low * 0.999 <= m * 10.0**i <= self.high * 1.001]
            if len(found) >= FEWEST_TICKS:
                return found
        return found or [self.low]


def scale_of(one: Bars) -> Scale:
    """The scale of a chart's bars in percent: from 0 or, if logarithmic, from the next power of ten below."""
    candidates = [one.chart.reference, *(x for bar in one.bars for x in (bar.value, bar.limit, *(bar.spread or ())))]
    values = [x for x in candidates if x is not None and 0 < x < math.inf] or [1.0]
    power = max(10.0 ** math.floor(math.log10(min(values)) - 1e-9), math.ulp(0.0))
    return Scale(power if one.chart.log else 0.0, max(values), 0.0, SHARE, one.chart.log)


def track(bar: Bar, chart: BarChart, scale: Scale) -> str:
    """A bar 20 pixels high, as wide as its element: pale to its limit, solid to its value, with whisker and lines."""

    def at(x: float, least: float = 0.0) -> str:
        return f"{max(least, scale.at(x)):.2f}%"

    def line(kind: str, low: float, high: float, y1: int, y2: int) -> str:
        return tag("line", class_=kind, x1=at(low), x2=at(high), y1=y1, y2=y2)

    parts = []
    if bar.limit is not None:
        parts.append(tag("rect", class_="limit", y=3, height=14, width=at(bar.limit)))
    if bar.value is not None and bar.value > 0:
        parts.append(tag("rect", class_="bar", y=3, height=14, width=at(bar.value, 0.3)))
    parts += [line("tick", bar.limit, bar.limit, 1, 19)] if bar.limit is not None else []
    parts += [line("whisker", *bar.spread, 10, 10)] if bar.spread is not None else []
    parts += [line("reference", chart.reference, chart.reference, 0, 20)] if chart.reference is not None else []
    return "".join(parts)


def bar_text(bar: Bar, chart: BarChart) -> str:
    """The text beside a bar.

    >>> bar_text(Bar("a", 2.0, (1.5, 3.0), 4.0), BarChart("t", "seconds", "s"))
    '2.00 s / 4.00 s (1.50–3.00 s)'
    """
    limit = "" if bar.limit is None else f" / {shown(bar.limit, chart.unit)}"
    return shown(bar.value, chart.unit) + limit + (f" ({ranged(*bar.spread, chart.unit)})" if bar.spread else "")


def bars(one: Bars) -> str:
    """A bar chart as a picture: one line per bar, and if the scale is logarithmic, powers of ten below.

    >>> bars(Bars(BarChart("t", "error", log=True), [Bar("a", 1e-3)])).startswith("<svg")
    True
    """
    chart, scale, bottom = one.chart, scale_of(one), BARS_TOP + LINE * len(one.bars)
    parts = [_text(8, 18, chart.title, "title")]
    for i, (kind, name) in enumerate([("bar", "measured"), ("limit", one.limit)] if one.limit else []):
        parts.append(tag("rect", class_=kind, x=LABEL + 130 * i, y=28, width=12, height=10))
        parts.append(_text(LABEL + 130 * i + 18, 38, name))
    for value in scale.ticks() if scale.log else ():
        x = LABEL + PLOT * scale.at(value) / 100
        parts.append(tag("line", class_="grid", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=BARS_TOP, y2=bottom))
        parts.append(_text(x, bottom + 16, shown(value, chart.unit, 1), "dim", "middle"))
    for i, bar in enumerate(one.bars):
        y = BARS_TOP + LINE * i
        parts.append(_text(8, y + 15, f"{bar.label}  {bar.group}".rstrip()))
        parts.append(tag("svg", track(bar, chart, scale), x=LABEL, y=y, width=PLOT, height=20))
        parts.append(_text(LABEL + PLOT + 8, y + 15, bar_text(bar, chart), "dim"))
    longest = max((len(bar_text(bar, chart)) for bar in one.bars), default=0)
    return _svg(chart.title, LABEL + PLOT + 16 + LETTER * longest, bottom + 30, parts)


def lines(one: Curves) -> str:
    """The curves of a chart over its first axis, both axes logarithmic. Raises `ValueError` if a point is not above 0.

    >>> from laconic.report.charts import Curve, LineChart
    >>> chart = LineChart(Axis("y", "y"), axes=[Axis("x", "x")])
    >>> lines(Curves("t", chart, [Curve("a", [{"x": 1, "y": 2}])])).startswith("<svg")
    True
    """
    first, last = one.used_axes()[0], one.chart.y
    points = [[(point[first.key], point[last.key]) for point in curve.points] for curve in one.curves]
    xs, ys = ([point[i] for some in points for point in some] for i in (0, 1))
    if not xs or min(xs) <= 0 or min(ys) <= 0:
        raise ValueError("a chart on logarithmic axes needs points, all above 0")
    across, up = Scale(min(xs), max(xs), LEFT, RIGHT), Scale(min(ys), max(ys), HEIGHT - BOTTOM, TOP)
    parts = [_text(LEFT, 22, one.title, "title"), *_grid(first, last, across, up)]
    for i, some in enumerate(points):
        drawn, name = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in some), esc(one.curves[i].name)
        parts.append(tag("polyline", tag("title", name), class_="curve", **_ink(i), points=drawn))
    order = sorted(range(len(points)), key=lambda i: -points[i][-1][1])  # the highest end first
    for place, i in enumerate(order):
        x, y = RIGHT + 14, TOP + 8 + 20 * place
        parts.append(tag("line", class_="curve", **_ink(i), x1=x, y1=y, x2=x + 22, y2=y))
        parts.append(_text(RIGHT + NAME, y + 4, one.curves[i].name))
    return _svg(one.title, RIGHT + NAME + LETTER * max(len(curve.name) for curve in one.curves), HEIGHT, parts)


def _grid(x_axis: Axis, y_axis: Axis, across: Scale, up: Scale) -> list[str]:
    """Grid lines with their values, to one digit, and the names of the axes."""
    parts = []
    for value in across.ticks():
        x = across.at(value)
        parts.append(tag("line", class_="grid", x1=f"{x:.1f}", y1=TOP, x2=f"{x:.1f}", y2=HEIGHT - BOTTOM))
        parts.append(_text(x, HEIGHT - BOTTOM + 18, shown(value, x_axis.unit, 1), "", "middle"))
    for value in up.ticks():
        y = up.at(value)
        parts.append(tag("line", class_="grid", x1=LEFT, y1=f"{y:.1f}", x2=RIGHT, y2=f"{y:.1f}"))
        parts.append(_text(LEFT - 8, y + 4, shown(value, y_axis.unit, 1), "", "end"))
    parts.append(_text((LEFT + RIGHT) / 2, HEIGHT - 12, x_axis.name, "", "middle"))
    return [*parts, _text(LEFT, TOP - 4, y_axis.name, "", "end")]


def text_bar(value: float, smallest: float, largest: float, width: int = 20) -> str:
    """A bar of block characters on a logarithmic scale, for a terminal; an infinite one ends in an arrow.

    >>> text_bar(1e-2, 1e-4, 1.0, 4), text_bar(0.0, 1e-4, 1.0, 4)
    ('██', '')
    """
    if not (value > 0 and smallest > 0):
        return ""
    return "█" * max(1, round(Scale(smallest, largest, 0, width).at(value))) + "→" * (value == math.inf)


def _ink(i: int) -> dict[str, str]:
    return {"stroke": COLOURS[i % len(COLOURS)], "stroke_dasharray": DASHES[i // len(COLOURS) % len(DASHES)]}


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    return tag("text", esc(words), x=f"{x:g}", y=f"{y:g}", class_=kind, text_anchor=anchor)


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    body = tag("style", STYLE) + "\n" + "\n".join(parts) + "\n"
    size = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
    return tag("svg", body, xmlns="http://www.w3.org/2000/svg", **size, role="img", aria_label=esc(title)) + "\n"
