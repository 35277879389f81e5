"""`python -m benchmarks kernels`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from laconic.cli.bench.options import AsJson, BucketSize, Commit, Output, Quiet
from laconic.cli.bench.running import Destination, Found, Tell, run_suite
from laconic.cli.fit_options import names
from laconic.cli.numbers import whole_number

if TYPE_CHECKING:
    from benchmarks.kernels.suite import KernelOptions


def kernels(
    device: Annotated[str, typer.Option(help="The GPU to run on: cuda, cuda:1, ...")] = "cuda",
    size: Annotated[int, typer.Option(parser=whole_number(), help="Number of values, far above the cache.")] = 2**28,
    bucket_size: BucketSize = 8192,
    repeats: Annotated[int, typer.Option(parser=whole_number(), help="Timed rounds of each kernel.")] = 21,
    schemes: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these: nuqsgd, qsgd, qsgdinf, sign.")
    ] = None,
    commit: Commit = None,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Bytes a second of every GPU kernel, next to a copy on the same GPU. Needs a CUDA GPU.

    Every kernel is compared with the reference before it is timed.
    """
    from benchmarks.kernels.suite import NAMES, KernelOptions

    def options() -> KernelOptions:
        return KernelOptions(
            device=device,
            size=size,
            bucket_size=bucket_size,
            repeats=repeats,
            schemes=NAMES if schemes is None else names(schemes),
        )

    run_suite("kernels", options, _run, Destination(output, as_json, quiet, commit))


def _run(options: "KernelOptions", tell: Tell) -> Found:
    from benchmarks.goals.outcome import in_document
    from benchmarks.kernels import goals, suite, tables

    rows = suite.kernel_rows(options, tell)
    outcomes = goals.kernel_outcomes(rows)
    said = {"options": asdict(options), **in_document(outcomes, suite.SETTING)}
    return Found(rows, lambda here: tables.page(rows, outcomes, options, here), said)
