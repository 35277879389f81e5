"""Identity: no quantisation, or only the rounding of a 16-bit float."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from laconic.kernels import Stream
from laconic.quantizers.base import Quantized, Quantizer, flat

_FORMATS = {"fp32": (torch.float32, torch.int32, 32), "bf16": (torch.bfloat16, torch.int16, 16)}


@dataclass(frozen=True, slots=True)
class Identity(Quantizer):
    """Values as they are, in float32, or rounded to the nearest bfloat16: the null member of the family.

    dtype  "fp32" or "bf16": what goes over the wire; sums are float32 either way

    >>> import torch
    >>> Identity("bf16").dequantize(Identity("bf16").quantize(torch.tensor([1.0, 1.001])))
    tensor([1., 1.])
    """

    dtype: Literal["fp32", "bf16"] = "fp32"

    name: ClassVar[str] = "identity"
    wire_id: ClassVar[int] = 0
    bucket_size: ClassVar[int] = 1  # type: ignore[misc]

    def __post_init__(self) -> None:
        if self.dtype not in _FORMATS:
            raise ValueError(f"identity: dtype must be one of {', '.join(_FORMATS)}, got {self.dtype!r}")

    @classmethod
    def examples(cls) -> list[Quantizer]:
        return [cls("fp32"), cls("bf16")]

    @property
    def bits(self) -> int:  # type: ignore[override]
        """Width of a value on the wire."""
        return _FORMATS[self.dtype][2]

    @property
    def wire_dtype(self) -> torch.dtype:
        """The dtype of a value on the wire."""
        return _FORMATS[self.dtype][0]

    @property
    def unbiased(self) -> bool:  # type: ignore[override]
        """True for fp32; rounding to the nearest bfloat16 is not random."""
        return self.dtype == "fp32"

    def variance_bound(self, n: int) -> float:
        """0 for fp32, u² = 2⁻¹⁶ for bf16: each value moves by at most u = 2⁻⁸ of itself (values that round to a normal
        number; below 2⁻¹²⁶ the error is absolute)."""
        return 0.0 if self.dtype == "fp32" else 2.0**-16

    def n_norms(self, n: int) -> int:
        """0: no norms are sent."""
        return 0

    def quantize(self, v: torch.Tensor, stream: Stream = Stream(), *, backend: str = "auto") -> Quantized:  # noqa: B008
        """The bit patterns of the values; nothing is random."""
        v = flat(v)
        value, word, _ = _FORMATS[self.dtype]
        return Quantized(v.to(value, copy=True).view(word), torch.empty(0, dtype=torch.float32, device=v.device))

    def dequantize(self, quantized: Quantized, *, weight: float = 1.0, backend: str = "auto") -> torch.Tensor:
        """The values the bit patterns stand for, in float32."""
        word = _FORMATS[self.dtype][1]
        if quantized.symbols.dtype != word:
            raise ValueError(
                f"{self} makes symbols of {word}, got {quantized.symbols.dtype}; "
                "dequantize with the quantizer that made them"
            )
        return quantized.symbols.view(self.wire_dtype).to(torch.float32, copy=True).mul_(weight)
