"""Write predictions as CSV, Parquet or .npy, a block of rows at a time; the file appears only when complete."""

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from laconic.atomic_write import atomic_write, check_writable
from laconic.data.errors import BadTable
from laconic.extras import require

FORMATS = (".csv", ".parquet", ".npy")
Write = Callable[[np.ndarray], None]
"""A function that writes the next rows: (k,) for one column, (k, K) for several."""


def check_output(path: Path, *read: str | Path) -> None:
    """Raise an error if predictions cannot be written to this file, before any work; see `check_writable`."""
    if path.suffix.lower() not in FORMATS:
        raise BadTable(f"{path}: predictions go to {', '.join(FORMATS)}; without a file to stdout, as CSV")
    check_writable(path, *read)


@contextmanager
def predictions_file(path: Path, names: list[str], n_rows: int) -> Iterator[Write]:
    """A function that writes rows of these columns. The file appears at the end; an error leaves it as it was."""
    kind = path.suffix.lower()
    with atomic_write(path, "wb") as file:
        if kind == ".npy":
            writer = npy_rows(file, n_rows)
        elif kind == ".parquet":
            writer = parquet_rows(file, names)
        else:
            writer = csv_rows(io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True), names)
        with writer as write:
            yield write


@contextmanager
def csv_rows(file: IO[str], names: list[str]) -> Iterator[Write]:
    """Write a header line before the first rows, then one line per row. Numbers read back unchanged."""
    lines, header = csv.writer(file, lineterminator="\n"), [names]

    def write(block: np.ndarray) -> None:
        lines.writerows([*header, *block.reshape(len(block), len(names)).tolist()])
        header.clear()

    yield write
    lines.writerows(header)
    file.flush()


@contextmanager
def parquet_rows(file: IO[bytes], names: list[str]) -> Iterator[Write]:
    """Write one column per name, with the dtype of the first block."""
    pq = require("pyarrow.parquet", for_="writing Parquet", extra="files")
    import pyarrow as pa

    opened: list[Any] = []

    def write(block: np.ndarray) -> None:
        columns = block.reshape(len(block), len(names)).T
        table = pa.table({name: pa.array(column) for name, column in zip(names, columns, strict=True)})
        if not opened:
            opened.append(pq.ParquetWriter(file, table.schema))
        opened[0].write_table(table)

    yield write
    if not opened:
        write(np.empty((0, len(names))))
    opened[0].close()


@contextmanager
def npy_rows(file: IO[bytes], n_rows: int) -> Iterator[Write]:
    """Write one array of n_rows rows."""
    begun = False

    def write(block: np.ndarray) -> None:
        nonlocal begun
        if not begun:
            described = np.lib.format.dtype_to_descr(block.dtype)
            header = {"descr": described, "fortran_order": False, "shape": (n_rows, *block.shape[1:])}
            np.lib.format.write_array_header_1_0(file, header)
            begun = True
        file.write(np.ascontiguousarray(block).tobytes())

    yield write
    if not begun:
        write(np.empty(0))
