"""`laconic bench plan`: predicted against measured, and what following the planner costs."""

from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from laconic.cli.bad_input import bad_input
from laconic.cli.bench_network import AsJson, Output, Quiet
from laconic.cli.bench_output import publish, show
from laconic.cli.progress import progress

if TYPE_CHECKING:
    from laconic.bench.plan.suite import PlanOptions

LOOPBACK = "loopback"


def plan(
    ranks: Annotated[str, typer.Option(metavar="N,...", help="Ranks to start, each number in turn.")] = "1,2,4",
    rates: Annotated[
        str, typer.Option(metavar="RATE,...", help="Emulated links; needs root and iproute2, unless it is loopback.")
    ] = "100mbit,1gbit,loopback",
    s: Annotated[str, typer.Option("--s", metavar="N,...", help="Iterations a message.")] = "1,2,4,8,16,32,64",
    quick: Annotated[bool, typer.Option("--quick", help="A small grid, of about a minute.")] = False,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Calibrate on each network, run every option there, and compare with what was predicted.

    Below ten minutes on two cores; every network is removed before the next is made.
    """

    from laconic import bench
    from laconic.bench.plan import goals, suite
    from laconic.cli import bench_plan_tables as tables

    with ExitStack() as stack:
        with bad_input():
            options = suite.PlanOptions.quick() if quick else _options(ranks, rates, s)
            file = stack.enter_context(bench.replacing(output)) if output else None
        environment = bench.Environment.here()
        begin = stack.enter_context(progress(options.n_parts, quiet=quiet))
        rows, calibrations = suite.plan_rows(options, begin)
        found = suite.regrets(rows)
        outcomes = goals.plan_outcomes(rows, found)
        said = {
            "options": asdict(options),
            "regrets": [asdict(one) for one in found],
            "calibrations": [{k: v for k, v in c.to_json().items() if k != "machine"} for c in calibrations],
        }
        text = publish("plan", rows, environment, outcomes, goals.SETTING, file, **said)
    show(text, tables.page(rows, found, outcomes, environment), as_json=as_json)


def _options(ranks: str, rates: str, s: str) -> "PlanOptions":
    from laconic.bench.plan.suite import PlanOptions

    links = [None if rate == LOOPBACK else rate for rate in _words(rates)]
    return PlanOptions(ranks=_numbers("--ranks", ranks), rates=links, s=_numbers("--s", s))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(option: str, text: str) -> list[int]:
    words = _words(text)
    if not words or not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise ValueError(f"{option} expects whole numbers with commas between them, such as 1,2,4; got {text!r}")
    return [int(word) for word in words]
