"""Quantizers by name, for command lines and configuration files."""

from typing import Any

from laconic.quantizers.base import Quantizer
from laconic.quantizers.error_feedback import ErrorFeedback
from laconic.quantizers.identity import Identity
from laconic.quantizers.nuqsgd import NUQSGD
from laconic.quantizers.qsgd import QSGD
from laconic.quantizers.qsgdinf import QSGDInf
from laconic.quantizers.sign import Sign

SCHEMES: dict[str, type[NUQSGD | QSGD | QSGDInf | Sign]] = {
    scheme.name: scheme for scheme in (NUQSGD, QSGD, QSGDInf, Sign)
}
NAMES = ("fp32", "bf16", *SCHEMES, "ef-NAME")


def by_name(name: str, **options: Any) -> Quantizer:
    """A quantizer by its name; options (`bits`, `bucket_size`, `p`) go to its constructor.

    Names: fp32, bf16, nuqsgd, qsgdinf, qsgd, sign; with `ef-` in front, wrapped in `ErrorFeedback`.

    >>> by_name("ef-sign", bucket_size=64)
    ErrorFeedback(inner=Sign(bits=1, bucket_size=64))
    """
    if name.startswith("ef-"):
        return ErrorFeedback(by_name(name.removeprefix("ef-"), **options))
    if name in ("fp32", "bf16"):
        return Identity(name, **options)  # type: ignore[arg-type]
    if name not in SCHEMES:
        raise ValueError(f"unknown scheme {name!r}; choose one of {', '.join(NAMES)}")
    return SCHEMES[name](**options)
