"""`laconic bench decentralised`."""

import os
from contextlib import ExitStack
from dataclasses import asdict
from typing import Annotated

import typer

from laconic.cli.bad_input import bad_input
from laconic.cli.bench_network import AsJson, Output, Quiet, Ranks, Rate, Repeats
from laconic.cli.bench_output import publish, show
from laconic.cli.numbers import whole_number
from laconic.cli.progress import progress


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
    batch_size: Annotated[int, typer.Option(parser=whole_number(), help="Samples a rank and step.")] = 16,
    repeats: Repeats = 30,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Training that talks to neighbours in a graph only, next to all-reduce in fp32 and NUQSGD by scatter_reduce.

    Every way trains the same network on the same batches. Under torchrun, uses its ranks.
    """

    from laconic import bench
    from laconic.bench import decentralised as suite
    from laconic.bench import decentralised_goals
    from laconic.cli import bench_decentralised_tables as tables

    first = os.environ.get("RANK", "0") == "0"
    with ExitStack() as stack:
        with bad_input():
            if simulate is not None and ranks is not None:
                raise ValueError("give --ranks or --simulate, not both")
            options = suite.DecentralisedOptions(
                ranks=bench.n_ranks(ranks, rate) if simulate is None else simulate,
                simulated=simulate is not None,
                rate=rate,
                slow_rate=slow,
                topologies=_names(topology),
                members=_names(member),
                codecs=_names(codec),
                problem=problem,
                size=size,
                batch_size=batch_size,
                repeats=repeats,
            )
            file = stack.enter_context(bench.replacing(output)) if output and first else None
        environment = bench.Environment.here()
        begin = stack.enter_context(progress(options.n_parts, quiet=quiet or not first))
        rows = suite.decentralised_rows(options, begin)
        if rows is None:
            return
        outcomes = decentralised_goals.decentralised_outcomes(rows)
        setting, said = decentralised_goals.SETTING, {"options": asdict(options)}
        text = publish("decentralised", rows, environment, outcomes, setting, file, **said)
    show(text, tables.page(rows, outcomes, environment), as_json=as_json)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
