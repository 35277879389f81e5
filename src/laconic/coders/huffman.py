"""Canonical Huffman coding."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from laconic.coders.base import BlockCoder, Shape
from laconic.errors import CorruptPayload
from laconic.kernels import Backend, Blocks
from laconic.kernels.reference.huffman import MAX_LENGTH, valid_lengths

Item = tuple[int, int]
"""Weight, and the symbol or -1 for a package of two items of the list below."""


@dataclass(frozen=True, slots=True)
class Huffman(BlockCoder):
    """A whole number of bits per symbol: the best prefix code of at most 12 bits for these symbols (Huffman 1952).

        entropy <= bits per symbol < entropy + 1

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

    def _encode(self, symbols: Tensor, shape: Shape, backend: Backend) -> tuple[Tensor, Blocks]:
        counts = backend.histogram(symbols, shape.bits)
        lengths = torch.tensor(code_lengths(counts.tolist(), MAX_LENGTH), dtype=torch.uint8, device="cpu")
        return lengths, backend.huffman_encode(symbols, lengths)

    def _decode(self, table: Tensor, blocks: Blocks, shape: Shape, backend: Backend) -> tuple[Tensor, int]:
        lengths = table.cpu()
        if not valid_lengths(lengths):
            raise CorruptPayload(f"huffman: the table of code lengths is not that of a code of 1 to {MAX_LENGTH} bits")
        return backend.huffman_decode(blocks, shape.n, lengths)


def code_lengths(counts: list[int], max_length: int) -> list[int]:
    """Code lengths that minimise sum(count * length) over all prefix codes of at most `max_length` bits.

    By package-merge (Larmore and Hirschberg 1990).

    Symbols that do not occur get length 0. A symbol that occurs alone gets length 1.

    Each level of the code tree is a list: the symbols by weight, merged with pairs of items of the level below. The
    2m - 2 lightest items of the top level, unpacked, say how often each of the m symbols is taken: its code length.

    >>> code_lengths([10, 1, 1, 0, 3], 12), code_lengths([10, 1, 1, 0, 3], 2), code_lengths([0, 7], 12)
    ([1, 3, 3, 0, 2], [2, 2, 2, 0, 2], [0, 1])

    Raises:
        ValueError: more symbols occur than there are codewords of `max_length` bits.
    """
    symbols = sorted((count, symbol) for symbol, count in enumerate(counts) if count)
    if len(symbols) > 2**max_length:
        raise ValueError(f"{len(symbols)} symbols cannot all have a code of at most {max_length} bits")
    lengths = [0] * len(counts)
    if len(symbols) == 1:
        lengths[symbols[0][1]] = 1
        return lengths
    n_taken = max(2 * len(symbols) - 2, 0)
    for level in reversed(_levels(symbols, max_length)):
        taken = [symbol for _, symbol in level[:n_taken]]
        for symbol in taken:
            if symbol >= 0:
                lengths[symbol] += 1
        n_taken = 2 * taken.count(-1)
    return lengths


def _levels(symbols: list[Item], n_levels: int) -> list[list[Item]]:
    """The lists from the deepest level of the code tree up to the top."""
    levels = [symbols]
    while len(levels) < n_levels:
        below = levels[-1]
        packages = [(below[i][0] + below[i + 1][0], -1) for i in range(0, len(below) - 1, 2)]
        levels.append(sorted(symbols + packages))
    return levels
