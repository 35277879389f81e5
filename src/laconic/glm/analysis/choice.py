"""The cheapest recipe that meets a tolerance, and what stopped it from being cheaper."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from laconic.glm.analysis.analyse import Analysis
from laconic.glm.analysis.devices import BYTES, Device, cost
from laconic.glm.precision import KNOBS, RECIPES, Precision
from laconic.kernels.formats import FORMATS

JOINT = ("data", "gram_operand", "gram_accumulate")
"""Chosen together: an accumulator is not shorter than its operands, and operands of rounded data are free."""


@dataclass(frozen=True, slots=True)
class Step:
    """One knob a format lower, and what would come of it."""

    knob: str
    format: str
    error: float
    saved_bytes: float


@dataclass(frozen=True, slots=True)
class Choice:
    """A recipe for a tolerance.

    predicted   sum of the measured terms
    measured    error of the recipe itself, at the worst block
    bytes       its cost, and
    fp32_bytes  that of fp32
    stopped_by  the steps down that the tolerance does not allow, the one that would save most first
    """

    tolerance: float
    precision: Precision
    predicted: float
    measured: float
    bytes: float
    fp32_bytes: float
    stopped_by: tuple[Step, ...]

    def explain(self) -> str:
        """In a few sentences."""
        lines = [
            f"tolerance {self.tolerance:g}: {self.precision.short_name()}; error {self.measured:.2g} of a step "
            f"(predicted {self.predicted:.2g}), {self.bytes / self.fp32_bytes:.0%} of fp32's bytes"
        ]
        if self.precision == RECIPES["fp64"]:
            lines.append(f"stopped by float32 arithmetic itself, which errs by {self.stopped_by[0].error:.2g}")
        elif self.stopped_by:
            step = self.stopped_by[0]
            lines.append(f"stopped by {step.knob}: in {step.format} the error would be {step.error:.2g}")
        else:
            lines.append("every knob is as low as the device allows")
        return "; ".join(lines)


@dataclass(frozen=True, slots=True)
class _Partial:
    """Formats of some knobs, with what they add to error and cost."""

    error: float
    bytes: float
    formats: dict[str, str]


def choose(analysis: Analysis, device: Device, tolerance: float) -> Choice:
    """The cheapest recipe whose predicted error, and then whose measured error, is within the tolerance.

    The sum of terms is separable, so that recipes are built knob by knob, keeping at each stage those that no other
    beats in both error and cost: the result is the cheapest of all, not of some.

    tolerance  error of the new weights relative to their movement in an outer iteration
    """
    _check(analysis, tolerance)
    full = cost(dict.fromkeys(KNOBS, "fp32"), analysis.touched)
    for found in sorted(_frontier(analysis, device), key=lambda found: (found.bytes, found.error)):
        precision = Precision(**found.formats)
        if found.error <= tolerance and (measured := analysis.total(precision)) <= tolerance:
            steps = _steps(analysis, device, found, tolerance)
            return Choice(tolerance, precision, found.error, measured, found.bytes, full, steps)
    exact = RECIPES["fp64"]
    price = cost(dict.fromkeys(KNOBS, "fp64"), analysis.touched)
    step = Step("arithmetic", "fp32", analysis.floor, price - full)
    return Choice(tolerance, exact, analysis.exact, analysis.total(exact), price, full, (step,))


def _check(analysis: Analysis, tolerance: float) -> None:
    if not 0 < tolerance < 1:
        raise ValueError(
            f"tolerance must lie between 0 and 1, where an error is as large as the step itself; got {tolerance:g}"
        )
    if tolerance < analysis.exact:
        raise ValueError(
            f"tolerance {tolerance:g} cannot be met: fp64 itself may err by {analysis.exact:.1g} of a step here; "
            f"ask for {analysis.exact:.0e} or more"
        )


def _frontier(analysis: Analysis, device: Device) -> list[_Partial]:
    """Recipes that no other beats in both error and cost."""
    groups = [list(_joint(analysis, device))]
    groups += [[_alone(analysis, knob, name) for name in device.formats(knob)] for knob in KNOBS if knob not in JOINT]
    best = [_Partial(analysis.floor, 0.0, {})]
    for group in groups:
        best = _unbeaten(
            [
                _Partial(a.error + b.error, a.bytes + b.bytes, {**a.formats, **b.formats})
                for a, b in product(best, group)
            ]
        )
    return best


def _alone(analysis: Analysis, knob: str, name: str) -> _Partial:
    error = 0.0 if name == "fp32" else analysis.term(knob, name).measured
    return _Partial(error, BYTES[name] * analysis.touched[knob], {knob: name})


def _joint(analysis: Analysis, device: Device) -> Iterator[_Partial]:
    for names in product(*(device.formats(knob) for knob in JOINT)):
        data, operand, accumulate = (FORMATS[name] for name in names)
        if not accumulate.holds(operand):
            continue
        parts = [_alone(analysis, knob, name) for knob, name in zip(JOINT, names, strict=True)]
        if operand.holds(data):
            parts[1] = replace(parts[1], error=0.0)
        error, price = sum(part.error for part in parts), sum(part.bytes for part in parts)
        yield _Partial(error, price, dict(zip(JOINT, names, strict=True)))


def _unbeaten(found: list[_Partial]) -> list[_Partial]:
    kept: list[_Partial] = []
    for one in sorted(found, key=lambda one: (one.bytes, one.error)):
        if not kept or one.error < kept[-1].error:
            kept.append(one)
    return kept


def _steps(analysis: Analysis, device: Device, found: _Partial, tolerance: float) -> tuple[Step, ...]:
    """Every knob's next cheaper format that would break the tolerance."""
    steps = []
    for knob in KNOBS:
        own = BYTES[found.formats[knob]]
        cheaper = [name for name in device.formats(knob) if BYTES[name] < own]
        errors = {name: _with(analysis, found, knob, name) for name in cheaper}
        over = {name: error for name, error in errors.items() if error is not None and error > tolerance}
        if over:
            name = min(over, key=lambda name: over[name])
            saved = (own - BYTES[name]) * analysis.touched[knob]
            steps.append(Step(knob, name, over[name], saved))
    return tuple(sorted(steps, key=lambda step: -step.saved_bytes))


def _with(analysis: Analysis, found: _Partial, knob: str, name: str) -> float | None:
    """The predicted error with one knob changed; None where the knobs would not go together."""
    try:
        return analysis.predicted(Precision(**{**found.formats, knob: name}))
    except ValueError:
        return None
