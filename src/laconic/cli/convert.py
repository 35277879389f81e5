"""`laconic convert DATA STORE`."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laconic.cli import fit as o
from laconic.cli.errors import BadInput
from laconic.cli.progress import rows_progress

if TYPE_CHECKING:
    from laconic.data import RowStream, Table


def convert(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="LIBSVM (also .gz, .bz2, .xz), CSV, Parquet, .npy, .npz, or a store.")
    ],
    output: Annotated[Path, typer.Argument(metavar="STORE", help="Where the store goes: FILE.safetensors.")],
    dtype: Annotated[str, typer.Option(help="bf16, fp32, or for a dense matrix fp64.")] = "bf16",
    target: o.Target = None,
    weight: o.Weight = None,
    offset: o.Offset = None,
    exposure: o.Exposure = None,
    one_hot: o.OneHot = None,
    drop: o.Drop = None,
    dense: o.Dense = False,
    n_features: o.NFeatures = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """Write a file as a store: safetensors that later commands map into memory instead of reading.

    Rows are read and written a block at a time. If anything fails, there is no store rather than half of one.
    """
    given = dict(locals())
    from laconic.atomic_write import check_writable
    from laconic.data import describe, stream, write_store
    from laconic.data.files import format_of
    from laconic.data.table import to_dtype

    began = time.perf_counter()
    to_dtype(dtype)
    if format_of(output) != "store":
        raise BadInput(f"{output}: a store's name ends in .safetensors")
    check_writable(output)
    rows = stream(o.file_source(given), dtype="fp64" if dtype == "fp64" else "fp32")
    n_bytes = Path(data).stat().st_size
    with rows_progress(rows.n_rows, quiet=quiet, bytes_per_row=n_bytes / max(1, rows.n_rows)) as advance:
        write_store(output, replace(rows, blocks=_counted(rows, advance)), dtype)
    made = describe(output)
    if as_json:
        typer.echo(json.dumps(asdict(made), indent=2))
        return
    kind = "sparse" if made.is_sparse else "dense"
    typer.echo(
        f"{made.path}: {made.n_rows:,} rows × {made.n_columns:,} columns, {kind}, {made.dtype}; "
        f"{made.n_bytes:,} bytes from {n_bytes:,}; {time.perf_counter() - began:.2f} s"
    )


def _counted(rows: "RowStream", advance: Callable[[int], None]) -> "Iterator[Table]":
    for block in rows.blocks:
        yield block
        advance(block.n_rows)
