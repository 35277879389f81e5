"""`laconic bench glm`."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli import fit_options as o
from laconic.cli.bad_input import BadInput, bad_input
from laconic.cli.bench_network import AsJson, Output, Quiet, Ranks, Rate, Repeats
from laconic.cli.bench_output import publish, show
from laconic.cli.numbers import whole_number
from laconic.cli.progress import progress

if TYPE_CHECKING:
    from laconic.bench.glm.data import Given

Problem = Annotated[
    str, typer.Option(metavar="NAME,...", help="epsilon, susy, higgs, synth, poisson-synth (synthetic), or all.")
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
Recipes = Annotated[str, typer.Option("--recipe", metavar="NAME,...", help="Precision of ca_sgd: fp32, C, D, fp64.")]
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
Commit = Annotated[
    str | None, typer.Option(metavar="HASH", help="Commit of this copy, to be written down; by default git's answer.")
]
FileSize = Annotated[int, typer.Option(parser=whole_number(), help="Bytes of the LIBSVM file of --time-to.")]
RowsOfRace = Annotated[int, typer.Option("--rows", parser=whole_number(), help="Rows of --time-to without --data.")]


def glm(
    problem: Problem = "all",
    ranks: Ranks = None,
    rate: Rate = None,
    s: Blocks = None,
    batch_size: BatchSize = None,
    iterations: Iterations = None,
    repeats: Repeats = 11,
    recipes: Recipes = "fp32,C,D",
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
    rows: RowsOfRace = 581_012,
    file_size: FileSize = 64_000_000,
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
    if device is not None:
        from laconic.cli.bench_glm_device import on_device

        text, page = on_device(given, _numbers(s or "8,16,32"))
        show(text, page, as_json=as_json)
        return
    (_race if time_to else _ranks)(given)


def _ranks(given: dict[str, Any]) -> None:
    from laconic import bench
    from laconic.bench.glm import goals, suite
    from laconic.cli import bench_glm_tables as tables

    first = os.environ.get("RANK", "0") == "0"
    with ExitStack() as stack:
        with bad_input():
            file = _file(given)
            options = suite.GLMOptions(
                problems=suite.synthetic(o.names(given["problem"]), given["scale"] or 0.05) if file is None else [file],
                ranks=bench.n_ranks(given["ranks"], given["rate"]),
                rate=given["rate"],
                s=_numbers(given["s"] or "1,8,32,64,128"),
                batch_size=given["batch_size"] or 8,
                iterations=given["iterations"] or 256,
                repeats=given["repeats"],
                recipes=o.names(given["recipes"]),
            )
            target = stack.enter_context(bench.replacing(given["output"])) if given["output"] and first else None
        environment = bench.Environment.here(given["commit"])
        begin = stack.enter_context(progress(options.n_parts, quiet=given["quiet"] or not first))
        with o.reading():
            rows = suite.glm_rows(options, begin)
        if rows is None:
            return
        outcomes = goals.glm_outcomes(rows)
        setting, said = goals.SETTING, {"options": options.published()}
        text = publish("glm", rows, environment, outcomes, setting, target, **said)
    show(text, tables.page(rows, outcomes, options, environment), as_json=given["as_json"])


def _race(given: dict[str, Any]) -> None:
    from laconic import bench
    from laconic.bench.document import fields
    from laconic.bench.glm import contenders, data, files, goals, objective, time_to
    from laconic.cli import bench_glm_tables as tables
    from laconic.exchange import Communicator

    with ExitStack() as stack:
        with bad_input():
            if given["rate"] is not None or given["ranks"] not in (None, 1):
                raise BadInput("--time-to is for one process; leave --ranks and --rate out")
            file, batch_size, repeats = _file(given), given["batch_size"] or 32, given["repeats"]
            target = stack.enter_context(bench.replacing(given["output"])) if given["output"] else None
        environment = bench.Environment.here(given["commit"])
        begin = stack.enter_context(progress(4 + time_to.n_parts(repeats), quiet=given["quiet"]))
        begin("the rows")
        with o.reading():
            problem = data.load(file, Communicator())[0] if file else data.covtype_like(given["rows"])
            training = objective.TrainingRows.of(problem, contenders.ALPHA)
        name = file.name if file else "covtype-like"
        rows = time_to.time_to_rows(name, training, batch_size=batch_size, repeats=repeats, tell=begin)
        read = files.file_row(given["file_size"], repeats, begin)
        outcomes = goals.time_outcomes(rows, read)
        setting, said = goals.TIME_SETTING, {"file": fields(read)}
        text = publish("glm-time-to", rows, environment, outcomes, setting, target, **said)
    show(text, tables.time_page(rows, read, outcomes, environment), as_json=given["as_json"])


def _file(given: dict[str, Any]) -> "Given | None":
    """The file that was asked for, if one was."""
    from laconic.bench.glm.data import Given
    from laconic.glm.job.source import Source

    if given["data"] is None:
        for name in ("family", "target", "positive", "weight", "offset", "exposure", "one_hot", "drop"):
            if given[name] is not None:
                raise BadInput(f"--{name.replace('_', '-')} is for files; give one with --data")
        return None
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


def _numbers(text: str) -> list[int]:
    return [whole_number()(word) for word in o.names(text)]
