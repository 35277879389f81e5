"""The interface of a lossless coder."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from laconic.errors import CorruptPayload
from laconic.kernels import Backend


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
    """Lossless map between symbols and bytes: `decode(encode(symbols)) == symbols`.

    Every decoder treats its input as hostile: it raises `CorruptPayload`, and never reads out of bounds or loops.
    """

    name: ClassVar[str]
    wire_id: ClassVar[int]
    fixed_size: ClassVar[bool]
    max_bits: ClassVar[int] = 8

    @abstractmethod
    def max_bytes(self, shape: Shape) -> int:
        """Most bytes `encode` can return; exact where `fixed_size`."""

    @abstractmethod
    def encode(self, symbols: torch.Tensor, shape: Shape, backend: Backend) -> torch.Tensor:
        """Symbols (n,) to bytes, both uint8 and on the same device."""

    @abstractmethod
    def decode(self, data: torch.Tensor, shape: Shape, backend: Backend) -> torch.Tensor:
        """The inverse of `encode`, or `CorruptPayload`."""

    def _require_size(self, data: torch.Tensor, n_bytes: int) -> None:
        if data.numel() != n_bytes:
            raise CorruptPayload(f"{self.name}: expected {n_bytes} bytes of symbols, got {data.numel()}")
