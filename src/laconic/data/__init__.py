"""Readers and writers of tables for generalised linear models. Each rank reads its own columns.

`read` takes any format; `convert` writes a memory-mapped store; `make` generates a synthetic problem. Nothing is
downloaded or unpickled.
"""

from laconic.data.errors import BadTable, MalformedFile
from laconic.data.files import Limits, Source
from laconic.data.libsvm import Scan, read_libsvm, scan_libsvm
from laconic.data.npy import read_gradient
from laconic.data.partition import column_cuts, column_weights, take_columns
from laconic.data.read import Description, convert, describe, read, stored, stream
from laconic.data.store import open_store
from laconic.data.store_writer import write_store
from laconic.data.synthetic import SHAPES, SyntheticProblem, load_digits, make
from laconic.data.table import RowStream, Table, as_target, check_finite, collect, rows_of

__all__ = [
    "SHAPES",
    "BadTable",
    "Description",
    "Limits",
    "MalformedFile",
    "RowStream",
    "Scan",
    "Source",
    "SyntheticProblem",
    "Table",
    "as_target",
    "check_finite",
    "collect",
    "column_cuts",
    "column_weights",
    "convert",
    "describe",
    "load_digits",
    "make",
    "open_store",
    "read",
    "read_gradient",
    "read_libsvm",
    "rows_of",
    "scan_libsvm",
    "stored",
    "stream",
    "take_columns",
    "write_store",
]
