"""Errors as they are: the iteration with one knob lowered, or many, against float64."""

from dataclasses import replace

from laconic.glm.analysis.iteration import outer_iteration
from laconic.glm.analysis.sample import Sample
from laconic.glm.precision import Precision, recipe


def measured_term(sample: Sample, knob: str, name: str, movement: float) -> float:
    """‖x'(this knob in this format) − x'(float64)‖ / movement.

    An accumulator is measured between operands of its own format, which it may not be shorter than.
    """
    exact = recipe("fp64")
    base = replace(exact, gram_operand=name) if knob == "gram_accumulate" else exact
    lowered = replace(base, **{knob: name})
    return _distance(sample, lowered, base, movement)


def measured_total(sample: Sample, precision: Precision, movement: float) -> float:
    """The same for all nine knobs together, in the arithmetic that the recipe runs in."""
    return _distance(sample, precision, recipe("fp64"), movement)


def _distance(sample: Sample, a: Precision, b: Precision, movement: float) -> float:
    off = (outer_iteration(sample, a) - outer_iteration(sample, b)).norm()
    return float(off) / movement if bool(off.isfinite()) else float("inf")
