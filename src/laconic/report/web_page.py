"""Sections to one HTML page that needs nothing else: no network, no other file, and hardly a script."""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any

from laconic._version import __version__
from laconic.report.blocks import Curves, Section, thinned
from laconic.report.elements import block, esc

HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="laconic {version}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#content">To the content</a>
<header><h1>{title}</h1><p>{lead}</p></header>
<div class="columns">
<nav aria-label="Contents"><details open><summary>Contents</summary><ol>
{contents}
</ol></details></nav>
<main id="content">
"""
FOOT = """\
</main>
</div>
<footer><p>Made by laconic {version}. This page needs no network.</p></footer>
<script type="application/json" id="charts">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def web_page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The page as text.

    >>> "<title>&lt;b&gt;</title>" in web_page("<b>", "", [Section("one")])
    True
    """
    style, script = (files("laconic.report").joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    charts: list[Curves] = []
    body = "\n".join(_section(i, section, charts) for i, section in enumerate(sections))
    contents = "\n".join(f'<li><a href="#run-{i}">{esc(s.tag or s.title)}</a></li>' for i, s in enumerate(sections))
    head = HEAD.format(
        policy=policy(style, script),
        version=__version__,
        title=esc(title),
        style=style,
        lead=esc(lead),
        contents=contents,
    )
    foot = FOOT.format(version=__version__, data=embedded([chart_data(c) for c in charts]), script=script)
    return f"{head}{body}\n{foot}"


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
        "y": {"key": chart.y.key, "name": chart.y.name, "unit": chart.y.unit},
        "axes": [{"key": axis.key, "name": axis.name, "unit": axis.unit} for axis in axes],
        "curves": [
            {"name": curve.name, "ink": curve.ink, "points": list(_points(chart, curve.points, axes))}
            for curve in chart.curves
        ],
    }


def _points(chart: Curves, points: Any, axes: Sequence[Any]) -> Iterator[list[float | None]]:
    for point in thinned(points):
        yield [_rounded(point.get(chart.y.key)), *(_rounded(point.get(axis.key)) for axis in axes)]


def _rounded(x: float | None) -> float | None:
    """Seven digits, which is more than a chart shows; beyond 1e±100 the arithmetic of the axes would overflow."""
    return None if x is None or abs(x) > 1e100 else 0.0 if abs(x) < 1e-100 else float(f"{x:.7g}")


def _section(i: int, section: Section, charts: list[Curves]) -> str:
    parts = []
    for one in section.blocks:
        parts.append(block(one, len(charts)))
        if isinstance(one, Curves):
            charts.append(one)
    about = f'<p class="about">{esc(section.about)}</p>' if section.about else ""
    inside = "\n".join(parts)
    tag = f' <span class="tag">{esc(section.tag)}</span>' if section.tag else ""
    title = f'<h2 id="title-{i}">{esc(section.title)}{tag}</h2>'
    return f'<section id="run-{i}" aria-labelledby="title-{i}">\n{title}\n{about}{inside}\n</section>'
