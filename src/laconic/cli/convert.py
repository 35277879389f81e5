"""`laconic convert DATA STORE`."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import MISSING, asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from laconic.cli.command import BadInput, Printing, options_command, rows_progress
from laconic.data.files import Source
from laconic.options import ARGUMENT, option

if TYPE_CHECKING:
    from laconic.data import RowStream, Table


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """Options of `laconic convert` besides the file."""

    output: Path = option(  # noqa: RUF009
        MISSING, "Where the store goes: FILE.safetensors.", flag=ARGUMENT, metavar="STORE"
    )
    dtype: str = option("bf16", "bf16, fp32, or for a dense matrix fp64.")


def run(data: dict[str, Any], given: dict[str, Any], printing: dict[str, Any]) -> None:
    """Write a file as a store: safetensors that later commands map into memory instead of reading.

    Rows are read and written a block at a time. If anything fails, there is no store rather than half of one.
    """
    from laconic.atomic_write import check_writable
    from laconic.data import describe, stream, write_store
    from laconic.data.files import format_of
    from laconic.data.table import to_dtype

    began, asked, printed = time.perf_counter(), ConvertOptions(**given), Printing(**printing)
    output, dtype = asked.output, asked.dtype
    to_dtype(dtype)
    if format_of(output) != "store":
        raise BadInput(f"{output}: a store's name ends in .safetensors")
    check_writable(output, data["path"])
    rows = stream(Source(**data), dtype="fp64" if dtype == "fp64" else "fp32")
    n_bytes = Path(data["path"]).stat().st_size
    with rows_progress(rows.n_rows, quiet=printed.quiet, bytes_per_row=n_bytes / max(1, rows.n_rows)) as advance:
        write_store(output, replace(rows, blocks=_counted(rows, advance)), dtype)
    made = describe(output)
    if printed.as_json:
        typer.echo(json.dumps(asdict(made), indent=2))
        return
    for note in rows.like.notes:
        typer.echo(note)
    kind = "sparse" if made.is_sparse else "dense"
    typer.echo(
        f"{made.path}: {made.n_rows:,} rows × {made.n_columns:,} columns, {kind}, {made.dtype}; "
        f"{made.n_bytes:,} bytes from {n_bytes:,}; {time.perf_counter() - began:.2f} s"
    )


convert = options_command(run, "convert", Source, ConvertOptions, Printing)


def _counted(rows: "RowStream", advance: Callable[[int], None]) -> "Iterator[Table]":
    for block in rows.blocks:
        yield block
        advance(block.n_rows)
