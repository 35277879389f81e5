"""The schemes that suites compare, by name and label, and the entropy of their symbols."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from laconic.kernels import select
from laconic.options import check_names
from laconic.quantizers import NUQSGD, QSGD, Dithered, ErrorFeedback, Identity, QSGDInf, Quantizer, Rotated, Sign

BITS = (2, 4, 8)
NAMES = ("fp32", "bf16", "qsgd", "nuqsgd", "qsgdinf", "sign", "ef-sign", "rotated", "dithered")


@dataclass(frozen=True, slots=True)
class Scheme:
    """A quantizer with the name it is asked for by and the label its rows carry."""

    name: str
    label: str
    quantizer: Quantizer


def schemes(bucket_size: int, only: Sequence[str] = NAMES) -> list[Scheme]:
    """All contenders whose name is in `only`, narrow before wide.

    >>> [scheme.label for scheme in schemes(64, only=["nuqsgd"])]
    ['nuqsgd-2', 'nuqsgd-4', 'nuqsgd-4 p=0.7', 'nuqsgd-8']
    """
    check_names(only, NAMES, "scheme")
    found = [Scheme("fp32", "fp32", Identity("fp32")), Scheme("bf16", "bf16", Identity("bf16"))]
    for bits in BITS:
        for kind in (QSGD, NUQSGD, QSGDInf):
            found.append(Scheme(kind.name, f"{kind.name}-{bits}", kind(bits=bits, bucket_size=bucket_size)))
            if kind is NUQSGD and bits == 4:
                found.append(Scheme(kind.name, "nuqsgd-4 p=0.7", NUQSGD(bits=4, bucket_size=bucket_size, p=0.7)))
    sign = Sign(bucket_size=bucket_size)
    found += [Scheme("sign", "sign", sign), Scheme("ef-sign", "ef-sign", ErrorFeedback(sign))]
    found += [Scheme("rotated", f"rotated-{bits}", Rotated(bits=bits)) for bits in (2, 4)]
    found += [Scheme("dithered", f"dithered-{error:g}", Dithered(error=error)) for error in (1.0, 0.1)]
    return [scheme for scheme in found if scheme.name in only]


def empirical_entropy(symbols: torch.Tensor, bits: int) -> float:
    """Σ −f log₂ f over the shares f of the symbols that occur, in bits per symbol.

    >>> empirical_entropy(torch.tensor([0, 1, 2, 3], dtype=torch.uint8), bits=2)
    2.0
    """
    counts = select("auto", symbols.device).histogram(symbols, bits).double()
    shares = counts[counts > 0] / max(1, symbols.numel())
    return abs(float(-(shares * shares.log2()).sum()))
