"""QSGDInf: L∞ norm and uniform levels."""

from dataclasses import dataclass
from typing import ClassVar

from laconic.kernels import Norm
from laconic.quantizers.qsgd import QSGD


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
