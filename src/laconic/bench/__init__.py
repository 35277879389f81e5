"""Benchmark suites for the user's own machine: problem × contender × config, under one protocol."""

from laconic.bench.protocol import Spread, measure
from laconic.bench.suite import Suite
from laconic.options import option
from laconic.report import register

SUITES = {
    "codec": "laconic.bench.codec",
    "exchange": "laconic.bench.exchange",
    "ddp": "laconic.bench.ddp",
    "fsdp": "laconic.bench.fsdp",
    "glm": "laconic.bench.glm.suite",
}
"""Suites of `laconic bench`, and the modules that define their SUITE and PRESENTATION."""
for _name, _module in {**SUITES, "demo": "laconic.bench.demo"}.items():
    register(_name, lazily=f"{_module}:PRESENTATION")

__all__ = ["SUITES", "Spread", "Suite", "measure", "option"]
