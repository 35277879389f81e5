"""`laconic bench papers`."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli import fit_options as o
from laconic.cli.bad_input import BadInput, bad_input
from laconic.cli.bench_network import AsJson, Quiet, Rate
from laconic.cli.bench_output import publish, show
from laconic.cli.numbers import whole_number
from laconic.cli.progress import progress

if TYPE_CHECKING:
    from laconic.bench.papers.ca_sgd.suite import CASGDOptions
    from laconic.bench.papers.nuqsgd.options import NUQSGDOptions

SUITES = ("ca-sgd", "nuqsgd")
ONLY = {
    "ca-sgd": ("problem", "scale", "s", "recipes", "rate"),
    "nuqsgd": (
        "dataset", "model", "methods", "workers", "bits", "bucket_size", "epochs", "images", "learning_rate",
        "seed", "exchange",
    ),
}  # fmt: skip
"""Options that one suite alone has."""
WRITTEN = {"recipes": "recipe"}
"""Where an option's name is not the parameter's."""

Suite = Annotated[str, typer.Option(metavar="NAME", help="ca-sgd or nuqsgd: which paper.")]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="ca-sgd: folder with epsilon_normalized, SUSY or HIGGS (LIBSVM, also .bz2 and .xz, or stores); synthetic "
        "rows for the others. nuqsgd: folder of --dataset.",
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(
        parser=whole_number(),
        help="Processes. ca-sgd: 4 if not given. nuqsgd: real ranks instead of simulated workers.",
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        parser=whole_number(),
        help="ca-sgd: rows of a batch, 8 (32 on a GPU). nuqsgd: a worker's images, 32 (128 on a GPU).",
    ),
]
Iterations = Annotated[
    int | None,
    typer.Option(
        parser=whole_number(),
        help="ca-sgd: between two points of a curve, a multiple of every s; 256 (8192 on a GPU). nuqsgd: in all.",
    ),
]
Points = Annotated[
    int | None, typer.Option(parser=whole_number(), help="Points of a curve; 9, nuqsgd 5 (11 on a GPU).")
]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu or cuda.")]
Commit = Annotated[
    str | None, typer.Option(metavar="HASH", help="Commit of this copy, to be written down; by default git's answer.")
]
Problem = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="ca-sgd: epsilon, susy, higgs, synth, poisson-synth, or all (default)."),
]
Scale = Annotated[
    float | None, typer.Option(help="ca-sgd: part of the rows of the synthetic problems; 0.05, and 1 on a GPU.")
]
Blocks = Annotated[
    str | None, typer.Option("--s", metavar="N,...", help="ca-sgd: iterations a message; 32,128, on a GPU 16,32.")
]
Recipes = Annotated[str | None, typer.Option("--recipe", metavar="NAME,...", help="ca-sgd: fp32,C,D.")]
Dataset = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="nuqsgd: cifar10, fashion-mnist, imagenet, or synthetic (default)."),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="nuqsgd: resnet-8 (default), -14, -20, -32, -44, -56, -110 (default on a GPU); large: -18, -34, -50.",
    ),
]
Methods = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="nuqsgd: nuqsgd,qsgd,qsgdinf,ef-sign; fp32 is always there.")
]
Workers = Annotated[int | None, typer.Option(parser=whole_number(), help="nuqsgd: workers simulated on one device; 4.")]
Bits = Annotated[int | None, typer.Option(parser=whole_number(), help="nuqsgd: width of a symbol; 4.")]
BucketSize = Annotated[
    int | None, typer.Option(parser=whole_number(), help="nuqsgd: values that share one norm; 8192.")
]
Epochs = Annotated[float | None, typer.Option(help="nuqsgd: passes over the training images, without --iterations; 1.")]
Images = Annotated[int | None, typer.Option(parser=whole_number(), help="nuqsgd: only so many images.")]
LearningRate = Annotated[float | None, typer.Option(help="nuqsgd: base learning rate; 0.1.")]
Seed = Annotated[int | None, typer.Option(parser=whole_number(0), help="nuqsgd: of weights, batches and roundings; 0.")]
ExchangeName = Annotated[
    str | None,
    typer.Option("--exchange", metavar="NAME", help="nuqsgd with --ranks: all_gather, scatter_reduce, auto."),
]
Output = Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the document here, too.")]


def papers(
    suite: Suite,
    data: Data = None,
    device: Device = "cpu",
    ranks: Ranks = None,
    batch_size: BatchSize = None,
    iterations: Iterations = None,
    points: Points = None,
    problem: Problem = None,
    scale: Scale = None,
    s: Blocks = None,
    recipes: Recipes = None,
    rate: Rate = None,
    dataset: Dataset = None,
    model: Model = None,
    methods: Methods = None,
    workers: Workers = None,
    bits: Bits = None,
    bucket_size: BucketSize = None,
    epochs: Epochs = None,
    images: Images = None,
    learning_rate: LearningRate = None,
    seed: Seed = None,
    exchange: ExchangeName = None,
    commit: Commit = None,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run the two papers' experiments again, and print their figures beside ours.

    ca-sgd: loss and speed of SGD and CA-SGD in each precision. nuqsgd: residual networks whose gradients are quantised
    in each way: variance, loss, accuracy, bits. Small enough for a laptop by default; docs/papers.md says what differs.
    """
    given = dict(locals())
    with bad_input():
        _check_suite(given)
    (_ca_sgd if suite == "ca-sgd" else _nuqsgd)(given)


