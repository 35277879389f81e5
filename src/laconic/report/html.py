"""Sections to one HTML page that needs nothing else: no network, no other file, and hardly a script.

Every text goes through `esc`: what the documents say is never markup. Lengths of bars are shares of the width, so that
they need no script.
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import groupby
from math import floor, log10
from typing import Any

from laconic._version import __version__
from laconic.report.blocks import SIGNS, Bar, Bars, Block, Cell, Cells, Curves, Facts, Section, Words, thinned
from laconic.report.values import ranged, shown

SHORT, LONG = 24, 40
"""Characters up to which a cell does not wrap, and from which on its column must not be narrow."""
SHARE = 96.0
"""Per cent of the width that the longest bar takes."""


def web_page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The page as text.

    >>> "<title>&lt;b&gt;</title>" in web_page("<b>", "", [Section("one")])
    True
    """
    here = files("laconic.report")
    style, script, page = (here.joinpath(f"page.{suffix}").read_text("utf-8") for suffix in ("css", "js", "html"))
    charts: list[Curves] = []
    body = "\n".join(_section(i, section, charts) for i, section in enumerate(sections))
    return page.format(
        policy=policy(style, script),
        version=__version__,
        title=esc(title),
        style=style,
        lead=esc(lead),
        contents="\n".join(f'<li><a href="#run-{i}">{esc(s.tag or s.title)}</a></li>' for i, s in enumerate(sections)),
        body=body,
        data=embedded([chart_data(chart) for chart in charts]),
        script=script,
    )


def policy(style: str, script: str) -> str:
    """A Content-Security-Policy under which only this style and this script do anything, and nothing is fetched."""
    style_hash, script_hash = (b64encode(sha256(x.encode()).digest()).decode() for x in (style, script))
    return (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "base-uri 'none'; form-action 'none'"
    )


def embedded(data: Any) -> str:
    """JSON that may stand between script tags.

    >>> embedded(["</script>"])
    '["\\\\u003c/script\\\\u003e"]'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def chart_data(chart: Curves) -> dict[str, Any]:
    """What the script needs of a chart."""
    axes = chart.used_axes()
    return {
        "title": chart.title,
        "log": chart.log,
        "logX": chart.log_x,
        "y": {"key": chart.y.key, "name": chart.y.name, "unit": chart.y.unit},
        "axes": [{"key": axis.key, "name": axis.name, "unit": axis.unit} for axis in axes],
        "curves": [
            {"name": curve.name, "ink": curve.ink, "points": list(_points(chart, curve.points, axes))}
            for curve in chart.curves
        ],
    }


def _points(chart: Curves, points: Any, axes: Sequence[Any]) -> Iterator[list[Any]]:
    for point in thinned(points):
        numbers = [_rounded(point.get(key)) for key in (chart.y.key, *(axis.key for axis in axes))]
        yield [*numbers, point["label"]] if "label" in point else numbers


def _rounded(x: float | None) -> float | None:
    """Seven digits, which is more than a chart shows; beyond 1e±100 the arithmetic of the axes would overflow."""
    return None if x is None or abs(x) > 1e100 else 0.0 if abs(x) < 1e-100 else float(f"{x:.7g}")


def _section(i: int, section: Section, charts: list[Curves]) -> str:
    parts = []
    for panels, some in groupby(section.blocks, key=lambda one: isinstance(one, Curves) and one.panel):
        made = []
        for one in some:
            made.append(block(one, len(charts)))
            charts += [one] if isinstance(one, Curves) else []
        parts += [f'<div class="panels">{"".join(made)}</div>'] if panels else made
    about = f'<p class="about">{esc(section.about)}</p>' if section.about else ""
    inside = "\n".join(parts)
    tag = f' <span class="tag">{esc(section.tag)}</span>' if section.tag else ""
    title = f'<h2 id="title-{i}">{esc(section.title)}{tag}</h2>'
    return f'<section id="run-{i}" aria-labelledby="title-{i}">\n{title}\n{about}{inside}\n</section>'


def esc(text: str) -> str:
    """Text as HTML; halves of characters, which UTF-8 does not have, as question marks.

    >>> esc('<script>"&')
    '&lt;script&gt;&quot;&amp;'
    """
    return escape(text.encode("utf-8", "replace").decode("utf-8"), quote=True)


def block(one: Block, chart: int) -> str:
    """One block; `chart` is the number of its curves in the page's data, if it is curves."""
    match one:
        case Words(lines, listed=True):
            return "<ul>" + "".join(f"<li>{esc(line)}</li>" for line in lines) + "</ul>"
        case Words(lines):
            return "".join(f"<p>{esc(line)}</p>" for line in lines)
        case Facts(facts):
            pairs = "".join(f"<div><dt>{esc(name)}</dt><dd>{esc(value)}</dd></div>" for name, value in facts)
            return f'<dl class="facts">{pairs}</dl>'
        case Cells():
            return grid(one)
        case Bars():
            return bars(one)
        case Curves():
            return curves(one, chart)


