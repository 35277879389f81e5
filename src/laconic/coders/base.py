"""The interface of a lossless coder, and what the coders of variable size share: a table and blocks."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels import Backend, Blocks, DeviceBackend, select
from laconic.kernels.layout import n_blocks

CPU = torch.device("cpu")
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
    """A lossless code, and bounds of its size.

    Every decoder treats its input as hostile: it raises `CorruptPayload`, and never reads out of bounds or hangs.
    """

    name: ClassVar[str]
    wire_id: ClassVar[int]
    fixed_size: ClassVar[bool]

    @property
    def variants(self) -> "tuple[Coder, ...]":
        """Coders that this one chooses among, depending on the symbols: together they call all kernels it may call."""
        return (self,)

    @abstractmethod
    def max_bytes(self, shape: Shape) -> int:
        """Most bytes `encode` can return; exact where `fixed_size`."""

    def min_bytes(self, shape: Shape) -> int:
        """Fewest bytes `encode` can return, so that a payload's size bounds the number of values it can claim."""
        return self.max_bytes(shape) if self.fixed_size else 0


class SymbolCoder(Coder):
    """A code of symbols, whatever quantizer made them: `decode(encode(symbols)) == symbols`."""

    max_bits: ClassVar[int] = 8

    @abstractmethod
    def encode(self, symbols: Tensor, shape: Shape, backend: Backend) -> Tensor:
        """Symbols (n,) to bytes, both uint8 and on the same device."""

    @abstractmethod
    def decode(self, data: Tensor, shape: Shape, backend: Backend) -> Tensor:
        """The inverse of `encode`; raises `CorruptPayload`."""

    def _require_alphabet(self, symbols: Tensor, bits: int) -> None:
        if symbols.numel() and int(symbols.max()) >= 2**bits:
            raise ValueError(f"expected symbols of {bits} bits, below {2**bits}; got {int(symbols.max())}")

    def _require_size(self, data: Tensor, n_bytes: int) -> None:
        if data.numel() != n_bytes:
            raise CorruptPayload(f"{self.name}: expected {n_bytes} bytes of symbols, got {data.numel()}")


