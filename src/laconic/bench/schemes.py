"""The contenders: every quantizer, at the widths people use."""

from collections.abc import Sequence
from dataclasses import dataclass

from laconic.bench.options import require_known
from laconic.quantizers import NUQSGD, QSGD, ErrorFeedback, Identity, QSGDInf, Quantizer, Sign

BITS = (2, 4, 8)
NAMES = ("fp32", "bf16", "qsgd", "nuqsgd", "qsgdinf", "sign", "ef-sign")


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
    require_known(only, NAMES, "scheme")
    found = [Scheme("fp32", "fp32", Identity("fp32")), Scheme("bf16", "bf16", Identity("bf16"))]
    for bits in BITS:
        for kind in (QSGD, NUQSGD, QSGDInf):
            found.append(Scheme(kind.name, f"{kind.name}-{bits}", kind(bits=bits, bucket_size=bucket_size)))
            if kind is NUQSGD and bits == 4:
                found.append(Scheme(kind.name, "nuqsgd-4 p=0.7", NUQSGD(bits=4, bucket_size=bucket_size, p=0.7)))
    sign = Sign(bucket_size=bucket_size)
    found += [Scheme("sign", "sign", sign), Scheme("ef-sign", "ef-sign", ErrorFeedback(sign))]
    return [scheme for scheme in found if scheme.name in only]
