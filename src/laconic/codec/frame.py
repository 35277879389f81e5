"""Where things lie in a payload of known size. Worked out once: exchanges make thousands of payloads of a few sizes."""

from dataclasses import dataclass
from functools import lru_cache

import torch

from laconic.codec.header import HEADER_BYTES

WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Frame:
    """The fixed parts of a payload.

    header       its first bytes
    first_coded  where the norms end and the symbols begin
    n_bytes      size of it all

    >>> import laconic
    >>> frame = laconic.codec("nuqsgd", bits=4).frame(8192)
    >>> frame.first_coded, frame.n_bytes
    (44, 4140)
    """

    header: bytes
    first_coded: int
    n_bytes: int

    def new(self, device: torch.device, out: torch.Tensor | None = None) -> torch.Tensor:
        """A payload's bytes with the header filled in: new memory, or `out`, which must be a row of that many bytes."""
        data = torch.empty(self.n_bytes, dtype=torch.uint8, device=device) if out is None else out
        if out is not None:
            self._require_room(out, device)
        data[:HEADER_BYTES] = _row(self.header, device)
        return data

    def _require_room(self, out: torch.Tensor, device: torch.device) -> None:
        if not isinstance(out, torch.Tensor):
            raise TypeError(f"out must be a torch.Tensor, got {type(out).__name__}")
        if out.shape != (self.n_bytes,) or out.dtype != torch.uint8 or out.device != device or not out.is_contiguous():
            raise ValueError(
                f"out must be a contiguous row of {self.n_bytes} uint8 on {device}, "
                f"got {out.dtype} of shape {tuple(out.shape)} on {out.device}"
            )
        if out.storage_offset() % WORD_BYTES or out.data_ptr() % WORD_BYTES:
            raise ValueError(f"out must begin at a multiple of {WORD_BYTES} bytes, for the norms in it are float32")

    def norms(self, data: torch.Tensor) -> torch.Tensor:
        """The norms in a payload's bytes."""
        return data[HEADER_BYTES : self.first_coded].view(torch.float32)

    def coded(self, data: torch.Tensor) -> torch.Tensor:
        """The symbols in a payload's bytes."""
        return data[self.first_coded :]


@lru_cache(maxsize=4096)
def _row(header: bytes, device: torch.device) -> torch.Tensor:
    """The header as a tensor, to be copied from only: sent to a GPU once, since sending makes the host wait."""
    return torch.frombuffer(bytearray(header), dtype=torch.uint8).to(device)
