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
    """

    POWER = 0
    UNIFORM = 1
    TABLE = 2
    SIGN = 3


@dataclass(frozen=True, slots=True)
class Grid:
    """Levels of a scheme. `levels[0] == 0` and `levels[-1] == 1`; empty for SIGN."""

    rounding: Rounding
    bits: int
    levels: tuple[float, ...]

    @property
    def top(self) -> int:
        """Index of the largest level."""
        return max(1, (1 << (self.bits - 1)) - 1)
