"""Canonical Huffman coding."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from laconic.coders.base import Shape
from laconic.coders.blocks import BlockCoder
from laconic.coders.package_merge import code_lengths
from laconic.errors import CorruptPayload
from laconic.kernels import Backend, Blocks
from laconic.kernels.reference.huffman import MAX_LENGTH, valid_lengths


@dataclass(frozen=True, slots=True)
class Huffman(BlockCoder):
    """A whole number of bits a symbol: the best prefix code of at most 12 bits for these symbols (Huffman 1952).

        entropy <= bits a symbol < entropy + 1

    The table is the code length of each of the 2**bits symbols, one byte each. Size: `bits` bits for every symbol is
    itself a code of at most 12 bits and the best one is no longer, so the blocks never hold more than n * bits bits.

    >>> from laconic.kernels import select
    >>> symbols, backend = torch.zeros(1000, dtype=torch.uint8), select("reference", torch.device("cpu"))
    >>> Huffman().encode(symbols, Shape(n=1000, bits=4, bucket_size=512), backend).numel()      # 16 + 4 + 1000 / 8
    148
    """

    name: ClassVar[str] = "huffman"
    wire_id: ClassVar[int] = 2

    def _table_bytes(self, bits: int) -> int:
        return 1 << bits

    def _max_bits(self, shape: Shape) -> int:
        return shape.n * shape.bits

    def _encode(self, symbols: torch.Tensor, shape: Shape, backend: Backend) -> tuple[torch.Tensor, Blocks]:
        counts = backend.histogram(symbols, shape.bits)
        lengths = torch.tensor(code_lengths(counts.tolist(), MAX_LENGTH), dtype=torch.uint8, device="cpu")
        return lengths, backend.huffman_encode(symbols, lengths)

    def _decode(self, table: torch.Tensor, blocks: Blocks, shape: Shape, backend: Backend) -> tuple[torch.Tensor, int]:
        lengths = table.cpu()
        if not valid_lengths(lengths):
            raise CorruptPayload(f"huffman: the table of code lengths is not that of a code of 1 to {MAX_LENGTH} bits")
        return backend.huffman_decode(blocks, shape.n, lengths)
