"""Blocks of 32-bit words: the container every variable-length stream shares, and bits inside a block.

A stream of n symbols is cut into blocks of `layout.BLOCK_SIZE` symbols (the last may be short). Each block is coded on
its own into a whole number of 32-bit words, and `Blocks` is the pair (words per block, all words one after another).

Prefix codes (Elias, Huffman) write bits into words most significant first: the first bit of a block is bit 31 of its
first word. The last word is padded with zeros. A decoder accepts a block only if it used up every word and the
padding is zero, so a block has exactly one encoding.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels.backend import Blocks
from laconic.kernels.layout import BLOCK_SIZE, n_blocks

WORD_BITS = 32


class BitReader:
    """A cursor over bits written as text."""

    def __init__(self, bits: str) -> None:
        self.bits = bits
        self.position = 0

    @classmethod
    def of(cls, words: list[int]) -> "BitReader":
        """A cursor over the bits of a block's words."""
        return cls("".join(f"{word:032b}" for word in words))

    def take(self, n_bits: int) -> str:
        """The next `n_bits` bits as text."""
        if self.position + n_bits > len(self.bits):
            raise CorruptPayload("the block ends inside a codeword")
        self.position += n_bits
        return self.bits[self.position - n_bits : self.position]

    def close(self) -> None:
        """Raise `CorruptPayload` if more is left than the zeros that pad the last word."""
        rest = self.bits[self.position :]
        if len(rest) >= WORD_BITS or "1" in rest:
            raise CorruptPayload("the block goes on after its last codeword")


def to_words(bits: str) -> list[int]:
    """Bits to 32-bit words, most significant first, the last padded with zeros.

    >>> [hex(word) for word in to_words("1" * 36)]
    ['0xffffffff', '0xf0000000']
    """
    bits += "0" * (-len(bits) % WORD_BITS)
    return [int(bits[i : i + WORD_BITS], 2) for i in range(0, len(bits), WORD_BITS)]


def encode_blocks(symbols: Tensor, encode_block: Callable[[list[int]], list[int]]) -> Blocks:
    """Code each block of `symbols` with `encode_block` (symbols to words)."""
    firsts = range(0, symbols.numel(), BLOCK_SIZE)
    return join_blocks([encode_block(symbols[first : first + BLOCK_SIZE].tolist()) for first in firsts], symbols.device)


def join_blocks(parts: list[list[int]], device: torch.device) -> Blocks:
    """The words of each block as `Blocks`."""
    sizes, words = [len(part) for part in parts], [word for part in parts for word in part]
    return torch.tensor(sizes, device=device).int(), torch.tensor(words, dtype=torch.int64, device=device).int()


def decode_blocks(blocks: Blocks, n: int, decode_block: Callable[[list[int], int], list[int]]) -> tuple[Tensor, int]:
    """Decode each block with `decode_block` (words and number of symbols to symbols).

    Returns the n symbols (uint8) and the index of the first corrupt block, or -1.
    """
    symbols = torch.zeros(n, dtype=torch.uint8, device=blocks[1].device)
    starts, bad = block_starts(blocks, n)
    if bad >= 0:
        return symbols, bad
    for block in range(n_blocks(n)):
        first = block * BLOCK_SIZE
        last = min(first + BLOCK_SIZE, n)
        words = [word % 2**WORD_BITS for word in blocks[1][starts[block] : starts[block + 1]].tolist()]
        try:
            found = decode_block(words, last - first)
        except CorruptPayload:
            return symbols, block
        symbols[first:last] = torch.tensor(found, dtype=torch.uint8, device=symbols.device)
    return symbols, -1


def block_starts(blocks: Blocks, n: int) -> tuple[list[int], int]:
    """Offset of each block in the words (n_blocks + 1 entries), and the index of the first invalid block or -1.

    Words left over after the last block make that block invalid.

    >>> words = torch.zeros(3, dtype=torch.int32)
    >>> block_starts((torch.tensor([2, 1]), words), 65537), block_starts((torch.tensor([4]), words), 1)
    (([0, 2, 3], -1), ([0], 0))
    """
    sizes, n_words = blocks[0].tolist(), blocks[1].numel()
    starts = [0]
    if len(sizes) != n_blocks(n):
        return starts, 0
    for block, size in enumerate(sizes):
        if not 0 <= size <= n_words - starts[-1]:
            return starts, block
        starts.append(starts[-1] + size)
    return starts, -1 if starts[-1] == n_words else max(len(sizes) - 1, 0)


def histogram(symbols: Tensor, bits: int) -> Tensor:
    """Counts of the 2**bits symbols (int64). A symbol outside the alphabet is an error.

    >>> histogram(torch.tensor([0, 3, 3], dtype=torch.uint8), 2).tolist()
    [1, 0, 0, 2]
    """
    counts = torch.bincount(symbols.long(), minlength=2**bits)
    if counts.numel() > 2**bits:
        raise ValueError(f"expected symbols of {bits} bits, below {2**bits}; got {counts.numel() - 1}")
    return counts
