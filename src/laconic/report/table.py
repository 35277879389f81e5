"""Rows to a table for a terminal."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from rich import box
from rich.cells import cell_len
from rich.table import Table

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """A heading and the text of a row's cell under it."""

    heading: str
    cell: Callable[[R], str]
    justify: Literal["left", "right"] = "right"


def table(title: str, columns: Sequence[Column[R]], rows: Iterable[R], caption: str = "") -> Table:
    """A table of `rows`. Headings may take several lines; where the terminal is narrow, columns of text fold, and those
    of numbers do not: cut off, a number would be another.

    >>> table("squares", [Column("n", str), Column("n²", lambda n: str(n * n))], [1, 2]).row_count
    2
    """
    built = Table(
        title=title,
        caption=caption or None,
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption_style="dim",
    )
    cells = [[column.cell(row) for column in columns] for row in rows]
    for i, column in enumerate(columns):
        text = column.justify == "left"
        least = (
            None if text else max(map(cell_len, [*column.heading.splitlines(), *(row[i] for row in cells)]), default=0)
        )
        built.add_column(
            column.heading,
            justify=column.justify,
            no_wrap=not text,
            overflow="fold",
            vertical="bottom",
            min_width=least,
        )
    for row in cells:
        built.add_row(*row)
    return built


def number(x: float | None, digits: int = 3) -> str:
    """`digits` significant digits without an exponent while it stays short, and a dash for nothing.

    >>> number(0.012345), number(1234.5), number(None), number(1.6e-9), number(0.0), number(0.5)
    ('0.0123', '1234', '–', '1.6e-09', '0', '0.500')
    """
    if x is None:
        return "–"
    if x == 0:
        return "0"
    if abs(x) < 1e-4:
        return f"{x:.{digits - 2}e}"
    whole = len(str(int(abs(x)))) if abs(x) >= 1 else 0
    if whole >= digits:
        return f"{x:.0f}"
    return f"{x:.{digits - whole}f}" if whole else f"{x:#.{digits}g}"
