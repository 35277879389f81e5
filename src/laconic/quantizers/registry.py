"""Every quantizer, listed once: names, wire ids, test tables and the public names of `laconic` derive from it."""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

from laconic.quantizers.base import Quantizer
from laconic.quantizers.dithered import Dithered
from laconic.quantizers.error_feedback import ErrorFeedback
from laconic.quantizers.identity import Identity
from laconic.quantizers.nuqsgd import NUQSGD
from laconic.quantizers.qsgd import QSGD, QSGDInf
from laconic.quantizers.rotated import Rotated
from laconic.quantizers.sign import Sign

__all__ = ["NUQSGD", "QSGD", "Dithered", "ErrorFeedback", "Identity", "QSGDInf", "Rotated", "Sign"]

SCHEMES: tuple[type[Quantizer], ...] = (Identity, NUQSGD, QSGD, QSGDInf, Sign, Dithered, Rotated)
"""All quantizers except the wrapper `ErrorFeedback`, in the order of their `wire_id`."""
BY_NAME: dict[str, Callable[..., Quantizer]] = {
    **{dtype: partial(Identity, dtype) for dtype in ("fp32", "bf16")},
    **{scheme.name: scheme for scheme in SCHEMES if scheme is not Identity},
}
NAMES = (*BY_NAME, "ef-NAME")


def by_name(name: str, **options: Any) -> Quantizer:
    """A quantizer by its name, one of `NAMES`; options (`bits`, `bucket_size`, `p`) go to its constructor.

    With `ef-` in front of the name, the quantizer is wrapped in `ErrorFeedback`.

    >>> by_name("ef-sign", bucket_size=64)
    ErrorFeedback(inner=Sign(bits=1, bucket_size=64))
    """
    given: object = name
    if not isinstance(given, str):
        hint = "; a quantizer goes to Codec(quantizer)" if isinstance(given, Quantizer) else ""
        raise TypeError(f"a scheme goes by its name, such as 'nuqsgd'; got {name!r}{hint}")
    if name.startswith("ef-"):
        return ErrorFeedback(by_name(name.removeprefix("ef-"), **options))
    if name not in BY_NAME:
        raise ValueError(f"unknown scheme {name!r}; choose one of {', '.join(NAMES)}")
    make: Any = BY_NAME[name]
    known = [] if isinstance(make, partial) else [field.name for field in fields(make)]
    for option in options:
        if option not in known:
            raise TypeError(f"{name} has no option {option!r}; it takes {', '.join(known) or 'none'}")
    made: Quantizer = make(**options)
    return made
