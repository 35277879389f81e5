"""What no lossless code of single symbols can go below."""

import torch

from laconic.kernels import select


def empirical_entropy(symbols: torch.Tensor, bits: int) -> float:
    """Σ −f log₂ f over the shares f of the symbols that occur, in bits a symbol.

    >>> empirical_entropy(torch.tensor([0, 1, 2, 3], dtype=torch.uint8), bits=2)
    2.0
    """
    counts = select("auto", symbols.device).histogram(symbols, bits).double()
    shares = counts[counts > 0] / max(1, symbols.numel())
    return abs(float(-(shares * shares.log2()).sum()))
