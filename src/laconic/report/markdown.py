"""Blocks to Markdown, for pages of documentation."""

from collections.abc import Sequence

from laconic.report.blocks import Block, Cell, Cells, Words


def markdown(blocks: Sequence[Block], level: int = 0) -> str:
    """Tables and sentences of some blocks; charts and folded tables are left out.

    level  of headings with the tables' titles; 0 for none

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
            parts.append(grid(block))
            parts += [block.note] if block.note else []
    return "\n\n".join(parts)


def grid(one: Cells) -> str:
    """A table; columns of numbers are set to the right."""
    numeric = one.numeric()
    lines = [one.spread_headings(), ["---:" if n else "---" for n in numeric]]
    lines += [[_cell(cell) for cell in row] for row in one.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(cell: Cell) -> str:
    return cell.shown.replace("|", "\\|").replace("\n", " ")
