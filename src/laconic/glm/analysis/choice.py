"""The choice of a recipe: the cheapest that meets a tolerance, for an analysis or for a fit that is about to begin."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch

from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.exchange.agreement import gather_json
from laconic.glm.analysis.analyse import BYTES, DEVICES, Analysis, Device, analyse, cost
from laconic.glm.analysis.iteration import Sample, take_sample
from laconic.glm.options import FitOptions
from laconic.glm.precision import KNOBS, RECIPES, ChosenRecipe, Precision
from laconic.glm.problem import Problem
from laconic.glm.ranks import gather_array
from laconic.glm.solvers import Diverged, begin, solve
from laconic.kernels.formats import FORMATS

TOLERANCE = 1e-2
"""Of a step. Which rows a batch has changes the step by about its own size, a hundred times as much."""
JOINT = ("data", "gram_operand", "gram_accumulate")
"""Chosen together: an accumulator is not shorter than its operands, and operands of rounded data are free."""


@dataclass(frozen=True, slots=True)
class Step:
    """One knob in a cheaper format: the error that it would lead to, and the bytes that it would save."""

    knob: str
    format: str
    error: float
    saved_bytes: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The cheapest recipe for a tolerance, and why it is not cheaper.

    predicted   sum of the measured terms
    measured    error of the recipe itself, at the worst block
    bytes       its cost, and
    fp32_bytes  that of fp32
    stopped_by  steps to a cheaper format that the tolerance does not allow, the one that would save most first
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

    def to_json(self) -> dict[str, Any]:
        """The fields, with the knobs by name, and the explanation."""
        more = {"recipe": self.precision.short_name(), "explained": self.explain()}
        return asdict(self) | more | {"precision": _formats(self.precision)}


def _formats(precision: Precision) -> dict[str, str]:
    return {knob: precision.format(knob).name for knob in KNOBS}


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
    for one in sorted(_frontier(analysis, device), key=lambda one: (one.bytes, one.error)):
        precision = Precision(**one.formats)
        if one.error <= tolerance and (measured := analysis.total(precision)) <= tolerance:
            steps = _steps(analysis, device, one, tolerance)
            return Choice(tolerance, precision, one.error, measured, one.bytes, full, steps)
    exact = RECIPES["fp64"]
    price = cost(dict.fromkeys(KNOBS, "fp64"), analysis.touched)
    step = Step("arithmetic", "fp32", analysis.floor, price - full)
    return Choice(tolerance, exact, analysis.exact, analysis.total(exact), price, full, (step,))


def _check(analysis: Analysis, tolerance: float) -> None:
    if not 0 < tolerance < 1:
        why = " must lie between 0 and 1, where an error is as large as the step itself; "
        raise InvalidOption(Option("tolerance"), why, f"got {tolerance:g}")
    if tolerance < analysis.exact:
        raise InvalidOption(
            Option("tolerance"),
            f" {tolerance:g} cannot be met: fp64 itself may err by {analysis.exact:.1g} of a step here; "
            f"ask for {analysis.exact:.0e} or more",
        )


def _frontier(analysis: Analysis, device: Device) -> list[_Partial]:
    """Recipes that no other beats in both error and cost."""
    groups = [list(_joint(analysis, device))]
    groups += [[_alone(analysis, knob, name) for name in device.formats(knob)] for knob in KNOBS if knob not in JOINT]
    best = [_Partial(analysis.floor, 0.0, {})]
    for group in groups:
        pairs = product(best, group)
        best = _unbeaten(_Partial(a.error + b.error, a.bytes + b.bytes, {**a.formats, **b.formats}) for a, b in pairs)
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


def _unbeaten(partials: Iterable[_Partial]) -> list[_Partial]:
    kept: list[_Partial] = []
    for one in sorted(partials, key=lambda one: (one.bytes, one.error)):
        if not kept or one.error < kept[-1].error:
            kept.append(one)
    return kept


def _steps(analysis: Analysis, device: Device, chosen: _Partial, tolerance: float) -> tuple[Step, ...]:
    """Every knob's next cheaper format that would break the tolerance."""
    steps = []
    for knob in KNOBS:
        own = BYTES[chosen.formats[knob]]
        cheaper = [name for name in device.formats(knob) if BYTES[name] < own]
        errors = {name: _predicted(analysis, chosen, knob, name) for name in cheaper}
        over = {name: error for name, error in errors.items() if error is not None and error > tolerance}
        if over:
            name = min(over, key=lambda name: over[name])
            saved = (own - BYTES[name]) * analysis.touched[knob]
            steps.append(Step(knob, name, over[name], saved))
    return tuple(sorted(steps, key=lambda step: -step.saved_bytes))


def _predicted(analysis: Analysis, chosen: _Partial, knob: str, name: str) -> float | None:
    """The predicted error with one knob changed; None where that is no valid precision."""
    try:
        return analysis.predicted(Precision(**{**chosen.formats, knob: name}))
    except ValueError:
        return None


def auto_precision(
    problem: Problem, options: FitOptions, tolerance: float, comm: Communicator, *, strict: bool
) -> ChosenRecipe:
    """The cheapest recipe that meets a tolerance on this problem; every rank calls this, and gets the same.

    strict  whether to raise ValueError, on every rank, if the tolerance cannot be met or the problem not analysed;
            otherwise the recipe stays as it is

    1. Run a sixteenth of an epoch with these options.
    2. Take the outer iterations at its start and at its end, with the columns of all ranks.
    3. Measure every knob's error on these; rank 0 chooses, and sends its choice to the others.
    """
    usual, own = replace(options, solver="ca_sgd"), options.precision
    state = begin(problem, usual)
    taken = [take_sample(problem, usual, state, 1)]
    try:
        solve(problem, usual, comm=comm, state=state, callbacks=[lambda progress: True])
    except Diverged as error:
        return ChosenRecipe(own, f"{own.short_name()}: no recipe was looked for, since {error}")
    taken.append(take_sample(problem, usual, state, 1))
    whole = [_of_all_ranks(sample, comm) for sample in taken]
    chosen = _choose_on_cpu(whole, tolerance) if comm.whole.rank == 0 else None
    formats, explained = gather_json(comm.whole, chosen)[0]
    if formats:
        return ChosenRecipe(Precision(**formats), explained)
    if strict:
        raise ValueError(explained)
    return ChosenRecipe(own, f"{own.short_name()}: {explained}")


def _choose_on_cpu(samples: list[Sample], tolerance: float) -> tuple[dict[str, str], str]:
    """The nine formats, none where no recipe can be chosen, and why."""
    device = DEVICES["cpu"]
    try:
        choice = choose(analyse(samples, device, bounded=False), device, tolerance)
    except ValueError as error:
        return {}, str(error)
    return _formats(choice.precision), choice.explain()


def _of_all_ranks(sample: Sample, comm: Communicator) -> Sample:
    """The sample with the columns of all ranks, cut as they are."""
    if comm.size == 1:
        return sample
    blocks, own, idle = (gather_array(t.numpy(), comm) for t in (sample.Y, sample.x, sample.idle))
    Y, x, rest = (torch.from_numpy(np.ascontiguousarray(np.concatenate(parts, 1))) for parts in (blocks, own, idle))
    cuts = tuple(np.cumsum([0, *(block.shape[1] for block in blocks)]).tolist())
    return replace(sample, Y=Y, x=x, idle=rest, column_cuts=cuts)
