"""What measures the user's machine: suites of problem × contender × config, under one protocol."""

from laconic.bench.gradient import Snapshot, digits_gradient
from laconic.bench.network import NetworkUnavailable, emulated_network
from laconic.bench.protocol import Comparison, Spread, compare, measure, one_thread
from laconic.bench.suite import Suite, document, option
from laconic.bench.survey import NAMES, Finding, Scheme, findings, schemes, survey
from laconic.report import register

SUITES = {
    "codec": "laconic.bench.codec",
    "exchange": "laconic.bench.exchange",
    "ddp": "laconic.bench.ddp",
    "glm": "laconic.bench.glm.suite",
}
"""Suites of `laconic bench`, and the modules that have their SUITE and PRESENTATION."""
for _name, _module in {**SUITES, "demo": "laconic.bench.demo"}.items():
    register(_name, lazily=f"{_module}:PRESENTATION")

__all__ = [
    "NAMES",
    "SUITES",
    "Comparison",
    "Finding",
    "NetworkUnavailable",
    "Scheme",
    "Snapshot",
    "Spread",
    "Suite",
    "compare",
    "digits_gradient",
    "document",
    "emulated_network",
    "findings",
    "measure",
    "one_thread",
    "option",
    "schemes",
    "survey",
]
