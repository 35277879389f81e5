"""A store: one safetensors file that is memory-mapped, not read.

A safetensors file is eight bytes, the length of the header (u64, little-endian); the header, JSON padded with blanks;
then the tensors, one after the other without gaps. Ours starts at a multiple of 64 bytes and holds, in this order,

    dense     y F64 (m)  [sample_weight F64 (m)]  [offset F64 (m)]  X F32, BF16 or F64 (m, n)
    sparse    y F64 (m)  [sample_weight F64 (m)]  [offset F64 (m)]  indptr I64 (m + 1)
              indices I32 (k)  values F32 or BF16 (k)

y is missing where there was no target. `__metadata__` has `laconic_store` (the version of this layout), `n_features`,
`source` and, as JSON where there are any, the lists `feature_names`, `classes` and `notes`, a table `one_hot` of the
categories of columns, and a table `roles` of the columns that became target, weights, offset or exposure, each a list
of one name; `zero_based` says whether a LIBSVM file counted columns from 0 ("true" or "false").
"""

import json
import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.data.errors import BadTable
from laconic.data.errors import Path as AnyPath
from laconic.data.partition import take_columns
from laconic.data.table import DTYPES, Table, as_floats, as_target, column_block, no_target
from laconic.errors import CorruptPayload
from laconic.extras import require

VERSION = "1"
TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
}
_ROWS = ("y", "sample_weight", "offset")
_CHECKED_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of the file: its dtype, its shape and the byte offset where it starts."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def n_bytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class StoreHeader:
    """The tensors of a store and where they start, and its metadata."""

    sections: Mapping[str, StoredTensor]
    metadata: Mapping[str, str]

    @property
    def n_features(self) -> int:
        """Columns of X."""
        text = self.metadata.get("n_features", "")
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise CorruptPayload(f"its n_features is {text[:20]!r}")
        return int(text)

    @property
    def n_rows(self) -> int:
        """Rows of X."""
        sections = self.sections
        return sections["X"].shape[0] if "X" in sections else max(0, sections["indptr"].shape[0] - 1)

    def told(self, key: str) -> Any:
        """A JSON entry of the metadata: a list of strings as a tuple, a table of such lists, or None if missing."""
        try:
            found = json.loads(self.metadata.get(key, "null"))
        except (ValueError, RecursionError) as error:
            raise CorruptPayload(f"its {key} are not JSON") from error
        if isinstance(found, dict) == (key in ("one_hot", "roles")):
            lists = found.values() if isinstance(found, dict) else [found or []]
            if all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists):
                return tuple(found) if isinstance(found, list) else found
        elif found is None:
            return found
        raise CorruptPayload(f"its {key} are not lists of names")

    def check(self) -> None:
        """Raise `CorruptPayload` unless these are the tensors of a store, with consistent dtypes and shapes."""
        if self.metadata.get("laconic_store") != VERSION:
            found = self.metadata.get("laconic_store")
            if found is None:
                raise CorruptPayload("it is no store of rows, such as `laconic convert` writes")
            what = f"it is a store of version {found!r}; this laconic reads version {VERSION}"
            raise CorruptPayload(f"{what}; convert it again")
        n, matrix = self.n_features, set(self.sections) - set(_ROWS)
        kinds = {name: section.dtype for name, section in self.sections.items()}
        shapes = {name: section.shape for name, section in self.sections.items()}
        if matrix == {"X"}:
            good = kinds["X"] in DTYPES.values() and len(shapes["X"]) == 2 and shapes["X"][1] == n
        elif matrix == {"indptr", "indices", "values"}:
            good = kinds["indptr"] == torch.int64 and kinds["indices"] == torch.int32
            good = good and kinds["values"] in (torch.float32, torch.bfloat16) and n < 2**31
            good = good and len(shapes["indptr"]) == 1 and shapes["indptr"][0] > 0
            good = good and len(shapes["indices"]) == 1 and shapes["indices"] == shapes["values"]
        else:
            raise CorruptPayload(f"it holds {sorted(matrix)} instead of X, or of indptr, indices and values")
        for name in set(_ROWS) & set(self.sections):
            good = good and kinds[name] == torch.float64 and shapes[name] == (self.n_rows,)
        if not good:
            raise CorruptPayload("the types and shapes of its tensors do not fit together")


