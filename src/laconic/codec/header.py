"""The header of a payload: forty bytes that say what follows.

    offset  type   field
         0  4s     magic, b"lcnc"
         4  u8     version of the wire format
         5  u8     quantizer (0 identity, 1 nuqsgd, 2 qsgd, 3 qsgdinf, 4 sign)
         6  u8     bits a symbol
         7  u8     coder (0 fixed, 1 elias, 2 huffman, 3 rans)
         8  u32    bucket_size
        12  f32    p, the ratio of NUQSGD's levels; 0 for the others
        16  u64    n, the number of values
        24  u64    bytes of coded symbols
        32  u32    CRC-32 of bytes 0 to 31
        36  u32    zero

All little-endian. Then come the norms (float32, one a bucket; none for identity) and the coded symbols.
The check sum covers the header alone: the symbols have none, since every transport below us has its own.
"""

import struct
import zlib
from dataclasses import dataclass

from laconic.errors import CorruptPayload

MAGIC = b"lcnc"
VERSION = 1
_FIELDS = struct.Struct("<4sBBBBIfQQ")
_CHECK = struct.Struct("<II")
_FLOAT32 = struct.Struct("<f")
HEADER_BYTES = _FIELDS.size + _CHECK.size


@dataclass(frozen=True, slots=True)
class Header:
    """What a decoder must know. `to_bytes` and `from_bytes` are inverses."""

    quantizer: int
    bits: int
    coder: int
    bucket_size: int
    p: float
    n: int
    coded_bytes: int
    version: int = VERSION

    def to_bytes(self) -> bytes:
        """The forty bytes."""
        fields = _FIELDS.pack(
            MAGIC,
            self.version,
            self.quantizer,
            self.bits,
            self.coder,
            self.bucket_size,
            self.p,
            self.n,
            self.coded_bytes,
        )
        return fields + _CHECK.pack(zlib.crc32(fields), 0)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Header":
        """The header at the start of `data`, or `CorruptPayload`."""
        if len(data) < HEADER_BYTES:
            raise CorruptPayload(f"payload of {len(data)} bytes is shorter than its header of {HEADER_BYTES}")
        magic, version, quantizer, bits, coder, bucket_size, p, n, coded_bytes = _FIELDS.unpack_from(data)
        check, zero = _CHECK.unpack_from(data, _FIELDS.size)
        if magic != MAGIC:
            raise CorruptPayload(f"not a laconic payload: it starts with {magic!r} instead of {MAGIC!r}")
        if check != zlib.crc32(data[: _FIELDS.size]) or zero != 0:
            raise CorruptPayload("the header's check sum does not match")
        if version != VERSION:
            raise CorruptPayload(f"payload of wire version {version}; this laconic reads version {VERSION}")
        return cls(quantizer, bits, coder, bucket_size, p, n, coded_bytes, version)


def to_float32(x: float) -> float:
    """The number that a float32 field holds of x."""
    rounded: float = _FLOAT32.unpack(_FLOAT32.pack(x))[0]
    return rounded
