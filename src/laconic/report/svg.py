"""Pictures as SVG that stand alone: bars and curves on logarithmic axes, on a ground of their own, light or dark."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from laconic.report.blocks import Bar

STYLE = (
    "svg{background:#fff}text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:15px}"
    ".dim{fill:#59636e}.grid{stroke:#8b949e;stroke-opacity:.3}.curve,.mark{fill:none;stroke-width:2}"
    ".low{fill:#0969da}.high{fill:#0969da;fill-opacity:.28}"
    "@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.dim{fill:#9198a1}"
    ".low{fill:#58a6ff}.high{fill:#58a6ff;fill-opacity:.3}}"
)
PAGE_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;"
    "padding:0 1rem;color:#1f2328;background:#fff}pre{overflow-x:auto;font-size:13px}figure{margin:0}"
    "svg{max-width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}}"
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
class Chart:
    """Curves over two logarithmic axes.

    curves          by name, x and y of their points, all above 0
    x_text, y_text  how a number on an axis is written
    mark            a point to ring, such as what is recommended
    x_ticks         numbers to write below; by default powers of ten
    """

    title: str
    x_label: str
    y_label: str
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    x_text: Callable[[float], str] = "{:g}".format
    y_text: Callable[[float], str] = "{:g}".format
    mark: tuple[float, float] | None = None
    x_ticks: Sequence[float] = ()


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


def bars(title: str, rows: Sequence[Bar], key: tuple[str, str]) -> str:
    """One line per row on a logarithmic scale: a solid bar to its value, a pale one to its limit.

    key  what the two are; where they are not positive and finite there is no bar

    >>> bars("t", [Bar("a", 1e-3, limit=1e-1)], ("measured", "bound")).startswith("<svg")
    True
    """
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
    parts = [_text(8, y + 15, row.label)]
    for value, kind in ((row.limit, "high"), (row.value, "low")):
        if value and value > 0:
            length = max(1.0, axis.at(min(value, axis.high)) - axis.begin)
            parts.append(f'<rect class="{kind}" x="{LABEL}" y="{y + 3}" width="{length:.1f}" height="{LINE - 7}"/>')
    low = f"{row.value:.2g}" if row.value and row.value > 0 else "0"
    high = f"{row.limit:.2g}" if row.limit is not None and math.isfinite(row.limit) else "none"
    return [*parts, _text(LABEL + PLOT + 8, y + 15, f"{low} / {high}", "dim")]


def lines(chart: Chart) -> str:
    """The curves of a chart.

    >>> lines(Chart("t", "x", "y", {"a": ([1, 10], [2, 20])})).startswith("<svg")
    True
    """
    xs, ys = ([value for points in chart.curves.values() for value in points[i]] for i in (0, 1))
    if not xs or min(xs) <= 0 or min(ys) <= 0:
        raise ValueError("a chart on logarithmic axes needs points, all above 0")
    across = _Axis(min(xs), max(xs), LEFT, RIGHT)
    up = _Axis(min(ys), max(ys), HEIGHT - BOTTOM, TOP)
    width = RIGHT + NAME + LETTER * max(map(len, chart.curves))
    parts = [_text(LEFT, 22, chart.title, "title"), *_grid(chart, across, up)]
    for i, (name, curve) in enumerate(chart.curves.items()):
        points = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in zip(*curve, strict=True))
        parts.append(f'<polyline class="curve" {_ink(i)} points="{points}"><title>{escape(name)}</title></polyline>')
    order = sorted(enumerate(chart.curves), key=lambda one: -chart.curves[one[1]][1][-1])  # the highest end first
    for place, (i, name) in enumerate(order):
        x, y = RIGHT + 14, TOP + 8 + 20 * place
        parts.append(f'<line class="curve" {_ink(i)} x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}"/>')
        parts.append(_text(RIGHT + NAME, y + 4, name))
    if chart.mark is not None:
        at = f'cx="{across.at(chart.mark[0]):.1f}" cy="{up.at(chart.mark[1]):.1f}"'
        parts.append(f'<circle class="mark" {at} r="7" stroke="{COLOURS[1]}"/>')
    return _svg(chart.title, width, HEIGHT, parts)


def page(title: str, said: str, charts: Sequence[Chart]) -> str:
    """One HTML page with the charts and, as it is, a text."""
    shown = "\n".join(f"<figure>{lines(chart)}</figure>" for chart in charts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{PAGE_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{shown}\n"
        f"<pre>{escape(said)}</pre></body></html>\n"
    )


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


def _grid(chart: Chart, across: _Axis, up: _Axis) -> list[str]:
    parts = []
    for x in chart.x_ticks or across.ticks():
        p = across.at(x)
        parts.append(f'<line class="grid" x1="{p:.1f}" y1="{TOP}" x2="{p:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(_text(p, HEIGHT - BOTTOM + 18, chart.x_text(x), "", "middle"))
    for y in up.ticks():
        p = up.at(y)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{p:.1f}" x2="{RIGHT}" y2="{p:.1f}"/>')
        parts.append(_text(LEFT - 8, p + 4, chart.y_text(y), "", "end"))
    parts.append(_text((LEFT + RIGHT) / 2, HEIGHT - 12, chart.x_label, "", "middle"))
    return [*parts, _text(LEFT, TOP - 4, chart.y_label, "", "end")]


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
