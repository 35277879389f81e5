"""Reports: rows to tables and plots."""

from laconic.report.bars import Bar, bars, page, text_bar
from laconic.report.table import Column, number, table

__all__ = ["Bar", "Column", "bars", "number", "page", "table", "text_bar"]
