"""Read, stream, convert and describe files of any format, told by their suffix or their first lines.

`stored` caches files larger than memory as stores in a folder of the user: written once, then mapped.
"""

import fcntl
import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from laconic.data import csv, libsvm, npy, parquet, store, store_writer
from laconic.data.errors import BadTable, MalformedFile, WrongWidth
from laconic.data.errors import Path as AnyPath
from laconic.data.files import NAMED, Source, as_source, format_of
from laconic.data.table import RowStream, Table, collect, rows_of, to_dtype
from laconic.errors import CorruptPayload, Option

STREAMS = {"csv": csv.stream_csv, "arff": csv.stream_csv, "parquet": parquet.stream_parquet}
_OF_ONE = {"dense": "LIBSVM", "zero_based": "LIBSVM", "header": "CSV", "delimiter": "CSV"}
"""Options that only one format has."""
_PLAIN = Source("")


@dataclass(frozen=True, slots=True)
class Description:
    """What a file's name, size and header tell about it.

    format      "libsvm", "csv", "arff", "parquet", "npy" or "store"
    n_bytes     size of the file
    n_rows      None where counting needs the whole file (LIBSVM, CSV, .npz)
    columns     names of the columns in the file, including the target; None where they have none
    n_columns   their number; for a store or .npy, the columns of X alone
    dtype       of X, where the file has one dtype for it
    is_sparse   None where the format does not tell
    """

    path: str
    format: str
    n_bytes: int
    n_rows: int | None = None
    n_columns: int | None = None
    columns: tuple[str, ...] | None = None
    dtype: str | None = None
    is_sparse: bool | None = None


def read(
    path: AnyPath | Source,
    *,
    columns: tuple[int, int] | None = None,
    dtype: "str | torch.dtype | None" = None,
    **parts: Any,
) -> Table:
    """Read a file of any format, told by its suffix or else by its first lines (`a9a`, `iris.data`, `rows.gz`).

    columns  (first, last): keep columns first to last - 1 of X, counted from 0; by default all
    dtype    "fp32", "bf16" or "fp64" of a dense X; by default that of the file if it has one, else fp32. A sparse X is
             float32.
    parts    roles of its columns and details of its format, as in `Source`: target, sample_weight, offset, exposure,
             one_hot, exclude, header, delimiter, n_features, dense, zero_based, limit

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny")
    >>> _ = path.write_text("1 1:0.5 4:1\\n0 2:2\\n")
    >>> read(path, columns=(1, 4)).X.toarray().tolist()
    [[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]]
    """
    source = as_source(path, parts)
    kind = check_source(source, once=True)
    if kind == "libsvm":
        try:
            table = libsvm.read_libsvm(source, columns=columns, dtype=dtype or "fp32")
        except MalformedFile as error:
            if Path(source.path).is_file():
                raise
            raise BadTable(f"{error}; a pipe is read as LIBSVM: save rows of another format to a file first") from error
    elif kind in NAMED:
        table = collect(STREAMS[kind](source, columns=columns, dtype=dtype or "fp32"))
    else:
        table = _whole(source, kind, columns, dtype)
    return table


def stream(path: AnyPath | Source, *, dtype: "str | torch.dtype" = "fp32", **parts: Any) -> RowStream:
    """All columns of a file as a stream of row blocks, as `convert` writes them. Arguments as for `read`."""
    source = as_source(path, parts)
    kind = check_source(source)
    if kind == "libsvm":
        return libsvm.stream_libsvm(source, dtype)
    if kind in NAMED:
        return STREAMS[kind](source, dtype=dtype)
    return rows_of(_whole(source, kind), Path(source.path).name)


def _whole(
    source: Source, kind: str, columns: tuple[int, int] | None = None, dtype: "str | torch.dtype | None" = None
) -> Table:
    """The table of a file that is mapped or read at once: .npy, .npz and stores."""
    table = (
        npy.read_npy(source, columns=columns, dtype=dtype) if kind == "npy" else store.open_store(source.path, columns)
    )
    if source.n_features not in (None, table.n_features):
        raise WrongWidth(source.path, table.n_features, source.n_features)
    if kind == "store" and dtype is not None and not table.is_sparse:
        table = replace(table, X=table.X.to(to_dtype(dtype)))
    return table


def convert(
    source: AnyPath, destination: AnyPath, *, dtype: "str | torch.dtype" = "bf16", **options: Any
) -> Description:
    """Convert any file to a store, a block of rows at a time, and describe the store; `options` as for `stream`.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("x,label\\n1,0\\n2,1\\n")
    >>> convert(folder / "a.csv", folder / "a.safetensors", target="label").n_rows
    2
    """
    wide = "fp64" if to_dtype(dtype) == torch.float64 else "fp32"
    return describe(store_writer.write_store(destination, stream(source, dtype=wide, **options), dtype))


