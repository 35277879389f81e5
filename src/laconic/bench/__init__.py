"""Benchmarks: problem × contender × config, under one protocol."""

from laconic.bench.codec.row import Row, Step
from laconic.bench.codec.suite import CODERS, PROBLEMS, Options, steps
from laconic.bench.ddp.suite import DDPOptions, DDPRow, ddp_rows
from laconic.bench.exchange import ExchangeOptions, ExchangeRow, exchange_rows
from laconic.bench.findings import findings
from laconic.bench.gradient import Snapshot, digits_gradient
from laconic.bench.network import NetworkUnavailable, emulated_network
from laconic.bench.protocol import Comparison, Spread, compare, measure, one_thread
from laconic.bench.ranks import n_ranks
from laconic.bench.schemes import NAMES, Scheme, schemes
from laconic.bench.suite import Suite, document, option
from laconic.bench.survey import Finding, survey
from laconic.measure.environment import Environment
from laconic.report import register

SUITES = {
    "exchange": "laconic.bench.exchange",
}
"""Suites of `laconic bench`, and the modules that have their SUITE and PRESENTATION."""
for _name, _module in SUITES.items():
    register(_name, lazily=f"{_module}:PRESENTATION")
for _name, _place in {
    "codec": "codec.presentation:PRESENTATION",
    "ddp": "ddp.suite:PRESENTATION",
    "glm": "glm.presentation:PRESENTATION",
    "demo": "demo:PRESENTATION",
}.items():
    register(_name, lazily=f"laconic.bench.{_place}")

__all__ = [
    "CODERS",
    "NAMES",
    "PROBLEMS",
    "SUITES",
    "Comparison",
    "DDPOptions",
    "DDPRow",
    "Environment",
    "ExchangeOptions",
    "ExchangeRow",
    "Finding",
    "NetworkUnavailable",
    "Options",
    "Row",
    "Scheme",
    "Snapshot",
    "Spread",
    "Step",
    "Suite",
    "compare",
    "ddp_rows",
    "digits_gradient",
    "document",
    "emulated_network",
    "exchange_rows",
    "findings",
    "measure",
    "n_ranks",
    "one_thread",
    "option",
    "schemes",
    "steps",
    "survey",
]
