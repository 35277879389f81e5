"""The header of a payload: 64 bytes that describe what follows. docs/wire-format.md has the table of its fields."""

import struct
import zlib
from dataclasses import dataclass
from functools import cache

from laconic.errors import CorruptPayload

MAGIC = b"lcnc"
VERSION = 2
CHECKSUM = 1
"""The flag of payloads whose body has a checksum."""
CHECKSUM_AT, CHECKED_FROM = 48, 52
"""Offsets of the body's checksum and of the first byte that it covers."""
SIZE_AT, KEY_AT, CHECK_AT = 24, 32, 44
"""Offsets of the size of the coded symbols, the stream's key and the checksum of the fields."""
_FIELDS = struct.Struct("<4sBBBBIIQQQI")
"""From the magic to the fingerprint. They do not depend on the values, so their checksum never waits for a GPU."""
_REST = struct.Struct("<IIfQ")
"""CRC-32 of the fields, CRC-32 of the bytes after it, step size, zero. The step size depends on the values."""
HEADER_BYTES = _FIELDS.size + _REST.size


@dataclass(frozen=True, slots=True)
class Header:
    """What a decoder must know. `to_bytes` and `from_bytes` are inverses.

    quantizer    its `wire_id`; likewise `coder`
    bits         width of a symbol
    coded_bytes  size of what follows the norms
    fingerprint  of the quantizer's grid
    flags        `CHECKSUM` or 0
    stream_key   for quantizers whose decoder draws the encoder's random numbers again, otherwise 0
    step_size    reserved for quantizers with one step for all values; 0 for all so far
    checksum     of the body, where the flag says that it has one

    >>> header = Header(quantizer=1, bits=4, coder=0, bucket_size=8192, n=100, coded_bytes=50)
    >>> Header.from_bytes(header.to_bytes()) == header
    True
    """

    quantizer: int
    bits: int
    coder: int
    bucket_size: int
    n: int
    coded_bytes: int
    fingerprint: int = 0
    flags: int = 0
    stream_key: int = 0
    step_size: float = 0.0
    checksum: int = 0

    def to_bytes(self) -> bytes:
        """The 64 bytes."""
        ids, sizes = (self.quantizer, self.bits, self.coder), (self.bucket_size, self.n, self.coded_bytes)
        fields = _FIELDS.pack(MAGIC, VERSION, *ids, self.flags, *sizes, self.stream_key, self.fingerprint)
        return fields + _REST.pack(zlib.crc32(fields), self.checksum, self.step_size, 0)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Header":
        """The header at the start of `data`; raises `CorruptPayload` if there is none."""
        magic, version = data[:4], data[4] if len(data) > 4 else VERSION
        if len(data) >= len(MAGIC) and magic != MAGIC:
            raise CorruptPayload(f"not a laconic payload: it starts with {magic!r} instead of {MAGIC!r}")
        if version != VERSION:
            raise CorruptPayload(
                f"payload of wire version {version}, this laconic reads version {VERSION}; install the same laconic "
                "on every rank, and encode stored payloads again"
            )
        if len(data) < HEADER_BYTES:
            raise CorruptPayload(f"payload of {len(data)} bytes is shorter than its header of {HEADER_BYTES}")
        _, _, quantizer, bits, coder, flags, bucket_size, n, coded_bytes, key, fingerprint = _FIELDS.unpack_from(data)
        header_check, checksum, step_size, zero = _REST.unpack_from(data, _FIELDS.size)
        if header_check != zlib.crc32(data[: _FIELDS.size]) or zero != 0:
            raise CorruptPayload("the header's checksum does not match")
        return cls(quantizer, bits, coder, bucket_size, n, coded_bytes, fingerprint, flags, key, step_size, checksum)


@cache
def size_checks() -> tuple[int, ...]:
    """The bits of the fields' CRC-32, which is linear, that each bit of `coded_bytes` flips: 64 numbers of 32 bits.

    On a GPU, where the size is known last, they correct the checksum of a header made for size 0.

    >>> plain, sized = (Header(1, 4, 0, 8192, 100, size).to_bytes()[44:48] for size in (0, 4))
    >>> int.from_bytes(plain, "little") ^ int.from_bytes(sized, "little") == size_checks()[2]
    True
    """
    nothing = zlib.crc32(bytes(_FIELDS.size))
    fields = (bytes(SIZE_AT) + struct.pack("<Q", 1 << bit) + bytes(_FIELDS.size - SIZE_AT - 8) for bit in range(64))
    return tuple(zlib.crc32(row) ^ nothing for row in fields)
