"""The layout of a payload: the header, one norm per bucket, the coded symbols."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from laconic.codec.header import CHECK_AT, CHECKSUM, HEADER_BYTES, KEY_AT, SIZE_AT, Header, size_checks
from laconic.codec.payload import Payload, side_by_side
from laconic.coders import Coder, Shape
from laconic.coders.base import WORD_BYTES, aligned
from laconic.errors import CorruptPayload
from laconic.kernels import DeviceBackend
from laconic.options import check_int
from laconic.quantizers import Quantizer

NORM_BYTES = 4
MAX_VALUES = 2**48
"""Most values a payload may claim to hold; the fields of its header could express more."""
MAX_FRAMES = 1024
"""Most frames a layout caches; a codec meets as many sizes as a model has groups and chunks."""

Parts = tuple[Tensor, Tensor]
"""Norms and coded symbols."""


class Frame(NamedTuple):
    """Header and length of all payloads of one size. Cached: exchanges make thousands of payloads of a few sizes."""

    header: bytes
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes and offsets in a codec's payloads, and the validation of received ones.

        0 … 64             header
        64 … first_coded   norms, float32, one per bucket
        first_coded …      coded symbols

    quantizer  the one that makes the symbols
    coder      the one that codes them
    checksum   whether a checksum of the body is written and required

    >>> import laconic
    >>> layout = laconic.codec("nuqsgd", bits=4, bucket_size=8192).layout
    >>> layout.first_coded(8192), layout.frame(8192).n_bytes
    (68, 4164)
    """

    quantizer: Quantizer
    coder: Coder
    checksum: bool = False
    _fingerprint: int = field(init=False)
    _frames: dict[int, Frame] = field(init=False, compare=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_fingerprint", self.quantizer.fingerprint)

    def shape(self, n: int) -> Shape:
        """What the coder must know about the symbols of n values."""
        return Shape(n, self.quantizer.symbol_bits, self.quantizer.bucket_size)

    def first_coded(self, n: int) -> int:
        """Where the norms of n values end and the coded symbols begin."""
        return HEADER_BYTES + NORM_BYTES * self.quantizer.n_norms(n)

    def max_bytes(self, n: int) -> int:
        """Most bytes a payload of n values can take; exact where the coder's size is fixed."""
        if self.coder.fixed_size:
            return self.frame(n).n_bytes
        n = check_int("n", n, 0, MAX_VALUES)
        return self.first_coded(n) + self.coder.max_bytes(self.shape(n))

    def header(self, n: int, coded_bytes: int, key: int = 0) -> Header:
        """The header of n values whose coded symbols take `coded_bytes`."""
        quantizer, flags = self.quantizer, CHECKSUM * self.checksum
        ids = quantizer.wire_id, quantizer.symbol_bits, self.coder.wire_id, quantizer.bucket_size
        return Header(*ids, n, coded_bytes, self._fingerprint, flags, key)

    def frame(self, n: int, coded_bytes: int | None = None) -> Frame:
        """The frame of n values whose coded symbols take `coded_bytes`, by default what a coder of fixed size takes."""
        found = self._frames.get(n) if coded_bytes is None else None
        if found is not None:
            return found
        n = check_int("n", n, 0, MAX_VALUES)
        size = self.coder.max_bytes(self.shape(n)) if coded_bytes is None else coded_bytes
        made = Frame(self.header(n, size).to_bytes(), self.first_coded(n) + size)
        if coded_bytes is None:
            if len(self._frames) >= MAX_FRAMES:
                self._frames.clear()
            self._frames[n] = made
        return made

    def new(
        self, n: int, device: torch.device, out: Tensor | None = None, coded_bytes: int | None = None, key: int = 0
    ) -> Tensor:
        """A payload's bytes with the header filled in: new memory, or `out`, which must be a row of that many bytes.

        key  of the random numbers, if the decoder draws them again
        """
        header, n_bytes = self.frame(n, coded_bytes)
        if out is None:
            out = torch.empty(n_bytes, dtype=torch.uint8, device=device)
        else:
            _require_row(out, n_bytes, device)
        if self.quantizer.draws_again:
            header = self.header(n, n_bytes - self.first_coded(n), key).to_bytes()
            _copy_to(out[:HEADER_BYTES], header)
        else:
            out[:HEADER_BYTES] = _row(header, device)
        return out

    def stamp(self, slot: Tensor, n: int, key: int, coded_bytes: Tensor, backend: DeviceBackend) -> None:
        """Write the header of n values into a slot (int32 words); `coded_bytes`, (1,) int64, stays on the device."""
        header = self.header(n, 0, key).to_bytes()
        backend.stamp(slot, header, coded_bytes, size_checks(), SIZE_AT, CHECK_AT)

    def slot_lengths(self, slots: Tensor, n: int) -> Tensor:
        """(P,) int64: the lengths of the payloads of n values in slots (P, n_bytes), read from their headers."""
        return slots.view(torch.int64)[:, SIZE_AT // 8] + self.first_coded(n)

    def split(self, data: Tensor, n: int) -> Parts:
        """Norms (n_norms,) and coded symbols in the bytes of a payload of n values; copied if they lie unaligned."""
        first, data = self.first_coded(n), aligned(data)
        return data[HEADER_BYTES:first].view(torch.float32), data[first:]

    def split_rows(self, rows: Sequence[Tensor], n: int) -> Parts:
        """Norms (P, n_norms) and coded symbols (P, coded bytes) in the bytes of P payloads of n values and one size."""
        if len(rows) == 1:
            norms, coded = self.split(rows[0], n)
            return norms[None], coded[None]
        first, matrix = self.first_coded(n), side_by_side(rows, WORD_BYTES)
        norms = matrix.view(torch.float32)[:, HEADER_BYTES // NORM_BYTES : first // NORM_BYTES]
        return norms, matrix[:, first : rows[0].numel()]

    def keys(self, rows: Sequence[Tensor]) -> Tensor:
        """(P, 2) int32: the halves of the keys in the headers of P payloads, on the payloads' device."""
        headers = side_by_side([data[:HEADER_BYTES] for data in rows], WORD_BYTES)
        return headers.view(torch.int32)[:, KEY_AT // 4 : KEY_AT // 4 + 2]

    def check(self, payload: Payload, n: int | None) -> int:
        """The number of values in a payload: n, if given. Raises `CorruptPayload` if it is not of this layout.

        Where n determines the whole header, its bytes are compared at once.
        """
        if not isinstance(payload, Payload):
            raise TypeError(f"expected a Payload, got {type(payload).__name__}; pass Payload.from_bytes(data)")
        if n is not None and self.coder.fixed_size and not self.checksum:
            expected, n_bytes = self.frame(n)
            if payload.n_bytes == n_bytes and (payload.trusted or payload.header_bytes == expected):
                return n
        header = payload.header
        self._check_fields(header, n)
        self._check_sizes(header, payload.n_bytes)
        if header.flags & CHECKSUM and header.checksum != payload.checksum():
            raise CorruptPayload("the checksum of the payload's body does not match: it was damaged on its way")
        return header.n

    def _check_fields(self, header: Header, n: int | None) -> None:
        """Raise `CorruptPayload` if a field differs from this codec's. A checksum that was not required is accepted."""
        if self.checksum and not header.flags & CHECKSUM:
            raise CorruptPayload("payload has no checksum, this codec expects one; encode with checksum=True")
        key = header.stream_key if self.quantizer.draws_again else 0
        expected = self.header(header.n if n is None else n, header.coded_bytes, key)
        for name in ("quantizer", "bits", "coder", "bucket_size", "n", "fingerprint", "stream_key", "step_size"):
            got, want = getattr(header, name), getattr(expected, name)
            if repr(got) != repr(want):  # repr tells -0.0 from 0.0
                of = " of other levels, norms or rounding" if name == "fingerprint" else ""
                raise CorruptPayload(f"payload has {name} {got}{of}, this codec expects {want}")
        if header.flags & ~CHECKSUM or (header.checksum and not header.flags):
            raise CorruptPayload(f"payload has unknown flags {header.flags:#x} or a checksum without its flag")

    def _check_sizes(self, header: Header, n_bytes: int) -> None:
        """Raise `CorruptPayload` if a length does not match `n_bytes`; this bounds n before n values are allocated."""
        if header.n > MAX_VALUES:
            raise CorruptPayload(f"payload says it has {header.n} values; the most is {MAX_VALUES}")
        coded_bytes = n_bytes - self.first_coded(header.n)
        if coded_bytes != header.coded_bytes:
            raise CorruptPayload(
                f"payload of {n_bytes} bytes has {max(0, coded_bytes)} of symbols, its header says {header.coded_bytes}"
            )
        shape = self.shape(header.n)
        least, most = self.coder.min_bytes(shape), self.coder.max_bytes(shape)
        if not least <= coded_bytes <= most:
            takes = f"{least} to {most}" if least < most else f"{most}"
            raise CorruptPayload(f"{coded_bytes} bytes of symbols do not hold {header.n} values, which take {takes}")


def _require_row(out: Tensor, n_bytes: int, device: torch.device) -> None:
    if not isinstance(out, Tensor):
        raise TypeError(f"out must be a torch.Tensor, got {type(out).__name__}")
    if out.shape != (n_bytes,) or out.dtype != torch.uint8 or out.device != device or not out.is_contiguous():
        raise ValueError(
            f"out must be a contiguous row of {n_bytes} uint8 on {device}, "
            f"got {out.dtype} of shape {tuple(out.shape)} on {out.device}"
        )
    if out.storage_offset() % WORD_BYTES or out.data_ptr() % WORD_BYTES:
        raise ValueError(f"out must begin at a multiple of {WORD_BYTES} bytes, for the norms in it are float32")


def _copy_to(out: Tensor, data: bytes) -> None:
    """Copy bytes to a row on any device; the host does not wait for a GPU, which reads them from pinned memory."""
    row = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    out.copy_(row.pin_memory() if out.is_cuda else row, non_blocking=True)


@lru_cache(maxsize=4096)
def _row(header: bytes, device: torch.device) -> Tensor:
    """The header as a tensor, to be copied from only. Cached, since sending it to a GPU makes the host wait."""
    return torch.frombuffer(bytearray(header), dtype=torch.uint8).to(device)
