"""Reports: what to show of a run, declared once, and its renderers for terminal, page and Markdown."""

from laconic.report import documents as documents
from laconic.report.blocks import Axis, Bar, Cell
from laconic.report.presentation import (
    AllRows,
    BarChart,
    Column,
    LineChart,
    Part,
    Presentation,
    RowTable,
    Settings,
    Text,
    speedups,
    text,
    where,
)
from laconic.report.runs import NotARun, Run, presentations, read_run, read_runs, register, registered, report, sections
from laconic.report.svg import bars, text_bar
from laconic.report.terminal import markdown, show, terminal
from laconic.report.values import Row

__all__ = [
    "AllRows",
    "Axis",
    "Bar",
    "BarChart",
    "Cell",
    "Column",
    "LineChart",
    "NotARun",
    "Part",
    "Presentation",
    "Row",
    "RowTable",
    "Run",
    "Settings",
    "Text",
    "bars",
    "markdown",
    "presentations",
    "read_run",
    "read_runs",
    "register",
    "registered",
    "report",
    "sections",
    "show",
    "speedups",
    "terminal",
    "text",
    "text_bar",
    "where",
]
