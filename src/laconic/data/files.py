"""Bytes of a file, compressed or not."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from laconic.data.errors import MalformedFile

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def suffix(path: Path) -> str:
    """The suffix that names the format, below that of a compression.

    >>> suffix(Path("a.csv.gz")), suffix(Path("a9a.xz")), suffix(Path("X.NPY"))
    ('.csv', '', '.npy')
    """
    inner = path.with_suffix("") if path.suffix.lower() in _OPENERS else path
    return inner.suffix.lower()


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked on the way if its suffix is .gz, .bz2 or .xz; a damaged stream is `MalformedFile`."""
    opener = _OPENERS.get(path.suffix.lower())
    try:
        with opener(path, "rb") if opener else path.open("rb", buffering=0) as file:
            yield cast(IO[bytes], file)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise MalformedFile(path, f"the compressed stream is damaged: {error}") from error
    except OSError as error:
        if opener and error.errno is None:
            raise MalformedFile(path, f"the compressed stream is damaged: {error}") from error
        raise
