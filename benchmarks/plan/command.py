"""`python -m benchmarks plan`: predicted against measured, and what following the planner costs."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from laconic.cli.bench.options import AsJson, Output, Quiet
from laconic.cli.bench.running import Destination, Found, Tell, run_suite
from laconic.cli.fit_options import names

if TYPE_CHECKING:
    from benchmarks.plan.suite import PlanOptions

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
    from benchmarks.plan.suite import PlanOptions

    def options() -> PlanOptions:
        if quick:
            return PlanOptions.quick()
        links = [None if rate == LOOPBACK else rate for rate in names(rates)]
        return PlanOptions(ranks=_numbers("--ranks", ranks), rates=links, s=_numbers("--s", s))

    run_suite("plan", options, _run, Destination(output, as_json, quiet))


def _run(options: "PlanOptions", tell: Tell) -> Found:
    from benchmarks.goals.outcome import in_document
    from benchmarks.plan import goals, suite, tables

    rows, calibrations = suite.plan_rows(options, tell)
    regrets = suite.regrets(rows)
    outcomes = goals.plan_outcomes(rows, regrets)
    said = {
        "options": asdict(options),
        "regrets": [asdict(one) for one in regrets],
        "calibrations": [{k: v for k, v in c.to_json().items() if k != "machine"} for c in calibrations],
        **in_document(outcomes, goals.SETTING),
    }
    return Found(rows, lambda here: tables.page(rows, regrets, outcomes, here), said)


def _numbers(option: str, text: str) -> list[int]:
    words = names(text)
    if not words or not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise ValueError(f"{option} expects whole numbers with commas between them, such as 1,2,4; got {text!r}")
    return [int(word) for word in words]
