"""Benchmarks: problem × contender × config, under one protocol."""

from laconic.bench.codec.goals import outcomes
from laconic.bench.codec.row import Row, Step
from laconic.bench.codec.suite import CODERS, PROBLEMS, Options, steps
from laconic.bench.ddp.suite import DDPOptions, DDPRow, ddp_rows
from laconic.bench.document import document
from laconic.bench.environment import Environment
from laconic.bench.exchange.suite import ExchangeOptions, ExchangeRow, exchange_rows
from laconic.bench.findings import findings
from laconic.bench.goals import Outcome
from laconic.bench.gradient import Snapshot, digits_gradient
from laconic.bench.network import NetworkUnavailable, emulated_network
from laconic.bench.network_goals import network_outcomes
from laconic.bench.protocol import Comparison, Spread, compare, measure, one_thread
from laconic.bench.ranks import n_ranks
from laconic.bench.schemes import NAMES, Scheme, schemes
from laconic.bench.survey import Finding, survey

__all__ = [
    "CODERS",
    "NAMES",
    "PROBLEMS",
    "Comparison",
    "DDPOptions",
    "DDPRow",
    "Environment",
    "ExchangeOptions",
    "ExchangeRow",
    "Finding",
    "NetworkUnavailable",
    "Options",
    "Outcome",
    "Row",
    "Scheme",
    "Snapshot",
    "Spread",
    "Step",
    "compare",
    "ddp_rows",
    "digits_gradient",
    "document",
    "emulated_network",
    "exchange_rows",
    "findings",
    "measure",
    "n_ranks",
    "network_outcomes",
    "one_thread",
    "outcomes",
    "schemes",
    "steps",
    "survey",
]
