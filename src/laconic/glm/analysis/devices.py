"""Devices: which formats each has for which knob, and what a number costs in each format."""

from collections.abc import Mapping
from dataclasses import dataclass

from laconic.errors import InvalidOption, Option
from laconic.glm.analysis.sample import Sample
from laconic.glm.precision import KNOBS

STORED = ("fp32", "bf16", "fp16")
BYTES = {"fp64": 8.0, "fp32": 4.0, "tf32": 3.0, "bf16": 2.0, "fp16": 2.0, "fp8-e4m3": 1.0, "fp8-e5m2": 1.0}
"""Cost of a number. tf32 takes four bytes; that its products are faster than fp32's counts for one of them."""
MOVED = ("data", "margin", "gram_operand", "gram_wire")
"""Knobs of what is stored or sent; the others are arithmetic on the rank itself."""


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
