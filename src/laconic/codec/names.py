"""Codecs by name, for command lines and configuration files."""

from typing import Any

from laconic import coders, quantizers
from laconic.codec.codec import Codec
from laconic.quantizers import Quantizer


def codec(scheme: str, coder: str = "fixed", *, backend: str = "auto", **options: Any) -> Codec:
    """A codec by the names of its scheme and coder; options (`bits`, `bucket_size`, `p`) go to the scheme.

    >>> codec("nuqsgd", "rans", bits=4).quantizer
    NUQSGD(bits=4, bucket_size=8192, p=0.5)
    """
    return Codec(quantizers.by_name(scheme, **options), coders.by_name(coder), backend)


def codec_for(what: Codec | Quantizer | str) -> Codec:
    """A codec from whatever stands for one: itself, a quantizer (coded at fixed width), or a scheme's name.

    >>> codec_for("bf16").quantizer
    Identity(dtype='bf16')
    """
    if isinstance(what, Codec):
        return what
    return codec(what) if isinstance(what, str) else Codec(what)
