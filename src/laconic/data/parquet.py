"""Parquet: reads only the columns that a rank needs, some rows at a time."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from laconic.data import arrow
from laconic.data.errors import MalformedFile
from laconic.data.files import Source
from laconic.data.table import RowStream, column_block, rows_at_once
from laconic.extras import require

BUFFER_BYTES = 1 << 16
"""Bytes read from a column at a time, so that no column of a large row group is in memory whole."""


def stream_parquet(
    source: Source, *, columns: tuple[int, int] | None = None, dtype: "str | torch.dtype" = "fp32"
) -> RowStream:
    """The rows of a Parquet file in blocks; see `Source` for the roles of its columns.

    columns  (first, last): keep features first to last - 1, counted after one-hot encoding. Besides these, only the
             target, weights and offset are read from the file.

    >>> import tempfile, pathlib, pyarrow, pyarrow.parquet
    >>> path = pathlib.Path(tempfile.mkdtemp(), "small.parquet")
    >>> pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2], "b": [0.5, 1.5], "label": [0, 1]}), path)
    >>> rows = stream_parquet(Source(str(path), target="label"), columns=(1, 2))
    >>> next(iter(rows.blocks)).X.tolist(), rows.like.columns, rows.like.n_features
    ([[0.5], [1.5]], (1, 2), 2)
    """
    path = Path(source.path)
    with _opened(path) as file:
        n_rows, found = file.metadata.num_rows, file.schema_arrow
    schema = arrow.make_schema(
        source,
        found.names,
        found.types,
        lambda name: arrow.categories(source.path, name, _batches(path, [name], 65536)),
    )
    block = column_block(columns, len(schema.features))
    batches = _batches(path, schema.sources(block), rows_at_once(block[1] - block[0]))
    return arrow.rows(source, nullcontext(batches), schema, block, dtype, n_rows)


def shape(path: Path) -> tuple[int, list[str]]:
    """Rows and column names, from the footer."""
    with _opened(path) as file:
        return file.metadata.num_rows, list(file.schema_arrow.names)


def _batches(path: Path, names: list[str], n_rows: int) -> Iterator[Any]:
    """Batches of these columns; where `names` is empty, batches with rows but no columns."""
    import pyarrow as pa

    with _opened(path) as file:
        if names:
            yield from file.iter_batches(batch_size=n_rows, columns=names, use_threads=False)
            pa.default_memory_pool().release_unused()
            return
        for first in range(0, file.metadata.num_rows, n_rows):
            size = min(n_rows, file.metadata.num_rows - first)
            yield pa.RecordBatch.from_struct_array(pa.array([{}] * size, pa.struct([])))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    pq = require("pyarrow.parquet", for_="reading Parquet", extra="files")
    import pyarrow as pa

    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES) as file:
            if file.metadata.num_rows < 0:
                raise pa.ArrowInvalid(f"it says that it has {file.metadata.num_rows} rows")
            yield file
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: a column's name
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise MalformedFile(path, f"not a Parquet file as expected: {what}") from error
