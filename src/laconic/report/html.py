"""Render sections as one self-contained HTML page: no network, no other files, little script.

Every text goes through `esc`, so documents cannot inject markup. Bars have lengths in percent, so they need no script.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from typing import Any

from laconic._version import __version__
from laconic.report.charts import Axis, Bars, Curve, Curves
from laconic.report.presentation import Block, Section
from laconic.report.svg import bar_text, esc, scale_of, tag, track
from laconic.report.tables import SIGNS, Cell, Cells, Facts, Words
from laconic.units import shown

SHORT, LONG = 24, 40
"""Cells of up to SHORT characters do not wrap; columns with cells of more than LONG are kept wide."""
MOST_POINTS = 400


def web_page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The HTML page.

    >>> "<title>&lt;b&gt;</title>" in web_page("<b>", "", [Section("one")])
    True
    """
    here = files("laconic.report")
    style, script, page = (here.joinpath(f"page.{suffix}").read_text("utf-8") for suffix in ("css", "js", "html"))
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    charts: list[Curves] = []
    return page.format(
        policy="default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'"
        "".format(*hashes),
        version=__version__,
        title=esc(title),
        style=style,
        lead=esc(lead),
        contents="\n".join(f'<li><a href="#run-{i}">{esc(s.tag or s.title)}</a></li>' for i, s in enumerate(sections)),
        body="\n".join(_section(i, section, charts) for i, section in enumerate(sections)),
        data=embedded([chart_data(chart) for chart in charts]),
        script=script,
    )


def embedded(data: Any) -> str:
    """JSON that is safe inside a script element.

    >>> embedded(["</script>"])
    '["\\\\u003c/script\\\\u003e"]'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def chart_data(one: Curves) -> dict[str, Any]:
    """The data of a chart for the page's script."""
    chart, axes = one.chart, one.used_axes()
    return {
        "title": one.title,
        "log": chart.log,
        "logX": chart.log_x,
        "y": asdict(chart.y),
        "axes": [asdict(axis) for axis in axes],
        "curves": [{"name": c.name, "ink": c.ink, "points": _points(c, (chart.y, *axes))} for c in one.curves],
    }


def _points(curve: Curve, axes: Sequence[Axis]) -> list[list[Any]]:
    """For each point, its numbers along the axes and its label, if any."""
    return [
        [*(_rounded(point.get(axis.key)) for axis in axes), *([point["label"]] if "label" in point else [])]
        for point in thinned(curve.points)
    ]


