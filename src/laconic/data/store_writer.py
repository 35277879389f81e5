"""Write a store a block of rows at a time; the file appears only when complete."""

import errno
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.atomic_write import atomic_write
from laconic.data.errors import BadTable
from laconic.data.errors import Path as AnyPath
from laconic.data.store import TYPES, VERSION, StoredTensor
from laconic.data.table import RowStream, Table, check_finite, rows_of, to_dtype, wrong_count

MAX_HEADER_BYTES = 100_000_000
ALIGNMENT = 64


def write_store(path: AnyPath, rows: Table | RowStream, dtype: "str | torch.dtype" = "bf16") -> Path:
    """Write a table, or a stream of rows, to a store; returns its path.

    rows   all columns of the whole matrix, not one rank's block of columns
    dtype  of X, or of a sparse X's values: "fp32", "bf16" (rounded to nearest) or, for a dense X, "fp64"

    1. the header goes to a temporary file beside `path`, and the space for all tensors is reserved;
    2. each block of rows is checked and written to its place in every tensor;
    3. the file is flushed to the disk and renamed to `path`.

    A failure before the rename leaves `path` as it was and no temporary file (except after kill -9, which leaves
    `.NAME.*.tmp`). Raises `NotWritten` if the disk is full.

    >>> import tempfile
    >>> from laconic.data import open_store
    >>> table = Table(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1]))
    >>> open_store(write_store(tempfile.mkdtemp() + "/two.safetensors", table)).X
    tensor([[1., 2.],
            [3., 4.]], dtype=torch.bfloat16)
    """
    path, kind = Path(path), to_dtype(dtype)
    stream = rows if isinstance(rows, RowStream) else rows_of(rows)
    like = stream.like
    if like.columns != (0, like.n_features):
        raise BadTable(f"a store holds all {like.n_features} columns, not columns {like.columns}")
    if stream.n_nonzero is not None and kind == torch.float64:
        raise BadTable("a sparse store holds fp32 or bf16, not fp64")
    header, sections = _lay_out(_tensors(stream, kind), _metadata(stream))
    n_bytes = len(header) + sum(section.n_bytes for section in sections.values())
    with atomic_write(path, "wb", n_bytes=n_bytes) as file:
        _reserve(file.fileno(), n_bytes)
        _put(file.fileno(), header, 0)
        _Rows(file.fileno(), sections).write(stream)
    return path


def _lay_out(
    tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], metadata: Mapping[str, str]
) -> tuple[bytes, dict[str, StoredTensor]]:
    """The header of a file with these tensors in this order, and where each starts."""
    entries: dict[str, Any] = {"__metadata__": {"laconic_store": VERSION, **metadata}}
    ends, names = [0], {dtype: name for name, dtype in TYPES.items()}
    for name, (dtype, shape) in tensors.items():
        ends.append(ends[-1] + math.prod(shape) * dtype.itemsize)
        entries[name] = {"dtype": names[dtype], "shape": shape, "data_offsets": ends[-2:]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    if len(text) > MAX_HEADER_BYTES:
        raise BadTable(f"a header of {len(text)} bytes is too long; leave the feature names out")
    text = text.ljust(-(-(len(text) + 8) // ALIGNMENT) * ALIGNMENT - 8)
    places = zip(tensors.items(), ends, strict=False)
    return len(text).to_bytes(8, "little") + text, {
        name: StoredTensor(*kind, 8 + len(text) + start) for (name, kind), start in places
    }


def _tensors(stream: RowStream, dtype: torch.dtype) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    m, n, k, like = stream.n_rows, stream.like.n_features, stream.n_nonzero, stream.like
    there = {"y": stream.has_target, "sample_weight": like.sample_weight is not None, "offset": like.offset is not None}
    rows: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        name: (torch.float64, (m,)) for name, is_there in there.items() if is_there
    }
    if k is None:
        return {**rows, "X": (dtype, (m, n))}
    return {**rows, "indptr": (torch.int64, (m + 1,)), "indices": (torch.int32, (k,)), "values": (dtype, (k,))}


def _metadata(stream: RowStream) -> dict[str, str]:
    known = {
        name: getattr(stream.like, name)
        for name in ("feature_names", "classes", "zero_based", "one_hot", "notes", "roles")
    }
    told = {name: json.dumps(value) for name, value in known.items() if value not in (None, {}, ())}
    return {"n_features": str(stream.like.n_features), "source": stream.source, **told}


class _Rows:
    """Writer of rows that keeps the position of the next row in each tensor."""

    def __init__(self, handle: int, sections: Mapping[str, StoredTensor]) -> None:
        self.handle, self.sections = handle, sections
        self.ends = {name: section.start for name, section in sections.items()}

    def write(self, stream: RowStream) -> None:
        n_rows, n_nonzero = 0, 0
        if stream.n_nonzero is not None:
            self._append("indptr", torch.zeros(1, dtype=torch.int64))
        for block in stream.blocks:
            check_finite(block.X, first_row=n_rows, names=stream.like.feature_names)
            n_rows += block.n_rows
            for name in ("y", "sample_weight", "offset"):
                if name in self.sections:
                    self._append(name, getattr(block, name))
            if stream.n_nonzero is None:
                self._append("X", block.X)
            else:
                self._append("indptr", torch.from_numpy(block.X.indptr[1:].astype(np.int64) + n_nonzero))
                self._append("indices", torch.from_numpy(block.X.indices))
                self._append("values", torch.from_numpy(block.X.data))
                n_nonzero += block.X.nnz
        if n_rows != stream.n_rows:
            raise wrong_count(n_rows, stream.n_rows)
        if n_nonzero != (stream.n_nonzero or 0):
            raise wrong_count(n_nonzero, stream.n_nonzero or 0, "values")

    def _append(self, name: str, values: torch.Tensor) -> None:
        section = self.sections[name]
        data = values.to(section.dtype).contiguous().flatten().view(torch.uint8).numpy()
        if self.ends[name] + len(data) > section.start + section.n_bytes:
            raise BadTable(f"the stream brought more rows or values than it announced ({name} is full)")
        _put(self.handle, data.data, self.ends[name])
        self.ends[name] += len(data)


def _put(handle: int, data: "bytes | memoryview", position: int) -> None:
    view = memoryview(data)
    while len(view):
        n_written = os.pwrite(handle, view, position)
        view, position = view[n_written:], position + n_written


def _reserve(handle: int, n_bytes: int) -> None:
    """Reserve the disk space now, so that a full disk is noticed before hours of work."""
    try:
        if hasattr(os, "posix_fallocate") and n_bytes:
            os.posix_fallocate(handle, 0, n_bytes)
        else:
            os.ftruncate(handle, n_bytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        os.ftruncate(handle, n_bytes)
