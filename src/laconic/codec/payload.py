"""A payload: one contiguous run of bytes, ready for a collective, a socket or a file."""

from dataclasses import dataclass

import torch

from laconic.codec.header import HEADER_BYTES, Header
from laconic.errors import CorruptPayload


@dataclass(frozen=True, slots=True)
class Payload:
    """Encoded values. `data` is (n_bytes,) uint8 and holds everything: header, norms, coded symbols.

    >>> from laconic import Codec, NUQSGD
    >>> import torch
    >>> payload = Codec(NUQSGD(bits=4)).encode(torch.ones(8192))
    >>> payload.n_bytes, round(payload.bits_per_coordinate, 2)
    (4140, 4.04)
    """

    data: torch.Tensor

    def __post_init__(self) -> None:
        if self.data.dtype != torch.uint8 or self.data.dim() != 1:
            raise CorruptPayload(
                f"a payload is a row of uint8, got {self.data.dtype} of shape {tuple(self.data.shape)}"
            )

    @property
    def header(self) -> Header:
        """The parsed header, or `CorruptPayload`."""
        return Header.from_bytes(self.data[:HEADER_BYTES].cpu().numpy().tobytes())

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
        return cls(torch.frombuffer(bytearray(data), dtype=torch.uint8) if len(data) else torch.empty(0).byte())
