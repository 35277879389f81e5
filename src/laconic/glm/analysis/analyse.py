"""The nine terms of a problem, bounded and measured over several outer iterations in the formats that a device has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from statistics import median
from typing import Any

from laconic.errors import InvalidOption, Option
from laconic.glm.analysis.bounds import DOUBLE, Propagation, propagate, term_bound, why_infinite
from laconic.glm.analysis.disturbances import largest
from laconic.glm.analysis.iteration import Sample, Trajectory, follow, measured_term, measured_total
from laconic.glm.precision import KNOBS, RECIPES, Precision
from laconic.kernels.formats import format_named

STORED = ("fp32", "bf16", "fp16")
BYTES = {"fp64": 8.0, "fp32": 4.0, "tf32": 3.0, "bf16": 2.0, "fp16": 2.0, "fp8-e4m3": 1.0, "fp8-e5m2": 1.0}
"""Cost of a number. tf32 takes four bytes; that its products are faster than fp32's counts for one of them."""
MOVED = ("data", "margin", "gram_operand", "gram_wire")
"""Knobs of what is stored or sent; the others are arithmetic on the rank itself."""
NOTHING = 1e-11
"""Terms below this are float64's own rounding: the numbers were numbers of the format already."""


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of machine, by the formats that save something on it.

    operands      formats of the Gram product's and the update's operands, most precise first
    accumulators  of the Gram product
    arithmetic    of what is computed or kept on the rank: the recurrence, the residual, the weights
    """

    name: str
    operands: tuple[str, ...]
    accumulators: tuple[str, ...]
    arithmetic: tuple[str, ...]

    def formats(self, knob: str) -> tuple[str, ...]:
        """The formats of a knob that save something on this device, fp32 first; fp64 is always possible."""
        if knob == "gram_accumulate":
            return self.accumulators
        if knob == "gram_operand":
            return self.operands
        if knob == "update":
            return self.operands if len(self.arithmetic) > 1 else self.arithmetic
        return STORED if knob in MOVED else self.arithmetic

    def analysed(self, knob: str) -> tuple[str, ...]:
        """The formats for which a knob's term is computed: these, and those in which all knobs are compared."""
        return tuple(dict.fromkeys((*STORED, *self.formats(knob))))


DEVICES = {
    device.name: device
    for device in (
        Device("cpu", STORED, ("fp32",), ("fp32",)),
        Device("cuda-ampere", ("fp32", "tf32", "fp16", "bf16"), ("fp32", "fp16"), STORED),
        Device("cuda-hopper", ("fp32", "tf32", "fp16", "bf16", "fp8-e4m3", "fp8-e5m2"), ("fp32", "fp16"), STORED),
    )
}
"""A CPU computes in float32: shorter formats save memory and messages there, but no arithmetic."""


def device_named(name: str) -> Device:
    """A device by name; raises InvalidOption for an unknown one."""
    if name not in DEVICES:
        raise InvalidOption("unknown ", Option("device", name), f"; choose one of {', '.join(DEVICES)}")
    return DEVICES[name]


def counts(sample: Sample) -> dict[str, int]:
    """How many numbers each knob touches in one outer iteration: what a format's bytes are multiplied by."""
    (k, n), n_outputs = sample.Y.shape, sample.x.shape[0]
    triangle = int((sample.cuts[1:] - sample.cuts[:-1]) @ sample.cuts[:-1])
    return {
        "data": k * n,
        "margin": k * n_outputs,
        "gram_operand": k * n,
        "gram_accumulate": triangle,
        "gram_wire": triangle + k * n_outputs,
        "recurrence": triangle + k * n_outputs,
        "residual": k * n_outputs,
        "update": k * (n + n_outputs),
        "weights": n_outputs * (n + sample.idle.shape[1]),
    }


def cost(chosen: Mapping[str, str], touched: Mapping[str, int]) -> float:
    """Bytes of an outer iteration, counting every knob's numbers once: to compare recipes, not to predict a time."""
    return sum(BYTES[chosen[knob]] * touched[knob] for knob in KNOBS)


