"""Blocks of columns of the input matrix, dense or sparse."""

from laconic.glm.columns.base import Columns, Rows
from laconic.glm.columns.dense import DenseColumns, DenseRows
from laconic.glm.columns.pinned import PinnedColumns
from laconic.glm.columns.sparse import SparseColumns, SparseRows

__all__ = ["Columns", "DenseColumns", "DenseRows", "PinnedColumns", "Rows", "SparseColumns", "SparseRows"]
