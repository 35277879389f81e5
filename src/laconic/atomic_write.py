"""Write a file atomically: in full or not at all."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from laconic.errors import LaconicError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk."""


class NotWritten(LaconicError, OSError):
    """A file that could not be written; what was there before is still there."""


@contextmanager
def atomic_write(
    path: Path, mode: str = "w", *, encoding: str | None = "utf-8", n_bytes: int | None = None
) -> Iterator[IO[Any]]:
    """Open a temporary file that replaces `path` on success; an error leaves `path` unchanged.

    mode     "w" for text, "wb" for bytes
    n_bytes  size of the file, if known, for the message about a full disk

    1. `.NAME.*.tmp` beside `path` takes what is written, and is flushed to the disk;
    2. it is renamed to `path`, and the folder is flushed.

    Raises `NotWritten`, which is an OSError, if `path` cannot be replaced (before anything is written) or the disk is
    full. Only a kill -9 leaves the temporary file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic_write(path) as file:
    ...     _ = file.write("all of it")
    >>> path.read_text()
    'all of it'
    """
    check_writable(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open(mode.replace("w", "x"), encoding=None if "b" in mode else encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        if hasattr(os, "O_DIRECTORY"):  # so that the rename survives a power cut
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        if error.filename != str(temporary) and error.errno not in FULL:
            raise
        raise not_written(path, error, n_bytes) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_writable(path: Path, *read: str | Path | None) -> None:
    """Raise `NotWritten` if `path` cannot be replaced, as far as can be told before writing.

    read  input files, which `path` must not replace

    >>> check_writable(Path("/"))
    Traceback (most recent call last):
    laconic.atomic_write.NotWritten: cannot write /: it is a folder
    """
    folder = path.absolute().parent
    if path.is_dir():
        raise NotWritten(f"cannot write {path}: it is a folder")
    for one in read if path.exists() else ():
        if one and os.path.exists(one) and path.samefile(one):
            raise NotWritten(f"cannot write {path}: it is a file that is read for it; give another name")
    if path.exists() and not path.is_file():  # root may rename over /dev/null
        raise NotWritten(f"cannot write {path}: it is a device or a pipe, which a file would replace")
    if not folder.is_dir():
        raise NotWritten(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(folder, os.W_OK):
        raise NotWritten(f"cannot write {path}: its folder is not writable")


def not_written(path: Path, error: OSError, n_bytes: int | None = None) -> NotWritten:
    """The error for a file of `n_bytes` that could not be written."""
    if error.errno in FULL:
        size = "" if n_bytes is None else f" for the {n_bytes:,} bytes"
        return NotWritten(f"no room{size} of {path} ({error.strerror}); free some or write elsewhere")
    return NotWritten(f"cannot write {path}: {error.strerror or error}")
