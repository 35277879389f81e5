"""`laconic bench glm`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli import fit_options as o
from laconic.cli.bench.glm_device import OF_FILES, RACE, device_options, on_device
from laconic.cli.bench.options import AsJson, Commit, Output, Quiet, Ranks, Rate, Repeats, numbers, refuse
from laconic.cli.bench.running import Destination, Found, Tell, run_suite
from laconic.cli.errors import BadInput
from laconic.cli.numbers import whole_number

if TYPE_CHECKING:
    from laconic.bench.glm.data import Given
    from laconic.bench.glm.suite import GLMOptions
    from laconic.bench.glm.time_to import TimeToOptions

Problem = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="epsilon, susy, higgs, synth, poisson-synth (synthetic), or all; all."),
]
Scale = Annotated[
    float | None, typer.Option(help="Part of the rows of the synthetic problems; 0.05, and 1 with --device.")
]
Blocks = Annotated[
    str | None,
    typer.Option(
        "--s",
        metavar="N,...",
        help="Iterations that share a message in ca_sgd; 1,8,32,64,128, and 8,16,32 with --device.",
    ),
]
Recipes = Annotated[
    str | None,
    typer.Option("--recipe", metavar="NAME,...", help="Precision of ca_sgd: fp32, C, D, fp64; the first three."),
]
BatchSize = Annotated[
    int | None, typer.Option(parser=whole_number(), help="Rows of a batch; 8, and 32 with --time-to or --device.")
]
Iterations = Annotated[
    int | None,
    typer.Option(
        parser=whole_number(), help="Iterations of a round, a multiple of every s; 256, and 8192 with --device."
    ),
]
Data = Annotated[Path | None, typer.Option(metavar="FILE", help="Rows of a file, of any format that fit takes.")]
FamilyName = Annotated[str | None, typer.Option("--family", help="Of the file's target: logistic, linear or poisson.")]
Positive = Annotated[str | None, typer.Option(metavar="CLASS", help="The class that counts as 1, the others as 0.")]
Standardize = Annotated[bool, typer.Option("--standardize", help="Scale the file's columns.")]
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
SYNTHETIC = ("problem", "scale")
NOT_IN_A_RACE = (*SYNTHETIC, "s", "iterations", "recipes", "device")
"""Options by what they are about: whoever gives one where it would not count is told so."""


def glm(
    problem: Problem = None,
    ranks: Ranks = None,
    rate: Rate = None,
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
    """SGD and CA-SGD over blocks of columns: time, messages, bytes and loss of each precision and each s.

    CA-SGD in fp32 must give SGD's iterates, and all ranks the same bits, before a time counts. Under torchrun, uses
    its ranks.
    """
    given = dict(locals())
    to = Destination(output, as_json, quiet, commit)
    if time_to:
        run_suite("glm-time-to", lambda: _race_options(given), _race, to)
    elif device is not None:
        run_suite("glm-device", lambda: device_options(given), on_device, to)
    else:
        run_suite("glm", lambda: _options(given), _ranks, to)


def _options(given: dict[str, Any]) -> "GLMOptions":
    from laconic import bench
    from laconic.bench.glm.suite import GLMOptions, synthetic

    refuse(given, RACE, "is for --time-to")
    file = _file(given)
    scale = 0.05 if given["scale"] is None else given["scale"]
    return GLMOptions(
        problems=synthetic(o.names(given["problem"] or "all"), scale) if file is None else [file],
        ranks=bench.n_ranks(given["ranks"], given["rate"]),
        rate=given["rate"],
        s=numbers(given["s"] or "1,8,32,64,128"),
        batch_size=given["batch_size"] or 8,
        iterations=given["iterations"] or 256,
        repeats=given["repeats"],
        recipes=o.names(given["recipes"] or "fp32,C,D"),
    )


def _ranks(options: "GLMOptions", tell: Tell) -> Found | None:
    from laconic.bench.glm import goals, suite
    from laconic.cli.bench import glm_tables as tables

    rows = suite.glm_rows(options, tell)
    if rows is None:
        return None
    outcomes = goals.glm_outcomes(rows)
    said = {"options": options.published()}
    return Found(rows, outcomes, goals.SETTING, lambda here: tables.page(rows, outcomes, options, here), said)


def _race_options(given: dict[str, Any]) -> "TimeToOptions":
    from laconic.bench.glm.time_to import TimeToOptions

    if given["rate"] is not None or given["ranks"] not in (None, 1):
        raise BadInput("--time-to is for one process; leave --ranks and --rate out")
    refuse(given, NOT_IN_A_RACE, "has no part in --time-to")
    file = _file(given)
    if file is not None:
        refuse(given, ("rows",), "is for --time-to without --data")
    rows, file_size = given["rows"] or 581_012, given["file_size"] or 64_000_000
    return TimeToOptions(file, rows, given["batch_size"] or 32, given["repeats"], file_size)


def _race(options: "TimeToOptions", tell: Tell) -> Found:
    from laconic.bench.glm import files, goals, time_to
    from laconic.bench.suite import row_fields
    from laconic.cli.bench import glm_tables as tables

    rows = time_to.race(options, tell)
    read = files.file_row(options.file_bytes, options.repeats, tell)
    outcomes = goals.time_outcomes(rows, read)
    said = {"file": row_fields(read)}
    return Found(rows, outcomes, goals.TIME_SETTING, lambda here: tables.time_page(rows, read, outcomes, here), said)


def _file(given: dict[str, Any]) -> "Given | None":
    """The file that was asked for, if one was."""
    from laconic.bench.glm.data import Given
    from laconic.glm.job.source import Source

    if given["data"] is None:
        refuse(given, OF_FILES, "is for files; give one with --data")
        return None
    refuse(given, SYNTHETIC, "is of the synthetic problems; leave it out beside --data")
    source = Source(
        str(given["data"]),
        given["target"],
        given["weight"],
        given["offset"],
        given["exposure"],
        o.names(given["one_hot"]),
        o.names(given["drop"]),
        dense=given["dense"],
    )
    name = given["data"].name.split(".")[0]
    return Given(name, 1.0, source, given["family"], given["positive"], given["standardize"])
