"""Reports: presentations of runs, declared once, and their renderers for terminal, HTML page and Markdown."""

from laconic.report import documents as documents
from laconic.report.charts import Axis, Bar, BarChart, LineChart, speedups
from laconic.report.presentation import Part, Presentation, presentations, register, registered, sections, where
from laconic.report.runs import NotARun, Run, read_run, read_runs, report
from laconic.report.svg import bars, text_bar
from laconic.report.tables import AllRows, Cell, Column, RowTable, Settings, Text, text
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
