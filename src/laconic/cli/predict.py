"""`laconic predict MODEL DATA`."""

import json
import sys
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import typer

from laconic.cli.command import BadInput, Printing, options_command, rows_progress
from laconic.data.files import Source
from laconic.options import ARGUMENT, option

FILE = ("path", "offset", "exposure", "dense", "header", "delimiter", "limit")
"""Options about the file."""


@dataclass(frozen=True, slots=True)
class PredictOptions:
    """Options of `laconic predict` besides the file."""

    model: Path = option(MISSING, "What `laconic fit` has written.", flag=ARGUMENT, metavar="MODEL")  # noqa: RUF009
    output: Path | None = option(  # noqa: RUF009
        None, ".csv, .parquet or .npy; by default CSV on stdout.", flag="--output -o", metavar="FILE"
    )
    proba: bool = option(False, "Probabilities of the classes instead of labels.", flag="--proba")


def run(given: dict[str, Any], data: dict[str, Any], printing: dict[str, Any]) -> None:
    """Predict the rows of a file, of any format that fit takes; a target is passed over.

    Rows are read and written a block at a time. Offset or exposure are those the model was fitted with, where the file
    has such a column; a store's offset is always used. With --json, which prints a report, they must go to a file.
    """
    from laconic.data.predictions import check_output, csv_rows, predictions_file
    from laconic.glm.model import Model, rows_for

    asked, printed = PredictOptions(**given), Printing(**printing)
    model, output = asked.model, asked.output
    if printed.as_json and output is None:
        raise BadInput("--json needs --output FILE: stdout cannot hold both")
    if output is not None:
        check_output(output, data["path"])
    fitted = Model.load(model)
    if asked.proba and fitted.classes is None:
        raise BadInput(f"--proba is for classes, and {model} is a {fitted.family} model")
    rows, blocks = rows_for(fitted, Source(**data, target=False))
    names = [str(label) for label in fitted.classes or ()] if asked.proba else ["prediction"]
    with (
        rows_progress(rows.n_rows, quiet=printed.quiet or (output is None and sys.stdout.isatty())) as advance,
        csv_rows(sys.stdout, names) if output is None else predictions_file(output, names, rows.n_rows) as write,
    ):
        for block in blocks:
            z = fitted.margins(block.X, block.offset)
            write(fitted.probabilities(z).numpy() if asked.proba else fitted.labels(z))
            advance(block.n_rows)
    if printed.as_json:
        files = {"model": str(model), "data": data["path"], "output": str(output)}
        typer.echo(json.dumps(files | {"n_rows": rows.n_rows, "columns": names}, indent=2))


predict = options_command(run, "predict", PredictOptions, (Source, FILE), Printing)
