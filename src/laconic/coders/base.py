"""The interface of a lossless coder."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels import Backend

WORD_BYTES = 4
"""Streams of variable length are 32-bit words, norms are float32: payloads begin at a multiple of 4 bytes in memory."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a coder must know of the symbols, and what the header of a payload tells the decoder.

    n            number of symbols
    bits         width of a symbol; symbols lie in [0, 2**bits)
    bucket_size  symbols per quantisation bucket
    """

    n: int
    bits: int
    bucket_size: int


class Coder(ABC):
    """A lossless code, and the sizes it takes.

    Every decoder treats its input as hostile: it raises `CorruptPayload`, and never reads out of bounds or loops.
    """

    name: ClassVar[str]
    wire_id: ClassVar[int]
    fixed_size: ClassVar[bool]

    @property
    def variants(self) -> "tuple[Coder, ...]":
        """Coders that this one chooses from by the symbols at hand: together they call all kernels it may call."""
        return (self,)

    @abstractmethod
    def max_bytes(self, shape: Shape) -> int:
        """Most bytes `encode` can return; exact where `fixed_size`."""

    def min_bytes(self, shape: Shape) -> int:
        """Fewest bytes `encode` can return, by which the size of a payload bounds the values it can claim to hold."""
        return self.max_bytes(shape) if self.fixed_size else 0


class SymbolCoder(Coder):
    """A code of symbols, whatever quantizer made them: `decode(encode(symbols)) == symbols`."""

    max_bits: ClassVar[int] = 8

    @abstractmethod
    def encode(self, symbols: Tensor, shape: Shape, backend: Backend) -> Tensor:
        """Symbols (n,) to bytes, both uint8 and on the same device."""

    @abstractmethod
    def decode(self, data: Tensor, shape: Shape, backend: Backend) -> Tensor:
        """The inverse of `encode`, or `CorruptPayload`."""

    def _require_alphabet(self, symbols: Tensor, bits: int) -> None:
        if symbols.numel() and int(symbols.max()) >= 2**bits:
            raise ValueError(f"expected symbols of {bits} bits, below {2**bits}; got {int(symbols.max())}")

    def _require_size(self, data: Tensor, n_bytes: int) -> None:
        if data.numel() != n_bytes:
            raise CorruptPayload(f"{self.name}: expected {n_bytes} bytes of symbols, got {data.numel()}")


def aligned(data: Tensor) -> Tensor:
    """The same bytes where they can be read as words: copied if they start between two words of memory."""
    data = data.contiguous()
    return data.clone() if data.storage_offset() % WORD_BYTES or data.data_ptr() % WORD_BYTES else data