def read_header(path: Path) -> StoreHeader:
    """The header of a store; raises `CorruptPayload` if it is invalid.

    safetensors itself checks that the header is JSON, and that the tensors have the sizes of their shapes and cover the
    file without gaps or overlaps.
    """
    safetensors = require("safetensors", for_="a store", extra="files")
    try:
        with safetensors.safe_open(path, framework="pt"), path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entries = json.loads(file.read(length))
        metadata = entries.pop("__metadata__", {})
        sections = {}
        for name, entry in entries.items():
            start = 8 + length + entry["data_offsets"][0]
            sections[name] = StoredTensor(TYPES[entry.pop("dtype")], tuple(entry.pop("shape")), start)
        if any(len(entry) > 1 for entry in entries.values()):
            raise CorruptPayload("its header says more of tensors than dtype, shape and data_offsets")
        header = StoreHeader(sections, metadata)
        header.check()
    except CorruptPayload as error:
        raise CorruptPayload(f"{path}: {error}") from error
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptPayload(f"{path} is no store: {str(error)[:80]}") from error
    return header


def open_store(path: AnyPath, columns: tuple[int, int] | None = None) -> Table:
    """Map a store; a dense X costs no memory and no time until it is read.

    columns  (first, last): X holds columns first to last - 1 only. For a dense X this is a view with the row stride of
             the whole matrix: not contiguous, and nothing is copied. For a sparse X the columns are copied.

    The file is not trusted: an invalid header, row pointer or column index raises `CorruptPayload`. Values of a dense X
    are not checked (`write_store` writes only finite ones). The map is copy-on-write: writing into X changes neither
    the file nor what other processes see.
    """
    path = Path(path)
    header = read_header(path)
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return _table(header, mapped, columns)
    except CorruptPayload as error:
        raise CorruptPayload(f"{path}: {error}") from error


def _table(header: StoreHeader, mapped: mmap.mmap, columns: tuple[int, int] | None) -> Table:
    n, m = header.n_features, header.n_rows
    tensors = {name: _tensor(mapped, section) for name, section in header.sections.items()}
    first, last = column_block(columns, n)
    feature_names = header.told("feature_names")
    if feature_names is not None and len(feature_names) != n:
        raise CorruptPayload(f"it has {len(feature_names)} feature names and {n} features")
    X = tensors["X"] if "X" in tensors else _csr(tensors, m, n)
    try:
        y = as_target(tensors["y"]) if "y" in tensors else no_target(m)
        for part in {"sample_weight", "offset"} & tensors.keys():
            tensors[part] = as_floats(tensors[part], part, part=part)
    except BadTable as error:
        raise CorruptPayload(str(error)) from error
    return Table(
        X if columns is None else take_columns(X, first, last),
        y,
        tensors.get("sample_weight"),
        tensors.get("offset"),
        feature_names,
        (first, last),
        n,
        header.told("classes"),
        {"true": True, "false": False}.get(header.metadata.get("zero_based", "")),
        header.told("one_hot") or {},
        header.told("notes") or (),
        mapped if "X" in tensors else None,
        header.told("roles") or {},
    )


def _tensor(mapped: mmap.mmap, section: StoredTensor) -> torch.Tensor:
    if not section.n_bytes:
        return torch.empty(section.shape, dtype=section.dtype)
    if section.start % section.dtype.itemsize:
        raise CorruptPayload(f"a tensor starts at byte {section.start}, which does not suit {section.dtype}")
    count = section.n_bytes // section.dtype.itemsize
    return torch.frombuffer(mapped, dtype=section.dtype, count=count, offset=section.start).view(section.shape)


def _csr(tensors: dict[str, torch.Tensor], m: int, n: int) -> Any:
    csr_array = require("scipy.sparse", for_="a sparse store", extra="files").csr_array

    indptr, indices, values = tensors["indptr"].numpy(), tensors["indices"].numpy(), tensors["values"].float().numpy()
    if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise CorruptPayload("its row pointers do not count its values")
    for start in range(0, len(indices), _CHECKED_AT_ONCE):
        part = indices[start : start + _CHECKED_AT_ONCE]
        if part.min() < 0 or part.max() >= n:
            raise CorruptPayload(f"it has a column index outside 0 to {n - 1}")
        if not np.isfinite(values[start : start + _CHECKED_AT_ONCE]).all():
            raise CorruptPayload("it has a value that is not finite")
    return csr_array((values, indices, indptr), shape=(m, n))
