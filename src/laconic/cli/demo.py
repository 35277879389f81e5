"""`laconic demo`."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from laconic.cli.bad_input import bad_input
from laconic.cli.numbers import whole_number
from laconic.cli.progress import progress

if TYPE_CHECKING:
    from laconic.bench.glm import GLMOptions


def demo(
    bucket_size: Annotated[int, typer.Option(parser=whole_number(), help="Values that share one norm.")] = 8192,
    streams: Annotated[
        int, typer.Option(parser=whole_number(), help="Streams of random numbers to average the variance over.")
    ] = 20,
    seed: Annotated[
        int, typer.Option(parser=whole_number(least=0), help="Seed of the network and its mini-batches.")
    ] = 0,
    ranks: Annotated[
        int, typer.Option(parser=whole_number(least=0), help="Local ranks that train a small network; 0 for none.")
    ] = 4,
    steps: Annotated[int, typer.Option(parser=whole_number(), help="Steps that they train.")] = 40,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Every scheme on a real gradient: what it loses, what it sends, how fast. Then some of them in training.

    Trains a small network on scikit-learn's digits for a moment and compresses its gradient; then four local ranks
    train a small convolutional network with fp32, bf16 and 4-bit gradients, and fit a logistic regression with a
    message every iteration, then every 32. About a minute; the first run also compiles the kernels.
    """
    from rich.console import Console

    from laconic import bench
    from laconic.bench import glm
    from laconic.bench.document import fields
    from laconic.cli import demo_tables as tables

    with bad_input():
        contenders = [scheme for scheme in bench.schemes(bucket_size) if scheme.name != "sign"]
        training = (
            bench.DDPOptions(ranks=ranks, problem="digits", repeats=steps, codecs=["nuqsgd-4"]) if ranks else None
        )
        fit = _fit(ranks) if ranks else None
    n_parts = 1 + len(contenders) + (training.n_parts if training else 0) + (fit.n_parts if fit else 0)
    with progress(n_parts, quiet=quiet) as begin:
        begin("training")
        snapshot = bench.digits_gradient(seed=seed)
        rows = []
        for scheme in contenders:
            begin(scheme.label)
            rows.append(bench.survey(scheme, snapshot.gradient, n_streams=streams))
        trained = bench.ddp_rows(training, begin) if training else []
        fitted = glm.glm_rows(fit, begin) if fit else []
        if trained is None or fitted is None:  # a rank of torchrun other than the first
            return
    if as_json:
        more = {"findings": bench.findings(rows), "glm": [fields(row) for row in fitted]}
        made = bench.document("demo", [*rows, *trained], bench.Environment.here(), **more)
        typer.echo(json.dumps(made, indent=2, allow_nan=False))
        return
    console = Console(highlight=False)
    for shown in tables.tables(rows, trained, fitted, snapshot, bucket_size):
        console.print(shown)


def _fit(ranks: int) -> "GLMOptions":
    """A small logistic regression of SUSY's shape, by SGD and by CA-SGD with s = 32."""
    from laconic.bench import glm

    problems = glm.synthetic(["susy"], scale=0.002)
    return glm.GLMOptions(problems, ranks=ranks, s=(32,), recipes=("C",), iterations=128, repeats=5)