def _check_suite(given: dict[str, Any]) -> None:
    if given["suite"] not in SUITES:
        raise BadInput(f"unknown suite {given['suite']!r}; choose one of {', '.join(SUITES)}")
    for suite, names in ONLY.items():
        for name in names:
            if suite != given["suite"] and given[name] is not None:
                raise BadInput(f"--{WRITTEN.get(name, name).replace('_', '-')} is for --suite {suite}")


def _ca_sgd(given: dict[str, Any]) -> None:
    from laconic.bench.papers.ca_sgd import goals, suite
    from laconic.cli import bench_papers_tables as tables

    with bad_input():
        options = _ca_sgd_options(given)
    _run(given, suite.ca_sgd_rows, options, goals.ca_sgd_outcomes, goals.ca_sgd_claims, tables.CA_SGD)


def _nuqsgd(given: dict[str, Any]) -> None:
    from laconic.bench.papers.nuqsgd import goals, suite
    from laconic.cli import bench_papers_tables as tables

    with bad_input():
        options = _nuqsgd_options(given)
    _run(given, suite.nuqsgd_rows, options, goals.nuqsgd_outcomes, goals.nuqsgd_claims, tables.NUQSGD)


def _run(given: dict[str, Any], run: Any, options: Any, outcomes_of: Any, claims_of: Any, shown: Any) -> None:
    """Run a suite, write its document, show it."""
    from laconic import bench
    from laconic.bench.environment import GPUEnvironment

    first = os.environ.get("RANK", "0") == "0"
    with ExitStack() as stack:
        with bad_input():
            target = stack.enter_context(bench.replacing(given["output"])) if given["output"] and first else None
        on_gpu = options.device != "cpu"
        environment: Any = (
            GPUEnvironment.here(options.device, given["commit"]) if on_gpu else bench.Environment.here(given["commit"])
        )
        begin = stack.enter_context(progress(options.n_parts, quiet=given["quiet"] or not first))
        with o.reading():
            rows = run(options, begin)
        if rows is None:
            return
        outcomes, claims = outcomes_of(rows), claims_of(rows)
        said = {
            "title": shown.title,
            "about": shown.about(rows),
            "options": options.published(),
            "published": [asdict(claim) for claim in claims],
        }
        text = publish(f"papers-{given['suite']}", rows, environment, outcomes, shown.setting, target, **said)
    show(text, shown.page(rows, claims, outcomes, environment), as_json=given["as_json"])


def _ca_sgd_options(given: dict[str, Any]) -> "CASGDOptions":
    from laconic import bench
    from laconic.bench.papers.ca_sgd.data import given_problems
    from laconic.bench.papers.ca_sgd.suite import CASGDOptions

    on_gpu = given["device"] != "cpu"
    if on_gpu and (given["ranks"] not in (None, 1) or given["rate"] is not None):
        raise BadInput("ca-sgd on a GPU is one process; leave --ranks and --rate out")
    scale = given["scale"] if given["scale"] is not None else 1.0 if on_gpu else 0.05
    asked = {name: given[name] for name in ("batch_size", "iterations", "points") if given[name] is not None}
    defaults = {"batch_size": 32, "iterations": 8192, "s": (16, 32)} if on_gpu else {"s": (32, 128)}
    if given["s"] is not None:
        asked["s"] = [whole_number()(word) for word in o.names(given["s"])]
    if given["recipes"] is not None:
        asked["recipes"] = o.names(given["recipes"])
    return CASGDOptions(
        problems=given_problems(o.names(given["problem"] or "all"), scale, given["data"]),
        ranks=1 if on_gpu else bench.n_ranks(given["ranks"], given["rate"]),
        rate=given["rate"],
        device=given["device"],
        **{**defaults, **asked},
    )


def _nuqsgd_options(given: dict[str, Any]) -> "NUQSGDOptions":
    from laconic import bench
    from laconic.bench.papers.nuqsgd.options import NUQSGDOptions
    from laconic.exchange.launch import inside_torchrun

    names: Sequence[str] = (*ONLY["nuqsgd"], "batch_size", "iterations", "points", "device")
    asked = {name: given[name] for name in names if given[name] is not None}
    if "methods" in asked:
        asked["methods"] = o.names(asked["methods"])
    if given["data"] is not None:
        asked["data"] = str(given["data"])
    if given["ranks"] is not None or inside_torchrun():
        if given["workers"] is not None:
            raise BadInput("--workers is for simulated ones; with --ranks, each rank is a worker")
        asked["ranks"] = bench.n_ranks(given["ranks"], None)
    elif given["exchange"] is not None:
        raise BadInput("--exchange is for real processes; give --ranks, too")
    small = {"model": "resnet-8", "batch_size": 32, "points": 5} if given["device"] == "cpu" else {}
    return NUQSGDOptions(**{**small, **asked})
