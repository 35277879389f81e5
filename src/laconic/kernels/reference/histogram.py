"""How often each symbol occurs: what Huffman and rANS tables are made of."""

import torch


def histogram(symbols: torch.Tensor, bits: int) -> torch.Tensor:
    """Counts of the 2**bits symbols (int64). A symbol outside the alphabet is an error.

    >>> histogram(torch.tensor([0, 3, 3], dtype=torch.uint8), 2).tolist()
    [1, 0, 0, 2]
    """
    counts = torch.bincount(symbols.long(), minlength=2**bits)
    if counts.numel() > 2**bits:
        raise ValueError(f"expected symbols of {bits} bits, below {2**bits}; got {counts.numel() - 1}")
    return counts
