"""Canonical Huffman; `reference/huffman.py` is the specification, `prefix.py` does the work."""

import torch

from laconic.kernels.backend import Blocks
from laconic.kernels.cpu import prefix
from laconic.kernels.reference.huffman import canonical_codes


def huffman_encode(symbols: torch.Tensor, lengths: torch.Tensor) -> Blocks:
    """Symbols (n,) uint8 to blocks, by code `lengths` (uint8, 2**bits); every symbol that occurs has a length."""
    return prefix.encode(symbols, prefix.code_array(canonical_codes(lengths)))


def huffman_decode(blocks: Blocks, n: int, lengths: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Symbols (n,) uint8, and the index of the first corrupt block or -1."""
    return prefix.decode(blocks, n, prefix.decode_tables(prefix.code_array(canonical_codes(lengths))))