def grid(one: Cells) -> str:
    """A table that scrolls inside its own box."""
    numeric, headings = one.numeric(), one.spread_headings()
    head = "".join(
        f'<th scope="col"{_class("n" if n else "")}>{esc(h)}</th>' for h, n in zip(headings, numeric, strict=True)
    )
    body = "\n".join(f"<tr>{_cells(row, numeric)}</tr>" for row in one.rows)
    table = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{esc(one.title)}">'
        f'<table class="sortable"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
        + _note(one.note)
    )
    if one.folded:
        return f'<details class="folded"><summary>{esc(one.title)}</summary>{table}</details>'
    return f"<h3>{esc(one.title)}</h3>{table}"


def _cells(row: Sequence[Cell], numeric: Sequence[bool]) -> str:
    parts = []
    for i, cell in enumerate(row):
        classes = " ".join(filter(None, ("n" if numeric[i] else _width(cell.shown), cell.mark)))
        value = "" if cell.value is None else f' data-v="{cell.value!r}"'
        sign = f'<span class="sign">{SIGNS[cell.mark]}</span>' if cell.mark else ""
        tag = "th" if i == 0 else "td"
        scope = ' scope="row"' if i == 0 else ""
        parts.append(f"<{tag}{scope}{_class(classes)}{value}>{sign}{esc(cell.shown)}</{tag}>")
    return "".join(parts)


def _width(text: str) -> str:
    return "short" if len(text) <= SHORT else "long" if len(text) > LONG else "middle"


def _note(text: str) -> str:
    return f'<p class="note">{esc(text)}</p>' if text else ""


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def bars(one: Bars) -> str:
    """Bars in their groups, and what their signs mean."""
    rows = bar_rows(one)
    parts = []
    for group, members in groupby(zip(one.bars, rows, strict=True), key=lambda pair: pair[0].group):
        if group:
            parts.append(f"<h4>{esc(group)}</h4>")
        items = "".join(
            f'<li><span class="label">{esc(bar.label)}</span>{svg}<span class="value">{esc(value)}</span></li>'
            for bar, (svg, value) in members
        )
        parts.append(f'<ul class="bars">{items}</ul>')
    key = [f"after the slash, and ticked: {one.limit}"] if one.limit else []
    key += [f"line: {shown(one.reference, one.unit)}"] if one.reference is not None else []
    key += ["logarithmic scale"] if one.log else []
    key += ["whisker and brackets: 20th to 80th percentile"] if any(bar.spread for bar in one.bars) else []
    note = " ".join(filter(None, [one.note, "; ".join(key).capitalize() + "." if key else ""]))
    return f'<figure class="barchart"><figcaption>{esc(one.title)}</figcaption>{"".join(parts)}{_note(note)}</figure>'


def curves(one: Curves, chart: int) -> str:
    """The place of a chart that the script draws, and the ends of its curves; of a panel, only the place."""
    said = "The curves are drawn by a script; without it, " + (
        "see the table." if one.panel else "here are their ends."
    )
    return (
        f'<figure class="chart" data-chart="{chart}"><figcaption>{esc(one.title)}</figcaption>'
        f'<noscript><p class="note">{said}</p></noscript>'
        f"{_note(one.note)}{'' if one.panel else grid(ends(one))}</figure>"
    )


def ends(one: Curves) -> Cells:
    """The last point of every curve, as a table."""
    axes = [*one.used_axes(), one.y]
    rows = []
    for curve in one.curves:
        last: Mapping[str, Any] = next((p for p in reversed(curve.points) if p.get(one.y.key) is not None), {})
        rows.append([Cell(curve.name), *(Cell.of(last.get(axis.key), axis.unit, 4) for axis in axes)])
    return Cells("The end of each curve", ["curve", *(axis.name for axis in axes)], rows, folded=True)


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
