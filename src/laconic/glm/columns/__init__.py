"""A rank's columns of the input matrix: dense, dense in pinned memory beside a GPU, or sparse."""

from laconic.glm.columns.base import Columns, Rows
from laconic.glm.columns.dense import DenseColumns, DenseRows, PinnedColumns
from laconic.glm.columns.sparse import SparseColumns, SparseRows

__all__ = ["Columns", "DenseColumns", "DenseRows", "PinnedColumns", "Rows", "SparseColumns", "SparseRows"]
