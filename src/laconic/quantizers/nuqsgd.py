"""NUQSGD: L2 norm and exponentially spaced levels."""

import math
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any, ClassVar

from laconic.kernels import Grid, Norm, Rounding
from laconic.quantizers.base import Bucketed, Quantizer

SMALLEST_NORMAL = 2.0**-126


@dataclass(frozen=True, slots=True)
class NUQSGD(Bucketed):
    """Nonuniform quantisation: |v_i| / ‖v‖₂ is rounded, without bias, to 0, p^m, …, p², p, 1 with m = 2^(bits−1) − 2.

    Levels crowd where gradients do, near zero: at 4 to 6 bits and thousands of values per bucket the variance is far
    below that of `QSGD`. At 2 bits the two have the same levels; at 8, with p = 1/2, gaps near 1 are wider than QSGD's.

    bits         2 to 8: one for the sign, the rest for the level
    bucket_size  values that share one norm
    p            ratio of neighbouring levels; 1/2 is fastest, since then the float format does the rounding

    >>> import torch
    >>> scheme = NUQSGD(bits=4, bucket_size=8192)
    >>> scheme.dequantize(scheme.quantize(torch.tensor([3.0, 0.0, -4.0])))[1]
    tensor(0.)

    Ramezani-Kebrya, Faghri, Markov, Aksenov, Alistarh and Roy 2021, "NUQSGD: Provably communication-efficient
    data-parallel SGD via nonuniform quantization", JMLR 22(114).
    Differences from the paper: any p, where its experiments use 1/2; buckets of 512 by default, where they have 8192,
    which costs a language model a few per cent of its loss (docs/training.md).
    """

    p: float = 0.5

    name: ClassVar[str] = "nuqsgd"
    wire_id: ClassVar[int] = 1
    norm: ClassVar[Norm] = Norm.L2

    def __post_init__(self) -> None:
        super(NUQSGD, self).__post_init__()
        p: Any = self.p
        if not isinstance(p, Real) or not 0.0 < float(p) < 1.0:
            raise ValueError(f"nuqsgd: p must lie strictly between 0 and 1, got {p!r}")
        object.__setattr__(self, "p", float(p))  # a NumPy number has another repr, and ranks compare reprs
        if self.smallest_level < SMALLEST_NORMAL:
            least = SMALLEST_NORMAL ** (1 / self._m)
            raise ValueError(
                f"nuqsgd: p={self.p!r} with bits={self.bits} puts the smallest level below what float32 holds; "
                f"use p of at least {math.ceil(least * 1000) / 1000} or fewer bits"
            )

    @classmethod
    def examples(cls) -> list[Quantizer]:
        return [*super(NUQSGD, cls).examples(), cls(bits=3, p=0.7), cls(bits=4, p=0.25)]

    @property
    def _m(self) -> int:
        return int(2 ** (self.bits - 1) - 2)

    @property
    def smallest_level(self) -> float:
        """The smallest level above zero, p^m."""
        return float(self.p**self._m)

    @property
    def grid(self) -> Grid:
        return _grid(self.bits, self.p, self._m)

    def variance_bound(self, n: int) -> float:
        """ε = (1 − p)² / 4p + inf over 0 < q < 1 of K_q l₁^(2−q) d^(1−q/2), with K_q = (1−q)^(1−q) / (2−q)^(2−q).

        d is the bucket's dimension and l₁ = p^m. The first term is the worst ratio of variance to r² between two
        levels, the second bounds what lies below l₁, through r (l₁ − r) ≤ K_q l₁^(2−q) r^q (variance theorem of the
        JMLR paper, there with p = 1/2 and first term 1/8). The infimum has a closed form in a = l₁ √d: a² / 4 while
        a ≤ 2, then a − 1.
        """
        a = self.smallest_level * math.sqrt(self.bucket_dimension(n))
        return (1 - self.p) ** 2 / (4 * self.p) + (a * a / 4 if a <= 2 else a - 1)


@cache
def _grid(bits: int, p: float, m: int) -> Grid:
    levels = (0.0, *(p**j for j in range(m, -1, -1)))
    return Grid(Rounding.POWER if p == 0.5 else Rounding.TABLE, bits, levels)
