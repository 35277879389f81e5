"""The header of a store: a safetensors header that we write, and read without trust.

A safetensors file is eight bytes, the length of the header (u64, little-endian); the header, JSON padded with blanks;
then the tensors, one after the other without gaps. Ours starts at a multiple of 64 bytes and holds, in this order,

    dense     y F64 (m)  [sample_weight F64 (m)]  [offset F64 (m)]  X F32, BF16 or F64 (m, n)
    sparse    y F64 (m)  [sample_weight F64 (m)]  [offset F64 (m)]  indptr I64 (m + 1)
              indices I32 (k)  values F32 or BF16 (k)

y is missing where there was no target. `__metadata__` has `laconic_store` (the version of this layout), `n_features`,
`source` and, as JSON, lists `feature_names`, `classes` and `notes` and a table `one_hot` of columns' categories where
there are any; `zero_based` says whether a LIBSVM file has counted columns from 0 ("true" or "false").
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from laconic.errors import CorruptPayload

VERSION = "1"
MAX_HEADER_BYTES = 100_000_000
ALIGNMENT = 64
TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
}
_NAMES = {dtype: name for name, dtype in TYPES.items()}
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of the file: its dtype and shape, and the byte of the file where it starts."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def n_bytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class StoreHeader:
    """Where each tensor lies, and the metadata.

    >>> header, data = StoreHeader.lay_out({"X": (torch.float32, (2, 3))}, {"n_features": "3"})
    >>> header.sections["X"].start == len(data), header.n_bytes - len(data)
    (True, 24)
    >>> StoreHeader.from_bytes(data, header.n_bytes) == header
    True
    """

    sections: Mapping[str, StoredTensor]
    metadata: Mapping[str, str] = field(default_factory=dict)
    n_bytes: int = 0

    @classmethod
    def lay_out(
        cls, tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], metadata: Mapping[str, str]
    ) -> "tuple[StoreHeader, bytes]":
        """The header of a file with these tensors in this order, and its bytes."""
        entries: dict[str, Any] = {"__metadata__": {"laconic_store": VERSION, **metadata}}
        end = 0
        for name, (dtype, shape) in tensors.items():
            start, end = end, end + math.prod(shape) * dtype.itemsize
            entries[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
        text = json.dumps(entries, separators=(",", ":")).encode()
        if len(text) > MAX_HEADER_BYTES:
            raise ValueError(f"a header of {len(text)} bytes is too long; leave the feature names out")
        text = text.ljust(-(-(len(text) + _LENGTH.size) // ALIGNMENT) * ALIGNMENT - _LENGTH.size)
        data = _LENGTH.pack(len(text)) + text
        return cls.from_bytes(data, len(data) + end), data

    @classmethod
    def from_bytes(cls, data: bytes, file_bytes: int) -> "StoreHeader":
        """The header at the start of a file of `file_bytes`; everything in it is checked, or `CorruptPayload`."""
        length = header_bytes(data, file_bytes)
        text = bytes(data[_LENGTH.size : length])
        try:
            entries = json.loads(text, object_pairs_hook=_no_repeats)
        except (ValueError, RecursionError) as error:
            raise CorruptPayload(f"its header is not JSON: {str(error)[:80]}") from error
        if not isinstance(entries, dict):
            raise CorruptPayload("its header is not a JSON object")
        metadata = entries.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise CorruptPayload("its __metadata__ is not text")
        sections = {name: _section(name, entry, length) for name, entry in entries.items()}
        _check_cover(sections, length, file_bytes)
        return cls(sections, metadata, file_bytes)


def header_bytes(data: bytes, file_bytes: int) -> int:
    """Bytes before the first tensor, from the first eight of the file."""
    if len(data) < _LENGTH.size:
        raise CorruptPayload(f"a file of {file_bytes} bytes is no store")
    length = int(_LENGTH.unpack_from(data)[0])
    if length > min(MAX_HEADER_BYTES, file_bytes - _LENGTH.size):
        raise CorruptPayload(f"its header claims {length} bytes and the file has {file_bytes}")
    return _LENGTH.size + length


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name occurs twice")
    return entries


def _section(name: str, entry: Any, start: int) -> StoredTensor:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise CorruptPayload(f"its header does not describe tensor {name!r} by dtype, shape and data_offsets")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in TYPES:
        raise CorruptPayload(f"tensor {name!r} has dtype {entry['dtype']!r}; a store has {', '.join(TYPES)}")
    if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2 or len(shape) > 2:
        raise CorruptPayload(f"tensor {name!r} has shape {shape!r} and data_offsets {offsets!r}")
    section = StoredTensor(TYPES[entry["dtype"]], tuple(shape), start + offsets[0])
    n_bytes = offsets[1] - offsets[0]
    if section.n_bytes != n_bytes:
        raise CorruptPayload(
            f"tensor {name!r} of shape {shape} needs {section.n_bytes} bytes, its data_offsets hold {n_bytes}"
        )
    return section


def _are_counts(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(n) is int and 0 <= n < 2**62 for n in numbers)


def _check_cover(sections: Mapping[str, StoredTensor], start: int, file_bytes: int) -> None:
    """The tensors must cover the file from its header to its end: no gap, no overlap, nothing outside."""
    end = start
    for name, section in sorted(sections.items(), key=lambda item: (item[1].start, item[1].n_bytes)):
        if section.start != end:
            raise CorruptPayload(f"tensor {name!r} starts at byte {section.start} instead of {end}")
        end += section.n_bytes
    if end != file_bytes:
        raise CorruptPayload(f"its tensors end at byte {end} and the file at {file_bytes}")
