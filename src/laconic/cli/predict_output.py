"""Where predictions go: CSV, Parquet or .npy, a block of rows at a time, whole or not at all."""

import csv
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import typer

from laconic.atomic_write import atomic_write, check_writable
from laconic.cli.errors import BadInput
from laconic.extras import require

FORMATS = (".csv", ".parquet", ".npy")


class Sink(ABC):
    """Takes blocks of rows: (k,) for one column, (k, K) for several."""

    @abstractmethod
    def write(self, block: np.ndarray) -> None:
        """The next rows."""

    @abstractmethod
    def close(self) -> None:
        """That was all."""


class CsvSink(Sink):
    """A header line, then a line a row. Numbers are written so that they read back as they were."""

    def __init__(self, file: IO[str], names: list[str]) -> None:
        self.file, self.rows = file, csv.writer(file, lineterminator="\n")
        self.names, self.header = names, [names]

    def write(self, block: np.ndarray) -> None:
        self.rows.writerows([*self.header, *block.reshape(len(block), len(self.names)).tolist()])
        self.header = []

    def close(self) -> None:
        self.rows.writerows(self.header)
        self.file.flush()


class ParquetSink(Sink):
    """One column a name."""

    def __init__(self, file: IO[bytes], names: list[str]) -> None:
        self.file, self.names = file, names
        self.writer: Any = None

    def write(self, block: np.ndarray) -> None:
        pq = require("pyarrow.parquet", for_="writing Parquet", extra="files")
        import pyarrow as pa

        columns = block.reshape(len(block), len(self.names)).T
        table = pa.table({name: pa.array(column) for name, column in zip(self.names, columns, strict=True)})
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.file, table.schema)
        self.writer.write_table(table)

    def close(self) -> None:
        if self.writer is None:
            self.write(np.empty((0, len(self.names))))
        self.writer.close()


class NpySink(Sink):
    """One array, whose number of rows is known before they come."""

    def __init__(self, file: IO[bytes], n_rows: int) -> None:
        self.file, self.n_rows, self.begun = file, n_rows, False

    def write(self, block: np.ndarray) -> None:
        if not self.begun:
            described = np.lib.format.dtype_to_descr(block.dtype)
            header = {"descr": described, "fortran_order": False, "shape": (self.n_rows, *block.shape[1:])}
            np.lib.format.write_array_header_1_0(self.file, header)
            self.begun = True
        self.file.write(np.ascontiguousarray(block).tobytes())

    def close(self) -> None:
        if not self.begun:
            self.write(np.empty(0))


@contextmanager
def sink(path: Path | None, names: list[str], n_rows: int) -> Iterator[Sink]:
    """Where rows of these columns go; a file is there at the end or, after an error, as it was."""
    if path is None:
        with _listened_to():
            made: Sink = CsvSink(sys.stdout, names)
            yield made
            made.close()
        return
    with atomic_write(path, "wb") as file:
        made = _made(path, file, names, n_rows)
        yield made
        made.close()


@contextmanager
def _listened_to() -> Iterator[None]:
    """Who reads our stdout may stop before the end, as `head` does: then there is nothing left to do."""
    try:
        yield
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from error


def check_output(path: Path | None) -> None:
    """Complain about a file that cannot be written, before any work."""
    if path is None:
        return
    if path.suffix.lower() not in FORMATS:
        raise BadInput(f"{path}: predictions go to {', '.join(FORMATS)}; without --output to stdout, as CSV")
    check_writable(path)


def _made(path: Path, file: Any, names: list[str], n_rows: int) -> Sink:
    kind = path.suffix.lower()
    if kind == ".parquet":
        return ParquetSink(file, names)
    if kind == ".npy":
        return NpySink(file, n_rows)
    import io

    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    return CsvSink(text, names)
