"""`python -m benchmarks glm`: our solvers beside scikit-learn (`--time-to`), or beside PyTorch and JAX (`--device`)."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.goals.outcome import in_document
from laconic.cli import fit_options as o
from laconic.cli.bench.glm import (
    OF_FILES,
    BatchSize,
    Blocks,
    Data,
    FamilyName,
    Iterations,
    Positive,
    Problem,
    Recipes,
    Scale,
    Standardize,
    file_given,
)
from laconic.cli.bench.options import AsJson, Commit, Output, Quiet, Repeats, numbers, refuse
from laconic.cli.bench.running import Destination, Found, Tell, run_suite
from laconic.cli.errors import BadInput
from laconic.cli.numbers import whole_number

if TYPE_CHECKING:
    from benchmarks.glm.device import DeviceOptions
    from benchmarks.glm.time_to import TimeToOptions

TimeTo = Annotated[
    bool,
    typer.Option(
        "--time-to",
        help="Instead, in one process: seconds to within 1 % of the optimum beside scikit-learn, and LIBSVM files.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="cuda",
        help="Instead, on this GPU, one process: beside eager and graphed PyTorch, and JAX if it is there.",
    ),
]
FileSize = Annotated[
    int | None, typer.Option(parser=whole_number(), help="Bytes of the LIBSVM file of --time-to; 64,000,000.")
]
RowsOfRace = Annotated[
    int | None, typer.Option("--rows", parser=whole_number(), help="Rows of --time-to without --data; 581,012.")
]
RACE = ("rows", "file_size")
"""Options that only --time-to has."""
SYNTHETIC = ("problem", "scale")
NOT_IN_A_RACE = (*SYNTHETIC, "s", "iterations", "recipes", "device")


def glm(
    problem: Problem = None,
    s: Blocks = None,
    batch_size: BatchSize = None,
    iterations: Iterations = None,
    repeats: Repeats = 11,
    recipes: Recipes = None,
    scale: Scale = None,
    data: Data = None,
    family: FamilyName = None,
    target: o.Target = None,
    positive: Positive = None,
    weight: o.Weight = None,
    offset: o.Offset = None,
    exposure: o.Exposure = None,
    one_hot: o.OneHot = None,
    drop: o.Drop = None,
    dense: o.Dense = False,
    standardize: Standardize = False,
    time_to: TimeTo = False,
    rows: RowsOfRace = None,
    file_size: FileSize = None,
    device: Device = None,
    commit: Commit = None,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Our solvers of generalised linear models beside other people's, in one process.

    --time-to: seconds to within 1 % of the optimum, beside scikit-learn. --device cuda: an iteration on a GPU, beside
    eager and graphed PyTorch, and JAX if it is installed. Defaults with --device: --s 8,16,32, --batch-size 32,
    --iterations 8192, --scale 1.
    """
    given = dict(locals())
    to = Destination(output, as_json, quiet, commit)
    if time_to:
        run_suite("glm-time-to", lambda: _race_options(given), _race, to)
    elif device is not None:
        run_suite("glm-device", lambda: _device_options(given), _on_device, to)
    else:
        raise typer.BadParameter("give --time-to or --device; laconic bench glm measures SGD and CA-SGD on ranks")


def _race_options(given: dict[str, Any]) -> "TimeToOptions":
    from benchmarks.glm.time_to import TimeToOptions

    refuse(given, NOT_IN_A_RACE, "has no part in --time-to")
    file = file_given(given)
    if file is not None:
        refuse(given, ("rows",), "is for --time-to without --data")
    rows, file_size = given["rows"] or 581_012, given["file_size"] or 64_000_000
    return TimeToOptions(file, rows, given["batch_size"] or 32, given["repeats"], file_size)


def _race(options: "TimeToOptions", tell: Tell) -> Found:
    from benchmarks.glm import files, tables, time_to
    from benchmarks.goals import glm as goals
    from laconic.bench.suite import row_fields

    rows = time_to.race(options, tell)
    read = files.file_row(options.file_bytes, options.repeats, tell)
    outcomes = goals.time_outcomes(rows, read)
    said = {"file": row_fields(read), **in_document(outcomes, goals.TIME_SETTING)}
    return Found(rows, lambda here: tables.time_page(rows, read, outcomes, here), said)


def _device_options(given: dict[str, Any]) -> "DeviceOptions":
    from benchmarks.glm.device import DeviceOptions
    from benchmarks.glm.device_data import DEVICE_SHAPES

    if given["data"] is not None:
        raise BadInput("--device is for synthetic problems; leave --data out")
    refuse(given, RACE, "is for --time-to")
    refuse(given, OF_FILES, "is for files, and --device for synthetic problems")
    names = list(o.names(given["problem"] or "all"))
    return DeviceOptions(
        problems=list(DEVICE_SHAPES) if names == ["all"] else names,
        device=given["device"],
        scale=given["scale"] if given["scale"] is not None else 1.0,
        s=numbers(given["s"] or "8,16,32"),
        batch_size=given["batch_size"] or 32,
        iterations=given["iterations"] or 8192,
        repeats=given["repeats"],
        recipes=o.names(given["recipes"] or "fp32,C,D"),
    )


def _on_device(options: "DeviceOptions", tell: Tell) -> Found:
    from benchmarks.glm import device as suite
    from benchmarks.glm import device_tables as tables
    from benchmarks.goals import glm_device as goals

    rows = suite.device_rows(options, tell)
    outcomes = goals.device_outcomes(rows)
    said = {"options": asdict(options), **in_document(outcomes, goals.SETTING)}
    return Found(rows, lambda here: tables.page(rows, outcomes, options, here), said)
