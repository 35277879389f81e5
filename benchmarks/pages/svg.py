"""Small SVG figures of curves and bars, with a grey that is visible on dark and light pages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

BLUE, ORANGE, GREEN, PURPLE, GREY = "#3b7dd8", "#d9822b", "#2e9e6b", "#a05cc0", "#74808c"
STYLE = "font-family: system-ui, sans-serif; font-size: 14px"
WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM = 460, 320, 56, 14, 46
LEGEND_LINE, LEGEND_TOP = 18, 42
LONG_NAME = 20
"""Length of a name above which a line of the legend has two names, not three."""
FEWEST_TICKS, MOST_DOTS = 3, 24
BAND = "#74808c66"


def svg(width: int, height: int, title: str, *parts: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}" '
        f'style="{STYLE}; max-width: {width}px; width: 100%" fill="{GREY}">\n'
        f"<title>{title}</title>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def text(x: float, y: float, words: str, anchor: str = "start", extra: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {extra}>{words}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = GREY, width: float = 1) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="{width:g}"/>'


def box(x: float, y: float, w: float, h: float, colour: str, opacity: float = 0.25) -> str:
    shape = f'x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}"'
    return f'<rect {shape} fill="{colour}" fill-opacity="{opacity:g}" stroke="{colour}"/>'


@dataclass(frozen=True)
class Curve:
    """A name, a colour, points (x, y), and the line's SVG dash pattern."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]
    dash: str = ""


@dataclass(frozen=True)
class Axis:
    """An axis from `low` at pixel `begin` to `high` at pixel `end`, linear or logarithmic."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        low, high, value = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return self.begin + (self.end - self.begin) * (value - low) / ((high - low) or 1.0)

    def ticks(self) -> list[float]:
        if self.low == self.high:
            return [self.low]
        if not self.log:
            step = nice((self.high - self.low) / 5)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [i * step for i in range(first, last + 1)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1,), (1, 3), (1, 2, 5)):
            found = [m * 10.0**i for i in powers for m in steps if self.low <= m * 10.0**i <= self.high]
            if len(found) >= FEWEST_TICKS:
                break
        return found


def nice(step: float) -> float:
    """The next of 1, 2, 2.5, 5, 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= step * 0.999)


def curves(
    title: str,
    x_name: str,
    y_name: str,
    shown: Sequence[Curve],
    x_log: bool = False,
    y_log: bool = False,
    dots: bool = False,
    beside: Sequence[Curve] = (),
    height: int = HEIGHT,
    x_ticks: Sequence[float] = (),
) -> str:
    """A figure of curves with a legend above; points that are not positive are left out of logarithmic axes.

    shown    curves; those without a name are not in the legend
    dots     whether to mark points, for curves with few of them
    beside   curves of other figures that share the axes
    x_ticks  ticks of the x axis; by default round numbers
    """
    if y_log:
        shown = [replace(curve, points=[(x, y) for x, y in curve.points if y > 0]) for curve in shown]
    xs = [x for curve in (*shown, *beside) for x, _ in curve.points]
    ys = [y for curve in (*shown, *beside) for _, y in curve.points]
    named = [curve for curve in shown if curve.name]
    legend, top = _legend([(curve.name, curve.colour) for curve in named], [curve.dash for curve in named])
    across = Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, x_log)
    margin = 0.03 * (max(ys) - min(ys))
    low, high = (min(ys) / 1.2, max(ys) * 1.2) if y_log else (min(ys) - margin, max(ys) + margin)
    up = Axis(low, high, height - BOTTOM, top, y_log)
    parts = [*_frame(title, y_name), *legend]
    parts += [_tick_up(y, up) for y in up.ticks()]
    parts += [text(across.at(x), height - BOTTOM + 18, f"{x:g}", "middle") for x in x_ticks or across.ticks()]
    parts.append(text(WIDTH - RIGHT, height - 8, x_name, "end"))
    radius = 3.5 if height == HEIGHT else 2.5
    for curve in shown:
        path = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in curve.points)
        ink = f'stroke-width="1.5" stroke-dasharray="{curve.dash}"' if curve.dash else 'stroke-width="2"'
        parts.append(f'<polyline points="{path}" fill="none" stroke="{curve.colour}" {ink}/>')
        for x, y in curve.points if dots and len(curve.points) <= MOST_DOTS else ():
            parts.append(f'<circle cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" r="{radius}" fill="{curve.colour}"/>')
    return svg(WIDTH, height, escape(title), *parts)


def bars(
    title: str,
    y_name: str,
    groups: Sequence[tuple[str, Sequence[float]]],
    names: Sequence[tuple[str, str]],
    band: tuple[float, float, str] | None = None,
) -> str:
    """Groups of bars side by side; names are (name, colour) of a group's bars, band a range to compare with."""
    legend, top = _legend([*names, (band[2], BAND)] if band else names)
    high = max([y for _, ys in groups for y in ys] + ([band[1]] if band else []))
    up = Axis(0.0, 1.05 * high, HEIGHT - BOTTOM, top)
    parts = [*_frame(title, y_name), *legend, *(_tick_up(y, up) for y in up.ticks())]
    if band:
        y, height = up.at(band[1]), up.at(band[0]) - up.at(band[1])
        parts.append(
            f'<rect x="{LEFT}" y="{y:.1f}" width="{WIDTH - LEFT - RIGHT}" height="{height:.1f}" fill="{BAND}"/>'
        )
    slot = (WIDTH - LEFT - RIGHT) / len(groups)
    for i, (name, ys) in enumerate(groups):
        width = 0.8 * slot / len(ys)
        for j, y in enumerate(ys):
            x, height = LEFT + slot * (i + 0.1) + width * j, up.at(0) - up.at(y)
            shape = f'x="{x:.1f}" y="{up.at(y):.1f}" width="{width - 2:.1f}" height="{height:.1f}"'
            parts.append(f'<rect {shape} fill="{names[j][1]}" fill-opacity="0.85"/>')
        parts.append(text(LEFT + slot * (i + 0.5), HEIGHT - BOTTOM + 18, name, "middle", 'font-size="12"'))
    return svg(WIDTH, HEIGHT, escape(title), *parts)


def _frame(title: str, y_name: str) -> list[str]:
    return [text(4, 16, escape(title), extra='font-weight="600"'), text(4, 34, escape(y_name), extra='font-size="12"')]


def _legend(names: Sequence[tuple[str, str]], dashes: Sequence[str] = ()) -> tuple[list[str], float]:
    """The names in lines of three, or of two if they are long, and the y at which the plot can begin."""
    n = 3 if max(len(name) for name, _ in names) <= LONG_NAME else 2
    parts, width = [], WIDTH / n
    for i, (name, colour) in enumerate(names):
        x, y = 4 + width * (i % n), LEGEND_TOP + LEGEND_LINE * (i // n + 0.5)
        dash = dashes[i] if dashes else ""
        stroke = line(x, y, x + 18, y, colour, 3)
        parts.append(stroke.replace("/>", f' stroke-dasharray="{dash}"/>') if dash else stroke)
        parts.append(text(x + 24, y + 4, escape(name), extra='font-size="12"'))
    return parts, LEGEND_TOP + LEGEND_LINE * math.ceil(len(names) / n) + 12


def _tick_up(y: float, up: Axis) -> str:
    at = up.at(y)
    grid = f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="{GREY}" stroke-opacity="0.3"/>'
    return grid + text(LEFT - 6, at + 4, f"{y:g}" if y >= 1e-3 or y <= 0 else f"{y:.0e}", "end")
