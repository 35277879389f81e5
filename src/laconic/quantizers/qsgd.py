"""QSGD and QSGDInf: uniform levels, with the L2 and the L∞ norm."""

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from laconic.kernels import Grid, Norm, Rounding
from laconic.quantizers.base import Bucketed


@dataclass(frozen=True, slots=True)
class QSGD(Bucketed):
    """Uniform quantisation: |v_i| / ‖v‖₂ is rounded, without bias, to a multiple of 1/s with s = 2^(bits−1) − 1.

    bits         2 to 8: one for the sign, the rest for the level
    bucket_size  values that share one norm

    >>> QSGD(bits=4).grid.levels[-2:]
    (0.8571428571428571, 1.0)

    Alistarh, Grubic, Li, Tomioka and Vojnovic 2017, "QSGD: Communication-efficient SGD via gradient quantization and
    encoding", NeurIPS 30.
    Differences from the paper: s is fixed by the width of a symbol.
    """

    name: ClassVar[str] = "qsgd"
    wire_id: ClassVar[int] = 2
    norm: ClassVar[Norm] = Norm.L2

    @property
    def n_steps(self) -> int:
        """s, the number of levels above zero."""
        return (1 << (self.bits - 1)) - 1

    @property
    def grid(self) -> Grid:
        return _grid(self.bits, self.n_steps)

    def variance_bound(self, n: int) -> float:
        """min(d / s², √d / s) with d the bucket's dimension: Lemma 3.1 of the paper."""
        d, s = self.bucket_dimension(n), self.n_steps
        return min(d / s**2, math.sqrt(d) / s)


@dataclass(frozen=True, slots=True)
class QSGDInf(QSGD):
    """QSGD scaled by the largest magnitude: |v_i| / ‖v‖∞ is rounded, without bias, to a multiple of 1/s.

    The heuristic variant of the QSGD paper (its section 5) and a contender in the NUQSGD paper. Since
    ‖v‖∞ ≤ ‖v‖₂, a step is never longer than QSGD's, and the bound of QSGD holds as it stands.

    bits         2 to 8: one for the sign, the rest for the level
    bucket_size  values that share one norm

    >>> import torch
    >>> QSGDInf(bits=8).quantize(torch.tensor([-2.0, 1.0])).norms
    tensor([2.])
    """

    name: ClassVar[str] = "qsgdinf"
    wire_id: ClassVar[int] = 3
    norm: ClassVar[Norm] = Norm.LINF


@cache
def _grid(bits: int, s: int) -> Grid:
    return Grid(Rounding.UNIFORM, bits, tuple(j / s for j in range(s + 1)))
