"""Codecs: a quantizer and a coder; the wire format lives here and nowhere else."""

from laconic.codec.codec import Codec, codec, codec_for, make_codec
from laconic.codec.header import HEADER_BYTES, VERSION, Header
from laconic.codec.payload import Payload

__all__ = ["HEADER_BYTES", "VERSION", "Codec", "Header", "Payload", "codec", "codec_for", "make_codec"]
