"""Elias omega coding of sign-magnitude symbols."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from laconic.coders.base import BlockCoder, Shape
from laconic.errors import CorruptPayload
from laconic.kernels import Backend, Blocks
from laconic.kernels.layout import BLOCK_SIZE, n_blocks
from laconic.kernels.reference.elias import dense_codeword, omega_encode, sparse_codeword

VARIANTS = ("sparse", "dense")
"""The index of each is its number on the wire."""


@dataclass(frozen=True, slots=True)
class Elias(BlockCoder):
    """Small levels in few bits, without a table of symbols (Elias 1975; QSGD and NUQSGD code gradients with it).

        dense     omega(level + 1), sign if level > 0                  for every symbol
        sparse    omega(zeros before + 1), sign, omega(level)          for every non-zero symbol; first their number

    `auto` takes the shorter one for the given symbols, dense if they tie. For independent symbols, zero with
    probability z and otherwise of one level, the bits per symbol are

        z                       0      0.25   0.5    0.75   0.9    0.99
        dense,  level 1 or 2    4.00   3.25   2.50   1.75   1.30   1.03
        sparse, level 1         3.00   2.66   2.19   1.49   0.83   0.14
        sparse, level 2         5.00   4.16   3.19   1.99   1.03   0.16

    So sparse always wins where the level is 1, and from z = 0.831 where it is 2 (or any level l whose omega code is as
    long as that of l + 1). Gradients in 4 bits are a draw; with 8 bits, where zeros are rare, dense wins.

    The table is one 32-bit word: 0 sparse, 1 dense. Size: dense, a symbol takes at most the longest codeword. Sparse, a
    zero takes at most 2 bits, as omega(r + 1) has at most 1 + 2 r bits, a non-zero symbol one bit more than the longest
    sign and magnitude, and the number of non-zeros at most 28 bits per block.

    >>> from laconic.kernels import select
    >>> symbols, backend = torch.zeros(1000, dtype=torch.uint8), select("reference", torch.device("cpu"))
    >>> Elias().encode(symbols, Shape(n=1000, bits=4, bucket_size=512), backend).numel()      # variant, size, one word
    12

    Differences from the papers: symbols come in blocks of 65,536, each on its own; the bucket's norm is not part of it.
    """

    name: ClassVar[str] = "elias"
    wire_id: ClassVar[int] = 1

    variant: str = "auto"

    def __post_init__(self) -> None:
        if self.variant not in ("auto", *VARIANTS):
            raise ValueError(f"unknown Elias variant {self.variant!r}; choose one of auto, {', '.join(VARIANTS)}")

    @property
    def variants(self) -> "tuple[Elias, ...]":
        return tuple(map(Elias, VARIANTS)) if self.variant == "auto" else (self,)

    def _table_bytes(self, bits: int) -> int:
        return 4

    def _max_bits(self, shape: Shape) -> int:
        dense = shape.n * max(_dense_lengths(shape.bits))
        sparse = shape.n * max(2, 1 + max(_sparse_lengths(shape.bits)))
        sparse += n_blocks(shape.n) * len(omega_encode(BLOCK_SIZE + 1))
        return {"dense": dense, "sparse": sparse, "auto": min(dense, sparse)}[self.variant]

    def _encode(self, symbols: Tensor, shape: Shape, backend: Backend) -> tuple[Tensor, Blocks]:
        counts = backend.histogram(symbols, shape.bits).tolist()
        if self.variant == "auto":
            dense, blocks = _shorter(symbols, shape, counts, backend)
        else:
            dense = self.variant == "dense"
            blocks = backend.elias_encode(symbols, shape.bits, dense)
        return torch.tensor([int(dense), 0, 0, 0], dtype=torch.uint8, device="cpu"), blocks

    def _decode(self, table: Tensor, blocks: Blocks, shape: Shape, backend: Backend) -> tuple[Tensor, int]:
        variant = int.from_bytes(bytes(table.tolist()), "little")
        if variant >= len(VARIANTS):
            raise CorruptPayload(f"elias: expected variant 0 (sparse) or 1 (dense), got {variant}")
        return backend.elias_decode(blocks, shape.n, shape.bits, VARIANTS[variant] == "dense")


def _shorter(symbols: Tensor, shape: Shape, counts: list[int], backend: Backend) -> tuple[bool, Blocks]:
    """Whether dense is no longer than sparse, and the blocks of the one that is taken.

    The counts give the exact number of dense bits, and a lower bound of the sparse ones (every run of zeros takes at
    least one bit). Often that decides, and only one variant has to be written.
    """
    dense_bits = sum(c * length for c, length in zip(counts, _dense_lengths(shape.bits), strict=True))
    least_sparse_bits = sum(c * (1 + length) for c, length in zip(counts[1:], _sparse_lengths(shape.bits), strict=True))
    if least_sparse_bits >= dense_bits + 31 * n_blocks(shape.n):
        return True, backend.elias_encode(symbols, shape.bits, True)
    sparse = backend.elias_encode(symbols, shape.bits, False)
    if 32 * sparse[1].numel() < dense_bits:
        return False, sparse
    dense = backend.elias_encode(symbols, shape.bits, True)
    return (False, sparse) if sparse[1].numel() < dense[1].numel() else (True, dense)


@cache
def _dense_lengths(bits: int) -> list[int]:
    return [len(dense_codeword(symbol, bits)) for symbol in range(2**bits)]


@cache
def _sparse_lengths(bits: int) -> list[int]:
    """From symbol 1: zeros have no code of their own."""
    return [len(sparse_codeword(symbol, bits)) for symbol in range(1, 2**bits)]
