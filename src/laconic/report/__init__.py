"""Reports: rows to tables and plots, and runs to one page."""

from laconic.report.bars import Bar, bars, text_bar
from laconic.report.reported import report
from laconic.report.run import NotARun, Run, read_run, read_runs
from laconic.report.table import Column, number, show, table

__all__ = [
    "Bar",
    "Column",
    "NotARun",
    "Run",
    "bars",
    "number",
    "read_run",
    "read_runs",
    "report",
    "show",
    "table",
    "text_bar",
]
