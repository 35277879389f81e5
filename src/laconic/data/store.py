"""A store: one safetensors file that is mapped into memory, not read. `store_header.py` has the layout."""

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.data.errors import BadTable
from laconic.data.errors import Path as AnyPath
from laconic.data.partition import take_columns
from laconic.data.store_header import VERSION, StoredTensor, StoreHeader, header_bytes
from laconic.data.table import Table, as_floats, as_target, as_weights, column_block, no_target
from laconic.errors import CorruptPayload
from laconic.extras import require

_ROWS = ("y", "sample_weight", "offset")
_CHECKED_AT_ONCE = 1 << 22


def open_store(path: AnyPath, columns: tuple[int, int] | None = None) -> Table:
    """Map a store; a dense X costs no memory and no time until it is read.

    columns  (first, last): X holds columns first to last - 1 only. Of a dense X this is a view with the row stride of
             the whole matrix: rows are not contiguous with each other, and nothing is copied. Of a sparse X the
             columns are copied out.

    The file is not trusted: a header, a row pointer or a column index that cannot be right is `CorruptPayload`. Values
    of a dense X are not looked at (`write_store` wrote none that is not finite). The map is private: writing into X
    changes neither the file nor what other processes see.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            header = read_header(file, path.stat().st_size)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return _table(header, mapped, columns)
    except CorruptPayload as error:
        raise CorruptPayload(f"{path}: {error}") from error


def read_header(file: Any, file_bytes: int) -> StoreHeader:
    """The header of an open store, checked as far as it can be without its tensors."""
    start = file.read(8)
    header = StoreHeader.from_bytes(start + file.read(header_bytes(start, file_bytes) - 8), file_bytes)
    if header.metadata.get("laconic_store") != VERSION:
        found = header.metadata.get("laconic_store")
        raise CorruptPayload(
            f"it is a store of version {found!r}; this laconic reads version {VERSION}; convert it again"
        )
    _check_shapes(header)
    return header


def n_features(header: StoreHeader) -> int:
    """Columns of X."""
    text = header.metadata.get("n_features", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise CorruptPayload(f"its n_features is {text[:20]!r}")
    return int(text)


def n_rows(header: StoreHeader) -> int:
    """Rows of X."""
    sections = header.sections
    return sections["X"].shape[0] if "X" in sections else max(0, sections["indptr"].shape[0] - 1)


def names(header: StoreHeader, key: str) -> tuple[str, ...] | None:
    """A list of text in the metadata, or None."""
    found = _json(header, key)
    return None if found is None else _texts(found, key)


def _json(header: StoreHeader, key: str) -> Any:
    try:
        return json.loads(header.metadata.get(key, "null"))
    except (ValueError, RecursionError) as error:
        raise CorruptPayload(f"its {key} are not JSON") from error


def _texts(found: Any, key: str) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise CorruptPayload(f"its {key} are not a list of names")
    return tuple(found)


def _one_hot(header: StoreHeader) -> dict[str, tuple[str, ...]]:
    found = _json(header, "one_hot") or {}
    if not isinstance(found, dict):
        raise CorruptPayload("its one_hot is no table")
    return {name: _texts(known, "one_hot") for name, known in found.items()}


def _check_shapes(header: StoreHeader) -> None:
    sections, floats = header.sections, (torch.float32, torch.bfloat16, torch.float64)
    n, kinds = n_features(header), {name: section.dtype for name, section in sections.items()}
    matrix = set(sections) - set(_ROWS)
    if matrix == {"X"}:
        good = kinds["X"] in floats and len(sections["X"].shape) == 2 and sections["X"].shape[1] == n
    elif matrix == {"indptr", "indices", "values"}:
        good = kinds["indptr"] == torch.int64 and kinds["indices"] == torch.int32 and kinds["values"] in floats[:2]
        good = good and len(sections["indptr"].shape) == 1 and sections["indptr"].shape[0] > 0 and n < 2**31
        good = good and len(sections["indices"].shape) == 1 and sections["indices"].shape == sections["values"].shape
    else:
        raise CorruptPayload(f"it holds {sorted(matrix)} instead of X, or of indptr, indices and values")
    for name in set(_ROWS) & set(sections):
        good = good and kinds[name] == torch.float64 and sections[name].shape == (n_rows(header),)
    if not good:
        raise CorruptPayload("the types and shapes of its tensors do not fit together")


def _table(header: StoreHeader, mapped: mmap.mmap, columns: tuple[int, int] | None) -> Table:
    n, m, tensors = n_features(header), n_rows(header), {}
    for name, section in header.sections.items():
        tensors[name] = _tensor(mapped, section)
    first, last = column_block(columns, n)
    feature_names = names(header, "feature_names")
    if feature_names is not None and len(feature_names) != n:
        raise CorruptPayload(f"it has {len(feature_names)} feature names and {n} features")
    X = tensors["X"] if "X" in tensors else _csr(tensors, m, n)
    try:
        y = as_target(tensors["y"]) if "y" in tensors else no_target(m)
        weight = as_weights(tensors["sample_weight"]) if "sample_weight" in tensors else None
        offset = as_floats(tensors["offset"], "offset") if "offset" in tensors else None
    except BadTable as error:
        raise CorruptPayload(str(error)) from error
    X = X if columns is None else take_columns(X, first, last)
    zero_based = {"true": True, "false": False}.get(header.metadata.get("zero_based", ""))
    more: dict[str, Any] = {
        "one_hot": _one_hot(header),
        "notes": names(header, "notes") or (),
        "mapped": mapped if "X" in tensors else None,
    }
    return Table(X, y, weight, offset, feature_names, (first, last), n, names(header, "classes"), zero_based, **more)


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
