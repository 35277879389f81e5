"""`laconic predict MODEL DATA`."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from laconic.cli import fit as o
from laconic.cli.errors import BadInput
from laconic.cli.progress import rows_progress


def predict(
    model: Annotated[Path, typer.Argument(help="What `laconic fit` has written.")],
    data: Annotated[Path, typer.Argument(help="Rows to predict: any format that fit takes; a target is passed over.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help=".csv, .parquet or .npy; by default CSV on stdout."),
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Probabilities of the classes instead of labels.")] = False,
    offset: o.Offset = None,
    exposure: o.Exposure = None,
    dense: o.Dense = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a report as JSON; the predictions must then go to a file.")
    ] = False,
    quiet: o.Quiet = False,
) -> None:
    """Predict the rows of a file.

    Rows are read and written a block at a time. Offset or exposure are those the model was fitted with, where the file
    has such a column; a store's offset is always used.
    """
    from laconic.data import Source
    from laconic.data.predictions import check_output, predictions_file
    from laconic.glm.model import Model, rows_for

    if as_json and output is None:
        raise BadInput("--json needs --output FILE: stdout cannot hold both")
    if output is not None:
        check_output(output)
    fitted = Model.load(model)
    if proba and fitted.classes is None:
        raise BadInput(f"--proba is for classes, and {model} is a {fitted.family} model")
    source = Source(str(data), target=False, offset=offset, exposure=exposure, dense=dense)
    rows, blocks = rows_for(fitted, source)
    names = [str(label) for label in fitted.classes or ()] if proba else ["prediction"]
    with (
        rows_progress(rows.n_rows, quiet=quiet or (output is None and sys.stdout.isatty())) as advance,
        _on_stdout(names) if output is None else predictions_file(output, names, rows.n_rows) as write,
    ):
        for block in blocks:
            z = fitted.margins(block.X, block.offset)
            write(fitted.probabilities(z).numpy() if proba else fitted.labels(z))
            advance(block.n_rows)
    if as_json:
        made = {"model": str(model), "data": str(data), "n_rows": rows.n_rows, "columns": names, "output": str(output)}
        typer.echo(json.dumps(made, indent=2))


@contextmanager
def _on_stdout(names: list[str]) -> Iterator[Callable[[Any], None]]:
    """Rows as CSV. Who reads our stdout may stop before the end, as `head` does: then there is nothing left to do."""
    from laconic.data.predictions import csv_rows

    try:
        with csv_rows(sys.stdout, names) as write:
            yield write
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from error