def thinned(points: Sequence[Mapping[str, Any]], most: int = MOST_POINTS) -> list[Mapping[str, Any]]:
    """At most `most` of the points, evenly spaced, including the first and the last.

    >>> [p["iteration"] for p in thinned([{"iteration": i} for i in range(10)], 4)]
    [0, 3, 6, 9]
    """
    if len(points) <= most:
        return list(points)
    return [points[i * (len(points) - 1) // (most - 1)] for i in range(most)]


def _rounded(x: float | None) -> float | None:
    """x to seven digits, more than a chart shows; None or 0 beyond 1e±100, where the axes' arithmetic overflows."""
    return None if x is None or abs(x) > 1e100 else 0.0 if abs(x) < 1e-100 else float(f"{x:.7g}")


def _section(i: int, section: Section, charts: list[Curves]) -> str:
    """A section as HTML; its curves are appended to `charts`."""
    parts = []
    for panels, some in groupby(section.blocks, key=lambda one: isinstance(one, Curves) and one.chart.panels):
        made = []
        for one in some:
            made.append(block(one, len(charts)))
            charts += [one] if isinstance(one, Curves) else []
        parts += [tag("div", "".join(made), class_="panels")] if panels else made
    about = tag("p", esc(section.about), class_="about") if section.about else ""
    named = " " + tag("span", esc(section.tag), class_="tag") if section.tag else ""
    title = tag("h2", esc(section.title) + named, id=f"title-{i}")
    inside = "\n".join(parts)
    return tag("section", f"\n{title}\n{about}{inside}\n", id=f"run-{i}", aria_labelledby=f"title-{i}")


def block(one: Block, chart: int) -> str:
    """A block as HTML; for curves, `chart` is their index in the page's data."""
    match one:
        case Words(lines, listed=True):
            return tag("ul", "".join(tag("li", esc(line)) for line in lines))
        case Words(lines):
            return "".join(tag("p", esc(line)) for line in lines)
        case Facts(facts):
            pairs = [tag("dt", esc(name)) + tag("dd", esc(value)) for name, value in facts]
            return tag("dl", "".join(tag("div", pair) for pair in pairs), class_="facts")
        case Cells():
            return grid(one)
        case Bars():
            return bars(one)
        case Curves():
            return curves(one, chart)


def grid(one: Cells) -> str:
    """A table that scrolls inside its own box."""
    headings, classes = one.spread_headings(), ["n" if numeric else "" for numeric in one.numeric()]
    head = "".join(tag("th", esc(h), scope="col", class_=name) for h, name in zip(headings, classes, strict=True))
    body = "\n".join(tag("tr", "".join(_cell(cell, i, classes[i]) for i, cell in enumerate(row))) for row in one.rows)
    table = tag("table", tag("thead", tag("tr", head)) + "\n" + tag("tbody", f"\n{body}\n"), class_="sortable")
    scroll = tag("div", table, class_="scroll", role="region", tabindex=0, aria_label=esc(one.title)) + _note(one.note)
    if one.folded:
        return tag("details", tag("summary", esc(one.title)) + scroll, class_="folded")
    return tag("h3", esc(one.title)) + scroll


def _cell(cell: Cell, column: int, name: str) -> str:
    """A table cell of CSS class `name`, by default that of its width."""
    size = len(cell.shown)
    name = name or ("short" if size <= SHORT else "long" if size > LONG else "middle")
    sign = tag("span", SIGNS[cell.mark], class_="sign") if cell.mark else ""
    scope, value = "" if column else "row", "" if cell.value is None else repr(cell.value)
    classes = f"{name} {cell.mark}".rstrip()
    return tag("td" if column else "th", sign + esc(cell.shown), scope=scope, class_=classes, data_v=value)


def _note(text: str) -> str:
    return tag("p", esc(text), class_="note") if text else ""


def bars(one: Bars) -> str:
    """A bar chart: bars in groups, and a key."""
    chart, scale, parts = one.chart, scale_of(one), []
    for group, members in groupby(one.bars, key=lambda bar: bar.group):
        parts += [tag("h4", esc(group))] if group else []
        items = [
            tag("span", esc(bar.label), class_="label")
            + tag("svg", track(bar, chart, scale), class_="track", height=20, aria_hidden="true", focusable="false")
            + tag("span", esc(bar_text(bar, chart)), class_="value")
            for bar in members
        ]
        parts.append(tag("ul", "".join(tag("li", item) for item in items), class_="bars"))
    key = [f"after the slash, and ticked: {one.limit}"] if one.limit else []
    key += [f"line: {shown(chart.reference, chart.unit)}"] if chart.reference is not None else []
    key += ["logarithmic scale"] if chart.log else []
    key += ["whisker and brackets: 20th to 80th percentile"] if any(bar.spread for bar in one.bars) else []
    note = " ".join(filter(None, [chart.note, "; ".join(key).capitalize() + "." if key else ""]))
    return tag("figure", tag("figcaption", esc(chart.title)) + "".join(parts) + _note(note), class_="barchart")


def curves(one: Curves, chart: int) -> str:
    """A placeholder for a chart drawn by the script, and the ends of its curves; for a panel, only the placeholder."""
    panel = one.chart.panels
    said = "The curves are drawn by a script; without it, " + ("see the table." if panel else "here are their ends.")
    inside = tag("figcaption", esc(one.title)) + tag("noscript", _note(said)) + _note(one.chart.note)
    return tag("figure", inside + ("" if panel else grid(ends(one))), class_="chart", data_chart=chart)


def ends(one: Curves) -> Cells:
    """The last point of every curve, as a table."""
    axes = [*one.used_axes(), one.chart.y]
    rows = []
    for curve in one.curves:
        last: Mapping[str, Any] = next((p for p in reversed(curve.points) if p.get(one.chart.y.key) is not None), {})
        numbers = [(last.get(axis.key), axis.unit) for axis in axes]
        rows.append([Cell(curve.name), *(Cell(shown(x, unit, 4), x) for x, unit in numbers)])
    return Cells("The end of each curve", ["curve", *(axis.name for axis in axes)], rows, folded=True)
