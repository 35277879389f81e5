"""A payload: one contiguous run of bytes, ready for a collective, a socket or a file."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.codec.header import CHECKED_FROM, CHECKSUM_AT, HEADER_BYTES, Header
from laconic.errors import CorruptPayload

_NOTHING = torch.empty(0, dtype=torch.uint8, device="cpu")


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """Encoded values as bytes; two payloads are equal if their bytes and devices are.

    data     (n_bytes,) uint8; holds everything: header, norms, coded symbols
    trusted  whether the sender is known to use the same codec and number of values, so that a decoder of fixed-size
             codes need not read the header. That saves little on the CPU; on a GPU, reading it makes the host wait
             for all work queued there. Lengths are compared nevertheless: a wrong header could give wrong values,
             never a read out of bounds.

    >>> from laconic import Codec, NUQSGD
    >>> import torch
    >>> payload = Codec(NUQSGD(bits=4, bucket_size=8192)).encode(torch.ones(8192))
    >>> payload.n_bytes, round(payload.bits_per_coordinate, 2)
    (4164, 4.07)
    """

    data: Tensor
    trusted: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.data, Tensor):
            raise TypeError(f"a payload is a row of uint8, got {type(self.data).__name__}; use Payload.from_bytes")
        if self.data.dtype != torch.uint8 or self.data.dim() != 1:
            raise CorruptPayload(
                f"a payload is a row of uint8, got {self.data.dtype} of shape {tuple(self.data.shape)}"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Payload):
            return NotImplemented
        return self.data.device == other.data.device and torch.equal(self.data, other.data)

    def __hash__(self) -> int:
        return hash(self.n_bytes)

    @property
    def header_bytes(self) -> bytes:
        """The header's bytes as received, unchecked."""
        if self.data.is_meta:
            raise CorruptPayload("a payload on the device meta has no bytes; give one on cpu or cuda")
        data = self.data if self.data.is_cpu else self.data[:HEADER_BYTES].cpu()
        head: bytes = data.numpy()[:HEADER_BYTES].tobytes()
        return head

    @property
    def header(self) -> Header:
        """The parsed header; raises `CorruptPayload` if it is invalid."""
        return Header.from_bytes(self.header_bytes)

    def checksum(self) -> int:
        """CRC-32 of the body and the step size in the header. The host computes it, so it waits for a GPU."""
        return zlib.crc32(self.data[CHECKED_FROM:].cpu().contiguous().numpy().data)

    def write_checksum(self) -> None:
        """Write the checksum into the header, which does not cover it."""
        checksum = self.checksum()
        signed = checksum - 2**32 if checksum >= 2**31 else checksum
        self.data[CHECKSUM_AT:CHECKED_FROM].view(torch.int32).fill_(signed)

    @property
    def n_bytes(self) -> int:
        """Bytes on the wire, header and norms included."""
        return self.data.numel()

    @property
    def bits_per_coordinate(self) -> float:
        """Bits on the wire for each value, header and norms included."""
        return 8 * self.n_bytes / max(1, self.header.n)

    def to_bytes(self) -> bytes:
        """A copy of the bytes, for a file or a socket."""
        return self.data.cpu().numpy().tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "Payload":
        """The inverse of `to_bytes`; the contents are checked when decoded."""
        return cls(torch.frombuffer(bytearray(data), dtype=torch.uint8) if len(data) else _NOTHING)


def side_by_side(rows: Sequence[Tensor], word_bytes: int) -> Tensor:
    """Rows of equally many bytes as one matrix, each row padded to whole words; a view where possible.

    It is possible where they already lie at equal distances in one tensor, as an exchange receives them.

    >>> matrix = torch.arange(24, dtype=torch.uint8).view(3, 8)
    >>> side_by_side([row[:7] for row in matrix], 4).data_ptr() == matrix.data_ptr()
    True
    >>> side_by_side([matrix[0, :7], matrix[2, :7]], 4).shape
    torch.Size([2, 8])
    """
    first, n_bytes = rows[0], rows[0].numel()
    width = -(-n_bytes // word_bytes) * word_bytes
    memory, places = first.untyped_storage(), [row.data_ptr() for row in rows]
    distance = places[1] - places[0] if len(rows) > 1 else width
    in_place = (
        places[0] % word_bytes == first.storage_offset() % word_bytes == distance % word_bytes == 0
        and distance >= width
        and all(row.is_contiguous() for row in rows)
        and places == list(range(places[0], places[0] + len(rows) * distance, distance))
        and places[-1] + width <= memory.data_ptr() + memory.nbytes()  # all within the first one's memory
    )
    if in_place:
        return first.as_strided((len(rows), width), (distance, 1))
    matrix = torch.empty(len(rows), width, dtype=torch.uint8, device=first.device)
    for target, row in zip(matrix, rows, strict=True):
        target[:n_bytes] = row
    return matrix
