"""Finite-precision analysis of an outer iteration of CA-SGD: nine terms, one per knob, derived in docs/precision.md."""

from laconic.glm.analysis.analyse import DEVICES, Analysis, Device, Term, analyse, device_named
from laconic.glm.analysis.choice import Choice, Step, choose
from laconic.glm.analysis.iteration import Sample, samples, take_sample

__all__ = [
    "DEVICES",
    "Analysis",
    "Choice",
    "Device",
    "Sample",
    "Step",
    "Term",
    "analyse",
    "choose",
    "device_named",
    "samples",
    "take_sample",
]
