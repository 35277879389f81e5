"""What a kernel must know of a scheme: which norm, which levels, how to round to them."""

from dataclasses import dataclass
from enum import IntEnum


class Norm(IntEnum):
    """The one number kept of each bucket."""

    L2 = 0
    LINF = 1
    MEAN_ABS = 2


class Rounding(IntEnum):
    """How |v| / norm becomes a level.

    POWER    levels 0, 2^-m, ..., 1/2, 1: random bits added to the float's own bit pattern
    UNIFORM  levels j / top: random bits added to a fixed-point number
    TABLE    any increasing levels: search, then compare
    SIGN     no level at all
    SUBTRACT multiples of 2 / (2^bits − 1), of v and not of |v|, shifted by random bits that the decoder subtracts again
    """

    POWER = 0
    UNIFORM = 1
    TABLE = 2
    SIGN = 3
    SUBTRACT = 4


@dataclass(frozen=True, slots=True)
class Grid:
    """Levels of a scheme: 2^(bits − 1) of them, increasing from 0 to 1; none for SIGN."""

    rounding: Rounding
    bits: int
    levels: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check the levels, since kernels look them up by symbol without a check of bounds."""
        n_levels = 0 if self.rounding is Rounding.SIGN else 1 << (self.bits - 1)
        if len(self.levels) != n_levels:
            raise ValueError(f"a grid of {self.bits} bits has {n_levels} levels, got {len(self.levels)}")
        if n_levels and (self.levels[0] != 0 or self.levels[-1] != 1 or list(self.levels) != sorted(self.levels)):
            raise ValueError(f"levels must increase from 0 to 1, got {self.levels}")

    @property
    def top(self) -> int:
        """Index of the largest level."""
        return max(1, (1 << (self.bits - 1)) - 1)
