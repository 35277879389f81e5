"""Number formats, and rounding to them."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format.

    name        as users type it
    precision   bits of the significand, the hidden one included
    dtype       the torch type that stores it, or None if there is none (tf32 is stored in float32)

    >>> FORMATS["bf16"].unit_roundoff == 2**-8
    True
    """

    name: str
    precision: int
    dtype: torch.dtype | None

    @property
    def unit_roundoff(self) -> float:
        """u = 2^(−precision): rounding to nearest changes a value by a factor of at most 1 ± u."""
        return 2.0**-self.precision

    @property
    def storage(self) -> torch.dtype:
        """A torch type that holds every value of the format."""
        return torch.float32 if self.dtype is None else self.dtype

    def holds(self, other: "Format") -> bool:
        """Whether every value of `other`, overflow aside, is one of this format."""
        return self.precision >= other.precision

    def round(self, x: Tensor) -> Tensor:
        """`x` rounded to the nearest value of this format, in the type it came in.

        >>> FORMATS["bf16"].round(torch.tensor([1.0, 1.001, 1.004]))
        tensor([1.0000, 1.0000, 1.0078])
        """
        if self.dtype == x.dtype or (self.dtype == torch.float64 and x.dtype == torch.float32):
            return x
        if self.dtype is None:
            return _round_significand(x.float(), 24 - self.precision).to(x.dtype)
        return x.to(self.dtype).to(x.dtype)


def _round_significand(x: Tensor, dropped: int) -> Tensor:
    """float32 with its last `dropped` bits rounded away, ties to even; non-finite values stay as they are."""
    bits = x.contiguous().view(torch.int32)
    odd = (bits >> dropped) & 1
    rounded = ((bits + (odd + (1 << (dropped - 1)) - 1)) >> dropped) << dropped
    return torch.where(torch.isfinite(x), rounded.view(torch.float32), x)


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("fp64", 53, torch.float64),
        Format("fp32", 24, torch.float32),
        Format("tf32", 11, None),
        Format("fp16", 11, torch.float16),
        Format("bf16", 8, torch.bfloat16),
        Format("fp8-e4m3", 4, torch.float8_e4m3fn),
        Format("fp8-e5m2", 3, torch.float8_e5m2),
    )
}
"""By name, most precise first."""
FORMAT_OF = {f.dtype: f for f in FORMATS.values() if f.dtype is not None}
"""By the torch type that stores it."""


def format_named(name: str) -> Format:
    """The format of that name; `ValueError` lists them."""
    if name not in FORMATS:
        raise ValueError(f"unknown number format {name!r}; choose one of {', '.join(FORMATS)}")
    return FORMATS[name]
