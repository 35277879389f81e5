"""Rows to a bar plot: one self-contained SVG, on a ground of its own, light or dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
from xml.sax.saxutils import escape

LABEL, PLOT, VALUE, LINE, TOP = 250, 560, 110, 22, 46
"""Widths of the columns, height of a line and of the heading, in pixels."""
STYLE = """\
svg{background:#fff}text{font:13px system-ui,sans-serif;fill:#1f2328}
.dim{fill:#59636e}.grid{stroke:#59636e;stroke-opacity:.25}
.low{fill:#0969da}.high{fill:#0969da;fill-opacity:.28}
@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#f0f6fc}.dim{fill:#9198a1}.grid{stroke:#9198a1}
.low{fill:#58a6ff}.high{fill:#58a6ff;fill-opacity:.3}}"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A label, a value and an upper value; what is not positive and finite has no bar."""

    label: str
    low: float
    high: float


def bars(title: str, rows: Sequence[Bar], key: tuple[str, str]) -> str:
    """An SVG with one line a row on a logarithmic scale: a solid bar to `low`, a pale one to `high`.

    key  what the two are

    >>> bars("t", [Bar("a", 1e-3, 1e-1)], ("measured", "bound")).startswith("<svg")
    True
    """
    values = [v for row in rows for v in (row.low, row.high) if isfinite(v) and v > 0] or [1.0]
    first, last = floor(log10(min(values))), floor(log10(max(values))) + 1
    height = TOP + LINE * (len(rows) + 1) + 8
    width = LABEL + PLOT + VALUE
    lines = [f'<text x="8" y="18" font-weight="600">{escape(title)}</text>', _key(key)]
    lines += [_tick(power, first, last, height) for power in range(first, last + 1)]
    lines += [_line(row, TOP + LINE * i, first, last) for i, row in enumerate(rows)]
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">\n<style>{STYLE}</style>\n{body}\n</svg>\n'
    )


def text_bar(value: float, smallest: float, largest: float, width: int = 20) -> str:
    """A bar of blocks on a logarithmic scale, for a terminal.

    >>> text_bar(1e-2, 1e-4, 1.0, 4), text_bar(0.0, 1e-4, 1.0, 4)
    ('██', '')
    """
    if not (value > 0 and smallest > 0):
        return ""
    if not isfinite(value):
        return "█" * width + "→"
    share = _place(value, log10(smallest), log10(largest))
    return "█" * max(1, round(width * share))


def _place(value: float, first: float, last: float) -> float:
    return min(1.0, max(0.0, (log10(value) - first) / max(last - first, 1e-9)))


def _line(row: Bar, y: int, first: int, last: int) -> str:
    parts = [f'<text x="8" y="{y + 15}">{escape(row.label)}</text>']
    for value, kind in ((row.high, "high"), (row.low, "low")):
        if value > 0:
            length = max(1.0, PLOT * (_place(value, first, last) if isfinite(value) else 1.0))
            parts.append(f'<rect class="{kind}" x="{LABEL}" y="{y + 3}" width="{length:.1f}" height="{LINE - 7}"/>')
    shown = f"{row.low:.2g}" if row.low > 0 else "0"
    bound = f"{row.high:.2g}" if isfinite(row.high) else "none"
    parts.append(f'<text class="dim" x="{LABEL + PLOT + 8}" y="{y + 15}">{shown} / {bound}</text>')
    return "".join(parts)


def _tick(power: int, first: int, last: int, height: int) -> str:
    x = LABEL + PLOT * (power - first) / max(last - first, 1)
    return (
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - 26}"/>'
        f'<text class="dim" text-anchor="middle" x="{x:.1f}" y="{height - 10}">1e{power}</text>'
    )


def _key(key: tuple[str, str]) -> str:
    return (
        f'<rect class="low" x="{LABEL}" y="28" width="12" height="10"/>'
        f'<text x="{LABEL + 18}" y="38">{escape(key[0])}</text>'
        f'<rect class="high" x="{LABEL + 130}" y="28" width="12" height="10"/>'
        f'<text x="{LABEL + 148}" y="38">{escape(key[1])}</text>'
    )
