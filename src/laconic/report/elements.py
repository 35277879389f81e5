"""Blocks to HTML. Every text goes through `esc`: what the documents say is never markup."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from laconic.report.bar_rows import bar_rows
from laconic.report.blocks import Bars, Block, Cell, Curves, Facts, Grid, Words
from laconic.report.units import shown

SHORT, LONG = 24, 40
"""Characters up to which a cell does not wrap, and from which on its column must not be narrow."""
SIGNS = {"good": "✓ ", "bad": "✗ "}


def esc(text: str) -> str:
    """Text as HTML; halves of characters, which UTF-8 does not have, as question marks.

    >>> esc('<script>"&')
    '&lt;script&gt;&quot;&amp;'
    """
    return escape(text.encode("utf-8", "replace").decode("utf-8"), quote=True)


def block(one: Block, chart: int) -> str:
    """One block; `chart` is the number of its curves in the page's data, if it is curves."""
    match one:
        case Words():
            return _words(one)
        case Facts():
            return _facts(one)
        case Grid():
            return grid(one)
        case Bars():
            return _bars(one)
        case Curves():
            return _curves(one, chart)


def grid(one: Grid) -> str:
    """A table that scrolls inside its own box."""
    numeric, headings = one.numeric(), one.spread_headings()
    head = "".join(
        f'<th scope="col"{_class("n" if n else "")}>{esc(h)}</th>' for h, n in zip(headings, numeric, strict=True)
    )
    body = "\n".join(f"<tr>{_cells(row, numeric)}</tr>" for row in one.rows)
    note = f'<p class="note">{esc(one.note)}</p>' if one.note else ""
    table = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{esc(one.title)}">'
        f'<table class="sortable"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>{note}'
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


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _words(one: Words) -> str:
    if one.listed:
        return "<ul>" + "".join(f"<li>{esc(line)}</li>" for line in one.lines) + "</ul>"
    return "".join(f"<p>{esc(line)}</p>" for line in one.lines)


def _facts(one: Facts) -> str:
    pairs = "".join(f"<div><dt>{esc(name)}</dt><dd>{esc(value)}</dd></div>" for name, value in one.facts)
    return f'<dl class="facts">{pairs}</dl>'


def _bars(one: Bars) -> str:
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
    caption = f'<p class="note">{esc(note)}</p>' if note else ""
    return f'<figure class="barchart"><figcaption>{esc(one.title)}</figcaption>{"".join(parts)}{caption}</figure>'


def _curves(one: Curves, chart: int) -> str:
    note = f'<p class="note">{esc(one.note)}</p>' if one.note else ""
    return (
        f'<figure class="chart" data-chart="{chart}"><figcaption>{esc(one.title)}</figcaption>'
        '<noscript><p class="note">The curves are drawn by a script; without it, here are their ends.</p></noscript>'
        f"{note}{grid(ends(one))}</figure>"
    )


def ends(one: Curves) -> Grid:
    """The last point of every curve, as a table."""
    axes = [*one.used_axes(), one.y]
    rows = []
    for curve in one.curves:
        last = next((p for p in reversed(curve.points) if p.get(one.y.key) is not None), {})
        rows.append([Cell(curve.name), *(Cell.of(last.get(axis.key), axis.unit, 4) for axis in axes)])
    return Grid("The end of each curve", ["curve", *(axis.name for axis in axes)], rows, folded=True)
