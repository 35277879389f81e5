"""Files that are there whole or not at all."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where there is no room."""


@contextmanager
def replacing(path: Path, mode: str = "w", encoding: str | None = "utf-8") -> Iterator[IO[Any]]:
    """A file beside `path` to write to, which takes its place at the end; after an error nothing has changed.

    mode  "w" for text, "wb" for bytes

    1. `.NAME.*.tmp` beside `path` takes what is written, and is flushed to the disk;
    2. it is renamed to `path`, and the folder is flushed.

    Only a kill -9 leaves the temporary file. What cannot be is an `OSError` of `path`, before anything is written.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with replacing(path) as file:
    ...     _ = file.write("all of it")
    >>> path.read_text()
    'all of it'
    """
    in_the_way = obstacle(path)
    if in_the_way is not None:
        raise in_the_way
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open(mode.replace("w", "x"), encoding=None if "b" in mode else encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        if error.filename != str(temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def obstacle(path: Path) -> OSError | None:
    """Why a file cannot take the place of `path`, as far as can be told before; None if it can.

    >>> obstacle(Path("/"))
    IsADirectoryError(21, 'it is a folder')
    """
    folder = path.absolute().parent
    if path.is_dir():
        return OSError(errno.EISDIR, "it is a folder", str(path))
    if path.exists() and not path.is_file():  # root may rename over /dev/null
        return OSError(errno.EEXIST, "it is a device or a pipe, and a file would take its place", str(path))
    if not folder.is_dir():
        return OSError(errno.ENOENT, f"there is no folder {path.parent}", str(path))
    if not os.access(folder, os.W_OK):
        return OSError(errno.EACCES, "the folder may not be written to", str(path))
    return None


def why_not(path: Path, error: OSError, n_bytes: int | None = None) -> str:
    """What to tell about a file, of so many bytes, that could not be written."""
    if error.errno in FULL:
        size = "" if n_bytes is None else f" for the {n_bytes:,} bytes"
        return f"no room{size} of {path} ({error.strerror}); free some or write elsewhere"
    return f"cannot write {path}: {error.strerror or error}"


def _sync(folder: Path) -> None:
    """Make a rename in this folder last through a power cut, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
