"""Bounds on rounding errors: half a unit in the last place, with subnormal numbers and overflow."""

import torch

from laconic.kernels.formats import FORMATS, Format

SINGLE = FORMATS["fp32"]


def largest(fmt: Format) -> float:
    """The largest finite number of a format.

    >>> largest(FORMATS["fp16"]), largest(FORMATS["fp8-e4m3"])
    (65504.0, 448.0)
    """
    if fmt.dtype is not None:
        return float(torch.finfo(fmt.dtype).max)
    return (2 - 2.0 ** (1 - fmt.precision)) * 2.0**127


def half_ulp(size: torch.Tensor, fmt: Format) -> torch.Tensor:
    """A bound on |fl(a) − a| for every |a| ≤ `size` (float64, not negative): u 2^⌊log₂ size⌋.

    Below the smallest normal number 2^e the numbers lie evenly, and the bound is u 2^e; above the largest number it is
    infinite. A float64 value goes to a format shorter than float32 by way of float32, whose own half unit is added.

    >>> half_ulp(torch.tensor([1.0, 1.99, 1e6, 0.0], dtype=torch.float64), FORMATS["fp16"]).tolist()[2:]
    [inf, 0.0]
    """
    if fmt.name == "fp64":
        return torch.zeros_like(size)
    spacing = _half(size, fmt)
    if fmt.precision < SINGLE.precision:
        spacing = spacing + _half(size, SINGLE)
    spacing = torch.where(size > largest(fmt), torch.inf, spacing)
    return torch.where(size == 0, 0.0, spacing)


def _half(size: torch.Tensor, fmt: Format) -> torch.Tensor:
    smallest = float(torch.finfo(fmt.storage).smallest_normal)
    power = torch.frexp(size.clamp(min=smallest))[1] - 1
    return torch.ldexp(torch.full_like(size, fmt.unit_roundoff), power)


def known(a: torch.Tensor, fmt: Format) -> torch.Tensor:
    """A bound on |fl(a) − a| for known numbers: 0 where a is a number of the format already.

    >>> known(torch.tensor([0.5, 0.1], dtype=torch.float64), FORMATS["bf16"]).tolist()[0]
    0.0
    """
    return torch.where(fmt.round(a) == a, 0.0, half_ulp(a.abs(), fmt))


def summed(parts: torch.Tensor, fmt: Format) -> torch.Tensor:
    """A bound on the error of a sum over ranks that is carried in a format, in whatever order it adds.

    Each of the P parts is rounded once, and then P − 1 additions round a partial sum, which is no larger than the sum
    of the positive parts or that of the negative ones.

    parts  (P, ...) of each rank
    """
    first = known(parts, fmt)
    error = first.sum(0)
    total = torch.maximum(parts.clamp(min=0).sum(0), (-parts).clamp(min=0).sum(0)) + error
    for _ in range(len(parts) - 1):
        step = half_ulp(total, fmt)
        error, total = error + step, total + step
    return error