@dataclass(frozen=True, slots=True)
class Term:
    """The error of one knob in one format, relative to the movement of the weights in an outer iteration.

    bound     the largest of all blocks, and
    measured  the same; infinite where a number left the format's range
    ratio     median over blocks of bound ÷ measured; None where nothing was rounded
    holds     whether every block's measurement lies under its bound
    share     of the measured terms of this format
    note      why there is no bound
    """

    knob: str
    format: str
    bound: float
    measured: float
    ratio: float | None
    holds: bool
    share: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """The result of an analysis.

    terms     one per knob and format
    samples   the outer iterations that were analysed, and
    paths     how they go without rounding
    touched   numbers that each knob touches in an outer iteration
    floor     error of the recipe fp32: that of float32 arithmetic, whatever the knobs
    exact     error that float64 itself may make
    """

    terms: tuple[Term, ...]
    samples: tuple[Sample, ...]
    paths: tuple[Trajectory, ...]
    touched: dict[str, int]
    floor: float
    exact: float

    def term(self, knob: str, name: str) -> Term:
        """The term of a knob and a format."""
        return next(term for term in self.terms if (term.knob, term.format) == (knob, name))

    def total(self, precision: Precision) -> float:
        """The measured error of a recipe in the arithmetic it runs in, at the worst of the blocks."""
        pairs = zip(self.samples, self.paths, strict=True)
        return max(measured_total(sample, precision, path.movement) for sample, path in pairs)

    def predicted(self, precision: Precision) -> float:
        """The sum of the measured terms of the knobs below fp32, and the floor.

        Gram operands that the stored data fits into are not rounded again, so that their term is left out.
        """
        if precision == RECIPES["fp64"]:
            return self.exact
        lowered = [knob for knob in KNOBS if precision.format(knob).precision < 24]
        if precision.format("gram_operand").holds(precision.format("data")) and "gram_operand" in lowered:
            lowered.remove("gram_operand")
        return self.floor + sum(self.term(knob, precision.format(knob).name).measured for knob in lowered)

    def to_json(self) -> dict[str, Any]:
        """All but the terms: the blocks, the floors, and the named recipes' errors, whole and as sums of terms."""
        named = {name: RECIPES[name] for name in ("fp32", "C", "D")}
        return {
            "blocks": [path.summary() for path in self.paths],
            "fp32_floor": self.floor,
            "fp64_floor": self.exact,
            "recipes": [
                {"recipe": name, "measured": self.total(one), "predicted": self.predicted(one)}
                for name, one in named.items()
            ],
        }


def analyse(
    samples: Sequence[Sample],
    device: Device,
    on_progress: Callable[[str], None] = lambda step: None,
    *,
    bounded: bool = True,
) -> Analysis:
    """Bound and measure every knob in every format that a device has for it.

    on_progress  called with a text before each knob of each block
    bounded      False to measure only what a recipe can be chosen from, which is much less work
    """
    paths = [follow(sample) for sample in samples]
    moving = [(sample, path) for sample, path in zip(samples, paths, strict=True) if path.movement > 0]
    if not moving:
        raise ValueError("the weights do not move: every gradient is zero, so there is nothing to analyse")
    rows: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for number, (sample, path) in enumerate(moving):
        maps = propagate(path) if bounded else None
        for knob in KNOBS:
            on_progress(f"block {number + 1}: {knob}")
            for name in device.analysed(knob) if bounded else device.formats(knob):
                limit, note = (inf, "") if maps is None else _limit(maps, sample, knob, name)
                value = measured_term(sample, knob, name, path.movement)
                rows.setdefault((knob, name), []).append((limit, value, note))
    terms = _with_shares([_term(knob, name, blocks) for (knob, name), blocks in rows.items()])
    floor = max(measured_total(sample, RECIPES["fp32"], path.movement) for sample, path in moving)
    exact = max(DOUBLE * (1 + path.size / path.movement) for _, path in moving)
    kept = tuple(zip(*moving, strict=True))
    return Analysis(tuple(terms), kept[0], kept[1], counts(moving[0][0]), floor, exact)


def _limit(maps: Propagation, sample: Sample, knob: str, name: str) -> tuple[float, str]:
    """The bound, and why there is none."""
    fmt, limit = format_named(name), inf
    if knob != "gram_accumulate":
        limit = term_bound(maps, knob, fmt)
    elif bool((sample.Y.abs() <= largest(fmt)).all()):
        own = propagate(follow(sample, fmt))
        limit = term_bound(own, knob, fmt) * own.path.movement / maps.path.movement
    return limit, "" if isfinite(limit) else why_infinite(maps.path, knob, fmt)


def _term(knob: str, name: str, blocks: list[tuple[float, float, str]]) -> Term:
    ratios = [limit / value for limit, value, _ in blocks if isfinite(limit) and value > NOTHING]
    return Term(
        knob,
        name,
        bound=max(limit for limit, _, _ in blocks),
        measured=max(value for _, value, _ in blocks),
        ratio=median(ratios) if ratios else None,
        holds=all(value <= limit for limit, value, _ in blocks),
        note=next((note for _, _, note in blocks if note), ""),
    )


def _with_shares(terms: list[Term]) -> list[Term]:
    totals = {term.format: sum(other.measured for other in terms if other.format == term.format) for term in terms}
    return [
        replace(term, share=term.measured / totals[term.format] if 0 < totals[term.format] < inf else 0.0)
        for term in terms
    ]
