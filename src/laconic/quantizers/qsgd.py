"""QSGD and QSGDInf: uniform levels, with the L2 and the L∞ norm."""

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch

from laconic.errors import BackendUnavailable, InvalidOption, Option
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
        return _grid(self.bits, self.n_steps, Rounding.UNIFORM)

    def variance_bound(self, n: int) -> float:
        """min(d / s², √d / s) with d the bucket's dimension: Lemma 3.1 of the paper."""
        d, s = self.bucket_dimension(n), self.n_steps
        return min(d / s**2, math.sqrt(d) / s)


@dataclass(frozen=True, slots=True, repr=False)
class QSGDInf(QSGD):
    """QSGD scaled by the largest magnitude: |v_i| / ‖v‖∞ is rounded, without bias, to a multiple of 1/s.

    The heuristic variant of the QSGD paper (its section 5), compared in the NUQSGD paper. Since ‖v‖∞ ≤ ‖v‖₂, a step is
    never longer than QSGD's, and QSGD's variance bound holds unchanged.

    bits         2 to 8: one for the sign, the rest for the level
    bucket_size  values that share one norm
    subtract     whether the receiver subtracts the random offset, which it draws again from the key in the header:
                 v_i is rounded to a multiple of Δ = 2 ‖v‖∞ / (2^bits − 1) after a shift, with an error uniform on
                 ±Δ/2 whatever v_i is, even zero. Has a quarter (2 bits) to half (8 bits) of the error on bell-shaped
                 values, but more where most are far below Δ; `Rotated` had less at the same width in every
                 measurement. Fixed width only; in plain torch on a GPU

    >>> import torch
    >>> QSGDInf(bits=8).quantize(torch.tensor([-2.0, 1.0])).norms
    tensor([2.])
    """

    subtract: bool = False

    name: ClassVar[str] = "qsgdinf"
    wire_id: ClassVar[int] = 3
    norm: ClassVar[Norm] = Norm.LINF

    def __post_init__(self) -> None:
        super(QSGDInf, self).__post_init__()
        if not isinstance(self.subtract, bool):
            raise InvalidOption("qsgdinf: ", Option("subtract"), f" must be True or False; got {self.subtract!r}")

    def __repr__(self) -> str:
        """Without `subtract` unless it is True: states saved before that field existed hold this repr."""
        return f"QSGDInf(bits={self.bits}, bucket_size={self.bucket_size}{', subtract=True' if self.subtract else ''})"

    @property
    def draws_again(self) -> bool:  # type: ignore[override]
        return self.subtract

    @property
    def grid(self) -> Grid:
        return _grid(self.bits, self.n_steps, Rounding.SUBTRACT if self.subtract else Rounding.UNIFORM)

    def variance_bound(self, n: int) -> float:
        """QSGD's bound. With `subtract`, d / (3 (2^bits − 1)²), since the variance is Δ²/12 for each of d values."""
        if not self.subtract:
            return super(QSGDInf, self).variance_bound(n)
        return self.bucket_dimension(n) / float(3 * (2**self.bits - 1) ** 2)

    def backend_for(self, backend: str, device: torch.device) -> str:
        if self.subtract and backend == "gpu":
            raise BackendUnavailable(f"there are no GPU kernels for {self}; use backend 'auto', or Rotated")
        return "reference" if self.subtract and backend == "auto" and device.type != "cpu" else backend


@cache
def _grid(bits: int, s: int, rounding: Rounding) -> Grid:
    return Grid(rounding, bits, tuple(j / s for j in range(s + 1)))
