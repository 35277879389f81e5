"""Render blocks as text and tables, for a terminal and as Markdown. Charts and folded tables are for pages only."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table

from laconic.report.presentation import Block, Section, machine, sections
from laconic.report.tables import SIGNS, SPREAD, Cells, Facts, Words
from laconic.report.values import Row

WIDEST = 10_000
"""A terminal width that no table reaches."""
GLUE = "\N{NO-BREAK SPACE}"
"""Keeps a sign on one line with the word after it."""


def terminal(suite: str, document: Row) -> Iterator[RenderableType]:
    """A document as texts and tables, for `show`."""
    for block in machine(document):
        yield from _block(block)
    for section in sections(suite, document):
        yield from section_lines(section)


def section_lines(section: Section) -> Iterator[RenderableType]:
    """A section as texts and tables."""
    yield f"\n{section.title}"
    if section.about:
        yield section.about
    for block in section.blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[RenderableType]:
    match block:
        case Words(lines, listed):
            yield "\n".join(f"• {line}" if listed else line for line in lines)
        case Facts(facts):
            yield "; ".join(f"{name}: {value}" for name, value in facts)
        case Cells() if not block.folded:
            yield ""
            yield grid(block)


def grid(one: Cells) -> Table:
    """A table for the terminal. Only the first column with a spread shows it, to save width.

    Headings may wrap. In a narrow terminal, columns of text fold and those of numbers do not, since a truncated number
    would be wrong.
    """
    built = Table(
        title=one.title,
        caption=one.note or None,
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption_style="dim",
    )
    spread = one.spread()
    first = spread.index(True) if any(spread) else None
    glued = [heading.replace("× ", "×" + GLUE).replace("÷ ", "÷" + GLUE) for heading in one.headings]
    headings = [heading + SPREAD if i == first else heading for i, heading in enumerate(glued)]
    rows = [[SIGNS.get(c.mark, "") + (c.shown if i == first else c.text) for i, c in enumerate(r)] for r in one.rows]
    for i, (heading, number) in enumerate(zip(headings, one.numeric(), strict=True)):
        width = max(map(cell_len, [*heading.split(" "), *(row[i] for row in rows)]), default=1)
        wrapped = "\n".join(wrap(heading, width, break_long_words=False)) if number else heading
        built.add_column(
            wrapped.replace(GLUE, " "),
            justify="right" if number else "left",
            no_wrap=number,
            overflow="fold",
            vertical="bottom",
            min_width=width if number else None,
        )
    for row in rows:
        built.add_row(*row)
    return built


def show(parts: Iterable[RenderableType]) -> None:
    """Print texts and tables literally, including brackets; lines of a table wider than the terminal are not cut."""
    console = Console(highlight=False, markup=False, emoji=False)
    width = console.width
    for part in parts:
        needed = Measurement.get(console, console.options.update(max_width=WIDEST), part).minimum
        console.width = max(width, needed) if isinstance(part, Table) else width
        console.print(part)


def markdown(blocks: Sequence[Block], level: int = 0) -> str:
    """Tables and sentences of some blocks; charts and folded tables are left out.

    level  of headings with the tables' titles; 0 for none

    >>> from laconic.report import Cell
    >>> print(markdown([Cells("t", ["who", "ms"], [[Cell("a|b"), Cell("2.0", 2.0, spread="1–3")]])]))
    | who | ms (20–80 %) |
    | --- | ---: |
    | a\\|b | 2.0 (1–3) |
    """
    parts: list[str] = []
    for block in blocks:
        if isinstance(block, Words):
            parts.append("\n".join(f"- {line}" if block.listed else line for line in block.lines))
        elif isinstance(block, Cells) and not block.folded:
            parts += [f"{'#' * level} {block.title}"] if level else []
            parts.append(_markdown_table(block))
            parts += [block.note] if block.note else []
    return "\n\n".join(parts)


def _markdown_table(one: Cells) -> str:
    """A Markdown table, columns of numbers aligned right."""
    numeric = one.numeric()
    lines = [one.spread_headings(), ["---:" if n else "---" for n in numeric]]
    lines += [[cell.shown.replace("|", "\\|").replace("\n", " ") for cell in row] for row in one.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
