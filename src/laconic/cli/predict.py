"""`laconic predict MODEL DATA`."""

import json
import sys
from pathlib import Path
from typing import Annotated

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
    from laconic.cli.predict_output import check_output, sink
    from laconic.data import Source
    from laconic.glm.model import Model, rows_for

    if as_json and output is None:
        raise BadInput("--json needs --output FILE: stdout cannot hold both")
    check_output(output)
    fitted = Model.load(model)
    if proba and fitted.classes is None:
        raise BadInput(f"--proba is for classes, and {model} is a {fitted.family} model")
    source = Source(str(data), target=False, offset=offset, exposure=exposure, dense=dense)
    rows, blocks = rows_for(fitted, source)
    names = [str(label) for label in fitted.classes or ()] if proba else ["prediction"]
    with (
        rows_progress(rows.n_rows, quiet=quiet or (output is None and sys.stdout.isatty())) as advance,
        sink(output, names, rows.n_rows) as out,
    ):
        for block in blocks:
            z = fitted.margins(block.X, block.offset)
            out.write(fitted.probabilities(z).numpy() if proba else fitted.labels(z))
            advance(block.n_rows)
    if as_json:
        made = {"model": str(model), "data": str(data), "n_rows": rows.n_rows, "columns": names, "output": str(output)}
        typer.echo(json.dumps(made, indent=2))
