"""Presentations of the suites of this package, for terminals and `laconic report`'s pages."""

from laconic.report import register

PRESENTATIONS = {
    "decentralised": "decentralised.presentation:PRESENTATION",
    "glm-device": "glm.presentation:DEVICE",
    "glm-time-to": "glm.presentation:TIME_TO",
    "kernels": "kernels.presentation:PRESENTATION",
    "papers-ca-sgd": "papers.presentation:CA_SGD",
    "papers-nuqsgd": "papers.presentation:NUQSGD",
    "plan": "plan.presentation:PRESENTATION",
}
for _suite, _place in PRESENTATIONS.items():
    register(_suite, lazily=f"benchmarks.{_place}")
