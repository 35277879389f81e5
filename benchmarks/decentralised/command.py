"""`python -m benchmarks decentralised`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from laconic.cli.bench.options import AsJson, Output, Quiet, Ranks, Rate, Repeats, SamplesAStep
from laconic.cli.bench.running import Destination, Found, Tell, run_suite
from laconic.cli.fit_options import names
from laconic.cli.numbers import whole_number

if TYPE_CHECKING:
    from benchmarks.decentralised.options import DecentralisedOptions


def decentralised(
    ranks: Ranks = None,
    simulate: Annotated[
        int | None,
        typer.Option(parser=whole_number(), metavar="NODES", help="Simulate so many nodes in this process: no times."),
    ] = None,
    rate: Rate = None,
    slow: Annotated[
        str | None, typer.Option(metavar="RATE", help="Rate of the last host's link, such as 10mbit; needs --rate.")
    ] = None,
    topology: Annotated[
        str, typer.Option(metavar="NAME,...", help="Graphs: ring, torus, exponential, star, complete.")
    ] = "ring,star",
    member: Annotated[
        str, typer.Option(metavar="NAME,...", help="dpsgd, ecd, dcd, ecd-paper, ecd-running, ecd-restart.")
    ] = "dpsgd,ecd,dcd",
    codec: Annotated[
        str, typer.Option(metavar="NAME,...", help="nuqsgd-4, nuqsgd-8, qsgd-4, qsgd-8.")
    ] = "nuqsgd-4,nuqsgd-8",
    problem: Annotated[
        str, typer.Option(help="clusters (a perceptron) or digits (a small convolutional network).")
    ] = "clusters",
    size: Annotated[int, typer.Option(parser=whole_number(), help="Parameters of the perceptron, at least.")] = 2**20,
    batch_size: SamplesAStep = 16,
    repeats: Repeats = 30,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Training that talks to neighbours in a graph only, next to all-reduce in fp32 and NUQSGD by scatter_reduce.

    Every way trains the same network on the same batches. Under torchrun, uses its ranks.
    """
    from benchmarks.decentralised.options import DecentralisedOptions
    from laconic.bench.ranks import n_ranks

    def options() -> DecentralisedOptions:
        if simulate is not None and ranks is not None:
            raise ValueError("give --ranks or --simulate, not both")
        return DecentralisedOptions(
            ranks=n_ranks(ranks, rate) if simulate is None else simulate,
            simulated=simulate is not None,
            rate=rate,
            slow_rate=slow,
            topologies=names(topology),
            members=names(member),
            codecs=names(codec),
            problem=problem,
            size=size,
            batch_size=batch_size,
            repeats=repeats,
        )

    run_suite("decentralised", options, _run, Destination(output, as_json, quiet))


def _run(options: "DecentralisedOptions", tell: Tell) -> Found | None:
    from benchmarks.decentralised import goals, suite, tables
    from benchmarks.goals.outcome import in_document

    rows = suite.decentralised_rows(options, tell)
    if rows is None:
        return None
    outcomes = goals.decentralised_outcomes(rows)
    said = {"options": asdict(options), **in_document(outcomes, goals.setting(rows))}
    return Found(rows, lambda here: tables.page(rows, outcomes, here), said)
