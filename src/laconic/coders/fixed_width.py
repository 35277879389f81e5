"""Fixed width: `bits` bits per symbol, whatever the symbols are."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from laconic.coders.base import Shape, SymbolCoder, aligned
from laconic.kernels import Backend
from laconic.kernels.layout import packed_bytes

_WORDS = {16: torch.int16, 32: torch.int32}


@dataclass(frozen=True, slots=True)
class FixedWidth(SymbolCoder):
    """Each symbol in `bits` bits, so the size is known in advance and one collective suffices.

        size in bytes = packed_bytes(n, bits, bucket_size)      1 to 8 bits, packed bucket by bucket
                      = n * bits / 8                            16 and 32 bits: the little-endian words as they are

    >>> FixedWidth().max_bytes(Shape(n=10000, bits=4, bucket_size=8192))
    5000
    """

    name: ClassVar[str] = "fixed"
    wire_id: ClassVar[int] = 0
    fixed_size: ClassVar[bool] = True
    max_bits: ClassVar[int] = 32

    def max_bytes(self, shape: Shape) -> int:
        """The exact size."""
        if shape.bits in _WORDS:
            return shape.n * shape.bits // 8
        if 1 <= shape.bits <= 8:
            return packed_bytes(shape.n, shape.bits, shape.bucket_size)
        raise ValueError(f"fixed: expected symbols of 1 to 8, 16 or 32 bits, got {shape.bits}")

    def encode(self, symbols: Tensor, shape: Shape, backend: Backend) -> Tensor:
        """Symbols (n,), uint8 or, for 16 and 32 bits, int16 and int32, to bytes (uint8)."""
        dtype = _WORDS.get(shape.bits, torch.uint8)
        if symbols.dtype != dtype or symbols.shape != (shape.n,):
            raise ValueError(
                f"fixed: expected {shape.n} symbols of {dtype}, got shape {tuple(symbols.shape)} of {symbols.dtype}"
            )
        if shape.bits in _WORDS:
            return symbols.contiguous().view(torch.uint8)
        self.max_bytes(shape)  # raises for other widths
        if shape.bits < 8:
            self._require_alphabet(symbols, shape.bits)
        return backend.pack(symbols, shape.bits, shape.bucket_size)

    def decode(self, data: Tensor, shape: Shape, backend: Backend) -> Tensor:
        """The inverse of `encode`; raises `CorruptPayload`."""
        self._require_size(data, self.max_bytes(shape))
        if shape.bits in _WORDS:
            return aligned(data).view(_WORDS[shape.bits])
        return backend.unpack(data, shape.n, shape.bits, shape.bucket_size)
