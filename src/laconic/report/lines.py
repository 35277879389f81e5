"""Curves on logarithmic axes, as SVG that stands alone: no library, no script, legible on light and on dark."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

HEIGHT = 400
LEFT, RIGHT, TOP, BOTTOM = 76, 530, 40, 52
"""Where the plot begins and ends across, and its margins above and below; names of the curves stand to its right."""
NAME, LETTER = 42, 8
"""From the plot to a name, and what a letter takes at most on average."""
COLOURS = ("#2f6fdb", "#d9480f", "#2b8a3e", "#9c36b5", "#b08900", "#0b7285", "#c2255c", "#6b7280")
FEWEST_TICKS = 4
DASHES = ("", "7 4", "2 4")
STYLE = (
    "svg{background:#fff}text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:15px}"
    ".grid{stroke:#8b949e;stroke-opacity:.25}.curve{fill:none;stroke-width:2}.mark{fill:none;stroke-width:2}"
    "@media (prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}"
    ".grid{stroke:#8b949e;stroke-opacity:.35}}"
)
PAGE_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;"
    "padding:0 1rem;color:#1f2328;background:#fff}pre{overflow-x:auto;font-size:13px}figure{margin:0}"
    "svg{max-width:100%;height:auto}"
    "@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}}"
)


@dataclass(frozen=True, slots=True)
class Curve:
    """A name and its points; both coordinates above 0."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves over two logarithmic axes.

    x_text, y_text  how a number on an axis is written
    mark            a point to ring, such as what is recommended
    x_ticks         numbers to write below; by default powers of ten
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    x_text: Callable[[float], str] = "{:g}".format
    y_text: Callable[[float], str] = "{:g}".format
    mark: tuple[float, float] | None = None
    x_ticks: Sequence[float] = ()


def svg(chart: Chart) -> str:
    """The chart as one SVG element.

    >>> svg(Chart("t", "x", "y", [Curve("a", [1, 10], [2, 20])])).startswith("<svg")
    True
    """
    xs = [x for curve in chart.curves for x in curve.x]
    ys = [y for curve in chart.curves for y in curve.y]
    if not xs or min(xs) <= 0 or min(ys) <= 0:
        raise ValueError("a chart on logarithmic axes needs points, all above 0")
    across = _Axis(min(xs), max(xs), LEFT, RIGHT)
    up = _Axis(min(ys), max(ys), HEIGHT - BOTTOM, TOP)
    width = RIGHT + NAME + LETTER * max(len(curve.name) for curve in chart.curves)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(chart.title)}"><style>{STYLE}</style>',
        f'<text class="title" x="{LEFT}" y="22">{escape(chart.title)}</text>',
        *_grid(chart, across, up),
        *(_curve(curve, i, across, up) for i, curve in enumerate(chart.curves)),
        *_legend(chart),
    ]
    if chart.mark is not None:
        x, y = chart.mark
        parts.append(f'<circle class="mark" cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" r="7" stroke="{COLOURS[1]}"/>')
    return "".join([*parts, "</svg>"])


def page(title: str, text: str, charts: Sequence[Chart]) -> str:
    """One HTML page with the charts and, as it is, a text."""
    shown = "\n".join(f"<figure>{svg(chart)}</figure>" for chart in charts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{PAGE_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{shown}\n<pre>{escape(text)}</pre></body></html>\n"
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic scale from `low` at pixel `begin` to `high` at pixel `end`."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        span = math.log(self.high / self.low) or 1.0
        return self.begin + (self.end - self.begin) * math.log(value / self.low) / span

    def ticks(self) -> list[float]:
        """Powers of ten; where they are few, twice and five times these too."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1,), (1, 2, 5)):
            found = [m * 10.0**i for i in powers for m in steps if self.low * 0.999 <= m * 10.0**i <= self.high * 1.001]
            if len(found) >= FEWEST_TICKS:
                return found
        return found or [self.low]


def _grid(chart: Chart, across: _Axis, up: _Axis) -> list[str]:
    parts = []
    for x in chart.x_ticks or across.ticks():
        p = across.at(x)
        parts.append(f'<line class="grid" x1="{p:.1f}" y1="{TOP}" x2="{p:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(
            f'<text x="{p:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(chart.x_text(x))}</text>'
        )
    for y in up.ticks():
        p = up.at(y)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{p:.1f}" x2="{RIGHT}" y2="{p:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{p + 4:.1f}" text-anchor="end">{escape(chart.y_text(y))}</text>')
    middle = (LEFT + RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{escape(chart.x_label)}</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 4}" text-anchor="end">{escape(chart.y_label)}</text>')
    return parts


def _ink(i: int) -> str:
    dash = DASHES[i // len(COLOURS) % len(DASHES)]
    return f'stroke="{COLOURS[i % len(COLOURS)]}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _curve(curve: Curve, i: int, across: _Axis, up: _Axis) -> str:
    points = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in zip(curve.x, curve.y, strict=True))
    return f'<polyline class="curve" {_ink(i)} points="{points}"><title>{escape(curve.name)}</title></polyline>'


def _legend(chart: Chart) -> list[str]:
    """Names beside the plot, in the order in which the curves end, the highest first."""
    order = sorted(range(len(chart.curves)), key=lambda i: -chart.curves[i].y[-1])
    parts = []
    for place, i in enumerate(order):
        y = TOP + 8 + 20 * place
        x = RIGHT + 14
        parts.append(f'<line class="curve" {_ink(i)} x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}"/>')
        parts.append(f'<text x="{RIGHT + NAME}" y="{y + 4}">{escape(chart.curves[i].name)}</text>')
    return parts
