"""The schemes that suites compare, by their labels, and the entropy of their symbols."""

from collections.abc import Sequence

import torch

from laconic.bench.ranks import scheme_of
from laconic.kernels import select
from laconic.options import check_names
from laconic.planner.rates import make_codec
from laconic.quantizers import NUQSGD, Quantizer

BITS = (2, 4, 8)
LEVELS = tuple(f"{scheme}-{bits}" for bits in BITS for scheme in ("qsgd", "nuqsgd", "qsgdinf"))
LABELS = ("fp32", "bf16", *LEVELS, "sign", "ef-sign", "rotated-2", "rotated-4", "dithered-1", "dithered-0.1")
NAMES = tuple(dict.fromkeys(map(scheme_of, LABELS)))


def schemes(bucket_size: int, only: Sequence[str] = NAMES) -> dict[str, Quantizer]:
    """By label, all contenders whose name is in `only`, narrow before wide.

    >>> list(schemes(64, only=["nuqsgd"]))
    ['nuqsgd-2', 'nuqsgd-4', 'nuqsgd-8', 'nuqsgd-4 p=0.7']
    """
    check_names(only, NAMES, "scheme")
    found = {label: make_codec(label, bucket_size).quantizer for label in LABELS}
    found["nuqsgd-4 p=0.7"] = NUQSGD(bits=4, bucket_size=bucket_size, p=0.7)
    return {label: quantizer for label, quantizer in found.items() if scheme_of(label) in only}


def empirical_entropy(symbols: torch.Tensor, bits: int) -> float:
    """Σ −f log₂ f over the shares f of the symbols that occur, in bits per symbol.

    >>> empirical_entropy(torch.tensor([0, 1, 2, 3], dtype=torch.uint8), bits=2)
    2.0
    """
    counts = select("auto", symbols.device).histogram(symbols, bits).double()
    shares = counts[counts > 0] / max(1, symbols.numel())
    return abs(float(-(shares * shares.log2()).sum()))
