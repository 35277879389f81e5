"""Quantizers by name, for command lines and configuration files."""

from dataclasses import fields
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
    if not isinstance(name, str):
        raise TypeError(_no_name(name))
    if name.startswith("ef-"):
        return ErrorFeedback(by_name(name.removeprefix("ef-"), **options))
    if name in ("fp32", "bf16"):
        _require_known(name, options, ())
        return Identity(name)  # type: ignore[arg-type]
    if name not in SCHEMES:
        raise ValueError(f"unknown scheme {name!r}; choose one of {', '.join(NAMES)}")
    _require_known(name, options, tuple(field.name for field in fields(SCHEMES[name])))
    return SCHEMES[name](**options)


def _require_known(name: str, options: dict[str, Any], known: tuple[str, ...]) -> None:
    for option in options:
        if option not in known:
            raise TypeError(f"{name} has no option {option!r}; it takes {', '.join(known) or 'none'}")


def _no_name(what: object) -> str:
    hint = "; a quantizer goes to Codec(quantizer)" if isinstance(what, Quantizer) else ""
    return f"a scheme goes by its name, such as 'nuqsgd'; got {what!r}{hint}"
