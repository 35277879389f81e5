"""Benchmarks of this repository: reproductions of papers, rivals, goals, and the pages of the documentation.

Run as `python -m benchmarks SUITE` from the root of the repository; not part of the installed package.
"""

from laconic.bench import SUITES as MEASURING
from laconic.report import register

OWN = {
    "papers": "benchmarks.papers.suite",
    "imagenet": "benchmarks.papers.nuqsgd.imagenet",
    "decentralised": "benchmarks.decentralised",
    "codec-error": "benchmarks.codec_error",
    "training": "benchmarks.training.suite",
    "ddp-loss": "benchmarks.training.ddp_loss",
    "lm": "benchmarks.lm",
    "sensitivity": "benchmarks.papers.sensitivity",
    "fsdp-loss": "benchmarks.fsdp_loss",
    "plan": "benchmarks.plan",
    "kernels": "benchmarks.kernels",
    "glm-time-to": "benchmarks.glm.time_to",
    "glm-optimum": "benchmarks.glm.optimum",
    "glm-sweep": "benchmarks.glm.sweep",
    "glm-device": "benchmarks.glm.device",
    "glm-stages": "benchmarks.glm.stages",
    "scaling": "benchmarks.scaling",
}
SUITES = {**OWN, **MEASURING}
"""Suites and the modules that define their SUITE; documents of `laconic bench` suites are judged by goals, too."""

PRESENTATIONS = {
    **{name: module for name, module in OWN.items() if name != "papers"},
    "papers-ca-sgd": "benchmarks.papers.ca_sgd",
    "papers-nuqsgd": "benchmarks.papers.nuqsgd.suite",
    "campaign": "benchmarks.pages.security",
}
"""The suite's name in a document, and the module that defines its PRESENTATION."""
for _name, _module in PRESENTATIONS.items():
    register(_name, lazily=f"{_module}:PRESENTATION")
