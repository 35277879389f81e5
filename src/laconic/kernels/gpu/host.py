"""Elias and Huffman codes of tensors on a GPU: one copy to the host, the kernels of `kernels.cpu`, one copy back.

They serve comparison; every bit of their codes depends on those before it.
"""

import torch

from laconic.kernels import cpu
from laconic.kernels.backend import Blocks


def _back(blocks: Blocks, device: torch.device) -> Blocks:
    return blocks[0].to(device), blocks[1].to(device)


def elias_encode(symbols: torch.Tensor, bits: int, dense: bool) -> Blocks:
    """Elias omega stream of sign-magnitude symbols."""
    return _back(cpu.elias_encode(symbols.cpu(), bits, dense), symbols.device)


def elias_decode(blocks: Blocks, n: int, bits: int, dense: bool) -> tuple[torch.Tensor, int]:
    """Symbols and the index of the first corrupt block, or -1."""
    symbols, bad = cpu.elias_decode(_back(blocks, torch.device("cpu")), n, bits, dense)
    return symbols.to(blocks[1].device), bad


def huffman_encode(symbols: torch.Tensor, lengths: torch.Tensor) -> Blocks:
    """Canonical Huffman stream for code `lengths` (uint8, 2**bits)."""
    return _back(cpu.huffman_encode(symbols.cpu(), lengths.cpu()), symbols.device)


def huffman_decode(blocks: Blocks, n: int, lengths: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Symbols and the index of the first corrupt block, or -1."""
    symbols, bad = cpu.huffman_decode(_back(blocks, torch.device("cpu")), n, lengths.cpu())
    return symbols.to(blocks[1].device), bad