class BlockCoder(SymbolCoder):
    """A coder of variable size: one table for all symbols, and blocks of symbols that are coded on their own.

        table           each coder's own, padded with zeros to a multiple of 4 bytes
        block_words     uint32 x n_blocks: words of each block, which has 65,536 symbols, or bytes of them
        words           uint32, the blocks one after another

    Little-endian throughout. n = 0 symbols are coded as the empty body, and no other body decodes to them.

    gpu_from  number of symbols from which a GPU is faster than the host; fewer are copied to the host and back
    """

    fixed_size: ClassVar[bool] = False
    gpu_from: ClassVar[float] = math.inf

    @abstractmethod
    def _table_bytes(self, bits: int) -> int:
        """Size of the table."""

    def _n_coded(self, shape: Shape) -> int:
        """Number of symbols in the blocks: n, or fewer if several are coded as one."""
        return shape.n

    @abstractmethod
    def _max_bits(self, shape: Shape) -> int:
        """Most bits that the blocks of `shape.n` > 0 symbols hold, before the last word of each is padded."""

    @abstractmethod
    def _encode(self, symbols: Tensor, shape: Shape, backend: Backend) -> tuple[Tensor, Blocks]:
        """Table (uint8) and blocks of n > 0 symbols."""

    @abstractmethod
    def _decode(self, table: Tensor, blocks: Blocks, shape: Shape, backend: Backend) -> tuple[Tensor, int]:
        """The inverse of `_encode`: symbols and the first corrupt block, or -1."""

    def max_bytes(self, shape: Shape) -> int:
        """Most bytes `encode` can return; derived in the class's docstring."""
        self._require_bits(shape)
        if shape.n == 0:
            return 0
        count = n_blocks(self._n_coded(shape))
        n_words = (self._max_bits(shape) + 31 * count) // 32
        return _whole_words(self._table_bytes(shape.bits)) + WORD_BYTES * (count + n_words)

    def min_bytes(self, shape: Shape) -> int:
        """The table, and for each block its size and one word."""
        count = n_blocks(self._n_coded(shape))
        return _whole_words(self._table_bytes(shape.bits)) + 2 * WORD_BYTES * count if shape.n else 0

    def encode(self, symbols: Tensor, shape: Shape, backend: Backend) -> Tensor:
        """Symbols (n,) uint8 to the body (uint8), on the same device."""
        self._require_bits(shape)
        if symbols.dtype != torch.uint8 or symbols.shape != (shape.n,):
            raise ValueError(
                f"{self.name}: expected {shape.n} symbols of torch.uint8, "
                f"got shape {tuple(symbols.shape)} of {symbols.dtype}"
            )
        if shape.n == 0:
            return torch.empty_like(symbols)
        if self._goes_through_host(symbols, shape, backend):
            return self.encode(symbols.cpu(), shape, select("cpu", CPU)).to(symbols.device)
        return write(*self._encode(symbols, shape, backend))

    def decode(self, data: Tensor, shape: Shape, backend: Backend) -> Tensor:
        """The inverse of `encode`; raises `CorruptPayload`."""
        self._require_bits(shape)
        if shape.n == 0:
            self._require_size(data, 0)
            return torch.empty_like(data)
        if self._goes_through_host(data, shape, backend):
            return self.decode(data.cpu(), shape, select("cpu", CPU)).to(data.device)
        table, blocks = parse(data, self._n_coded(shape), self._table_bytes(shape.bits), self.name)
        symbols, bad = self._decode(table, blocks, shape, backend)
        if bad >= 0:
            raise CorruptPayload(f"{self.name}: block {bad} of {n_blocks(self._n_coded(shape))} is corrupt")
        return symbols

    def _goes_through_host(self, data: Tensor, shape: Shape, backend: Backend) -> bool:
        return data.is_cuda and isinstance(backend, DeviceBackend) and shape.n < self.gpu_from

    def _require_bits(self, shape: Shape) -> None:
        if not 1 <= shape.bits <= self.max_bits:
            raise ValueError(f"{self.name}: expected symbols of 1 to {self.max_bits} bits, got {shape.bits}")


def aligned(data: Tensor) -> Tensor:
    """The same bytes, aligned to words: copied if they start between two words of memory."""
    data = data.contiguous()
    return data.clone() if data.storage_offset() % WORD_BYTES or data.data_ptr() % WORD_BYTES else data


def write(table: Tensor, blocks: Blocks) -> Tensor:
    """Body (uint8) of a table (uint8, on any device) and blocks."""
    block_words, words = blocks
    padding = torch.zeros(-table.numel() % WORD_BYTES, dtype=torch.uint8, device=words.device)
    parts = [table.to(words.device), padding, block_words.view(torch.uint8), words.view(torch.uint8)]
    if not words.is_cpu:
        return torch.cat(parts)
    return torch.from_numpy(np.concatenate([part.numpy() for part in parts]))  # torch would wake its own threads


def copy_bytes(target: Tensor, source: Tensor) -> None:
    """Copy bytes (n,) on one device; on the CPU without torch's threads, which would compete with ours for a while."""
    if target.is_cpu:
        target.numpy()[:] = source.numpy()
    else:
        target.copy_(source)


def parse(data: Tensor, n: int, n_table_bytes: int, name: str) -> tuple[Tensor, Blocks]:
    """Table (uint8) and blocks of a body of n > 0 symbols; `name` is for the error message."""
    head = _whole_words(n_table_bytes)
    start = head + WORD_BYTES * n_blocks(n)
    if data.numel() < start or data.numel() % WORD_BYTES:
        raise CorruptPayload(
            f"{name}: expected a multiple of 4 bytes, at least {start} for {n} symbols; got {data.numel()}"
        )
    data = aligned(data)
    if data[n_table_bytes:head].any():
        raise CorruptPayload(f"{name}: the bytes that fill up the table are not zero")
    return data[:n_table_bytes], (data[head:start].view(torch.int32), data[start:].view(torch.int32))


def _whole_words(n_bytes: int) -> int:
    return -(-n_bytes // WORD_BYTES) * WORD_BYTES
