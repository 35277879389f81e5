"""Sign: one bit per value."""

from dataclasses import dataclass
from typing import ClassVar

from laconic.kernels import Grid, Norm, Rounding
from laconic.quantizers.base import Bucketed


@dataclass(frozen=True, slots=True)
class Sign(Bucketed):
    """Scaled sign: v_i becomes (+ or −) ‖v‖₁ / d. Biased: use it as `ErrorFeedback(Sign())`.

    bucket_size  values that share one norm

    >>> import torch
    >>> Sign().dequantize(Sign().quantize(torch.tensor([3.0, -1.0])))
    tensor([ 2., -2.])

    Karimireddy, Rebjock, Stich and Jaggi 2019, "Error feedback fixes SignSGD and other gradient compression schemes",
    ICML.
    Differences from the paper: one scale per bucket instead of one per layer; the sign of zero is plus.
    """

    bits: int = 1

    name: ClassVar[str] = "sign"
    wire_id: ClassVar[int] = 4
    min_bits: ClassVar[int] = 1
    max_bits: ClassVar[int] = 1
    norm: ClassVar[Norm] = Norm.MEAN_ABS
    unbiased: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.bits != 1:
            raise ValueError(f"sign: bits must be 1, got {self.bits!r}")
        super(Sign, self).__post_init__()

    @property
    def grid(self) -> Grid:
        return Grid(Rounding.SIGN, 1, ())

    def variance_bound(self, n: int) -> float:
        """1 − 1/d: ‖Q(v) − v‖² = ‖v‖² − ‖v‖₁² / d, and ‖v‖₁ ≥ ‖v‖₂ (the paper's Lemma 8, with density at least 1/d)."""
        return 1.0 - 1.0 / max(1, self.bucket_dimension(n))
