"""The options of `python -m benchmarks papers`: what both suites have, what one has alone, and what becomes of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli import fit_options as o
from laconic.cli.bench.options import numbers
from laconic.cli.errors import BadInput
from laconic.cli.numbers import whole_number

if TYPE_CHECKING:
    from benchmarks.papers.ca_sgd.suite import CASGDOptions
    from benchmarks.papers.nuqsgd.options import NUQSGDOptions

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


def check_suite(given: dict[str, Any]) -> None:
    """A complaint about a suite that is not there, or an option of the other one."""
    if given["suite"] not in SUITES:
        raise BadInput(f"unknown suite {given['suite']!r}; choose one of {', '.join(SUITES)}")
    for suite, names in ONLY.items():
        for name in names:
            if suite != given["suite"] and given[name] is not None:
                raise BadInput(f"--{WRITTEN.get(name, name).replace('_', '-')} is for --suite {suite}")


def ca_sgd_options(given: dict[str, Any]) -> "CASGDOptions":
    """From what was typed; what was not depends on the device."""
    from benchmarks.papers.ca_sgd.data import given_problems
    from benchmarks.papers.ca_sgd.suite import CASGDOptions
    from laconic.bench.ranks import n_ranks

    on_gpu = given["device"] != "cpu"
    if on_gpu and (given["ranks"] not in (None, 1) or given["rate"] is not None):
        raise BadInput("ca-sgd on a GPU is one process; leave --ranks and --rate out")
    scale = given["scale"] if given["scale"] is not None else 1.0 if on_gpu else 0.05
    asked = {name: given[name] for name in ("batch_size", "iterations", "points") if given[name] is not None}
    defaults = {"batch_size": 32, "iterations": 8192, "s": (16, 32)} if on_gpu else {"s": (32, 128)}
    if given["s"] is not None:
        asked["s"] = numbers(given["s"])
    if given["recipes"] is not None:
        asked["recipes"] = o.names(given["recipes"])
    return CASGDOptions(
        problems=given_problems(o.names(given["problem"] or "all"), scale, given["data"]),
        ranks=1 if on_gpu else n_ranks(given["ranks"], given["rate"]),
        rate=given["rate"],
        device=given["device"],
        **{**defaults, **asked},
    )


def nuqsgd_options(given: dict[str, Any]) -> "NUQSGDOptions":
    """From what was typed; what was not is small on a CPU, and the paper's on a GPU."""
    from benchmarks.papers.nuqsgd.options import NUQSGDOptions
    from laconic.bench.ranks import n_ranks
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
        asked["ranks"] = n_ranks(given["ranks"], None)
    elif given["exchange"] is not None:
        raise BadInput("--exchange is for real processes; give --ranks, too")
    small = {"model": "resnet-8", "batch_size": 32, "points": 5} if given["device"] == "cpu" else {}
    return NUQSGDOptions(**{**small, **asked})
