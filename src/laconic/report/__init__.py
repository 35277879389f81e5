"""Reports: rows to tables."""

from laconic.report.table import Column, number, table

__all__ = ["Column", "number", "table"]
