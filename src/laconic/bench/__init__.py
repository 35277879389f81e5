"""Benchmarks: problem × contender × config, under one protocol."""

from laconic.bench.codec import CODERS, PROBLEMS, Options, steps
from laconic.bench.document import document, replacing
from laconic.bench.environment import Environment
from laconic.bench.findings import findings
from laconic.bench.goals import Outcome, outcomes
from laconic.bench.gradient import Snapshot, digits_gradient
from laconic.bench.protocol import Comparison, Spread, compare, measure, one_thread
from laconic.bench.row import Row, Step
from laconic.bench.schemes import NAMES, Scheme, schemes
from laconic.bench.survey import Finding, survey

__all__ = [
    "CODERS",
    "NAMES",
    "PROBLEMS",
    "Comparison",
    "Environment",
    "Finding",
    "Options",
    "Outcome",
    "Row",
    "Scheme",
    "Snapshot",
    "Spread",
    "Step",
    "compare",
    "digits_gradient",
    "document",
    "findings",
    "measure",
    "one_thread",
    "outcomes",
    "replacing",
    "schemes",
    "steps",
    "survey",
]
