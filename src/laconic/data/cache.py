"""Stores of files that are larger than memory, in a folder of the user's: written once, then mapped."""

import fcntl
import hashlib
import json
import os
from dataclasses import asdict, replace
from pathlib import Path

from laconic.data.errors import BadTable
from laconic.data.files import Source
from laconic.data.read import STREAMS, check_source
from laconic.data.store import VERSION, read_header
from laconic.data.store_writer import write_store
from laconic.data.table import RowStream, to_dtype
from laconic.errors import CorruptPayload, Option


def stored(source: Source, dtype: str) -> Source | RowStream:
    """The rows of a file with named columns; where X is larger than `Limits.memory_bytes`, a store of them.

    1. a store of the same file (its size and time of change), parts of columns and dtype is taken as it is;
    2. otherwise the rows are streamed, if X would be too large, to a store, which is renamed to its name when it is
       whole. A lock lets one process write, and others wait and take what it wrote.

    dtype  "fp32", "fp64" or "bf16" of X
    """
    path, parts = Path(source.path).resolve(), asdict(source)
    for name in ("limit", "cache", "path"):
        del parts[name]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "laconic"
    folder = folder if source.cache is None else Path(source.cache)
    about = path.stat() if path.is_file() else None
    digest = hashlib.blake2b(json.dumps([VERSION, str(path), dtype, parts]).encode(), digest_size=8).hexdigest()
    store = folder / f"{path.name}-{digest}.safetensors"
    state = "" if about is None else f"{path}, {about.st_size} bytes, changed at {about.st_mtime_ns} ns"
    kept = Source(str(store), target=False if source.target is False else None)
    if about is not None and store.is_file() and _source_of(store) == state:
        return kept
    rows = STREAMS[check_source(source)](source, dtype=dtype)
    n_bytes = rows.n_rows * rows.like.n_features * to_dtype(dtype).itemsize
    if n_bytes <= source.limits.memory_bytes:
        return rows
    _make(folder)
    with (folder / f".{store.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _source_of(store) != state:
            note = f"X takes {n_bytes:,} bytes, more than memory_bytes allows: it is mapped from {store}"
            like = replace(rows.like, notes=(*rows.like.notes, f"{source.path}: {note}"))
            write_store(store, replace(rows, like=like, source=state), dtype)
    return kept


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        what = f"there can be no folder {folder} ({error.strerror}) for a store of what is larger than memory; give "
        raise BadTable(what, Option("cache", ...), ", or more memory with ", Option("limit", ...)) from error


def _source_of(store: Path) -> str | None:
    """What a store says that it was made of; None where there is no store, or a damaged one."""
    try:
        return read_header(store).metadata.get("source")
    except (OSError, CorruptPayload):
        return None