def describe(path: AnyPath | Source) -> Description:
    """Describe a file from its name, size and header; nothing else is read."""
    source = as_source(path, {})
    kind = check_source(source)
    path, n_bytes = Path(source.path), os.stat(source.path).st_size
    if kind in ("csv", "arff"):
        names = csv.dialect(source).names
        return Description(str(path), kind, n_bytes, None, len(names), tuple(names), is_sparse=False)
    if kind == "parquet":
        n_rows, names = parquet.shape(path)
        return Description(str(path), kind, n_bytes, n_rows, len(names), tuple(names), is_sparse=False)
    if kind == "npy" and path.suffix.lower() == ".npy":
        n_rows, n_columns, dtype = npy.shape(path)
        return Description(str(path), kind, n_bytes, n_rows, n_columns, None, dtype, False)
    return _describe_store(path, n_bytes) if kind == "store" else Description(str(path), kind, n_bytes)


def _describe_store(path: Path, n_bytes: int) -> Description:
    header = store.read_header(path)
    values = header.sections.get("X") or header.sections["values"]
    dtype, is_sparse = str(values.dtype).removeprefix("torch."), "values" in header.sections
    shape = header.n_rows, header.n_features, header.told("feature_names")
    return Description(str(path), "store", n_bytes, *shape, dtype, is_sparse)


def check_source(source: Source, *, once: bool = False) -> str:
    """The format of a file; raises `BadTable` if it cannot be read or has an option that does not apply to the format.

    once  the file is read only once: a pipe is allowed for LIBSVM
    """
    file, kind = Path(source.path), format_of(source)
    if not file.exists() and source.path != "-":
        raise BadTable(f"there is no file {file}")
    if file.is_dir():
        raise BadTable(f"{file} is a folder; give a file")
    named = ("target", "sample_weight", "offset", "exposure")[4 * (kind == "npy") :]
    needless = () if kind in NAMED else ("one_hot", "exclude", *named)
    needless = tuple(name for name in needless if getattr(source, name) not in (None, False, (), [], {}))
    if not file.is_file() and (kind != "libsvm" or needless or source.path == "-" or not once):
        raise BadTable(f"{file} is a pipe or a device, and has to be read more than once; save it to a file first")
    if source.offset is not None and source.exposure is not None:
        raise BadTable("give an offset or an exposure, not both: the offset is the logarithm of the exposure")
    for name, own in _OF_ONE.items():
        if kind != own.lower() and getattr(source, name) != getattr(_PLAIN, name):
            raise BadTable(f"{file}: ", Option(name), f" is for {own} files; this is {kind}")
    for name in needless:
        what: list[str | Option] = [f" is for files with named columns; {kind} has its own place for that"]
        what += ["; if it is CSV, give ", Option("delimiter", ...)] if kind == "libsvm" else []
        raise BadTable(f"{file}: ", Option(name), *what)
    return kind


def stored(source: Source, dtype: str) -> Source | RowStream:
    """The rows of a file with named columns as a stream; if X exceeds `Limits.memory_bytes`, a cached store of them.

    1. an existing store for the same file (path, size and time of change), column roles and dtype is used, if X is as
       large as that;
    2. otherwise, if X would be too large, the rows are streamed to a store, renamed into place when complete. A lock
       lets one process write while others wait and then use its store.

    dtype  "fp32", "fp64" or "bf16" of X
    """
    path, parts = Path(source.path).resolve(), asdict(source)
    for name in ("limit", "cache", "path"):
        del parts[name]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "laconic"
    folder = folder if source.cache is None else Path(source.cache)
    about = path.stat() if path.is_file() else None
    digest = hashlib.blake2b(json.dumps([store.VERSION, str(path), dtype, parts]).encode(), digest_size=8).hexdigest()
    kept_at = folder / f"{path.name}-{digest}.safetensors"
    state = "" if about is None else f"{path}, {about.st_size} bytes, changed at {about.st_mtime_ns} ns"
    kept = Source(str(kept_at), target=False if source.target is False else None, limit=source.limit)
    if about is not None and _bytes_kept(kept_at, state) > source.limits.memory_bytes:
        return kept
    rows = STREAMS[check_source(source)](source, dtype=dtype)
    n_bytes = rows.n_rows * rows.like.n_features * to_dtype(dtype).itemsize
    if n_bytes <= source.limits.memory_bytes:
        return rows
    _make(folder)
    with (folder / f".{kept_at.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _bytes_kept(kept_at, state):
            note = f"X takes {n_bytes:,} bytes, more than memory_bytes allows: it is mapped from {kept_at}"
            like = replace(rows.like, notes=(*rows.like.notes, f"{source.path}: {note}"))
            store_writer.write_store(kept_at, replace(rows, like=like, source=state), dtype)
    return kept


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        what = f"there can be no folder {folder} ({error.strerror}) for a store of what is larger than memory; give "
        raise BadTable(what, Option("cache", ...), ", or more memory with ", Option("limit", ...)) from error


def _bytes_kept(path: Path, state: str) -> int:
    """The bytes of X in a store that was made of the file in this state; 0 if there is none or it is damaged."""
    try:
        header = store.read_header(path)
    except (OSError, CorruptPayload):
        return 0
    made = header.metadata.get("source") == state and "X" in header.sections
    return header.sections["X"].n_bytes if made else 0
