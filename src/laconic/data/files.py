"""Files of rows: their formats, the part that each column plays, and their bytes, compressed or not."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from laconic.data.errors import BadTable, MalformedFile
from laconic.data.errors import Path as AnyPath

FORMATS = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "npy",
    ".npz": "npy",
    ".safetensors": "store",
}
"""By suffix; anything else is LIBSVM."""
NAMED = ("csv", "parquet")
"""Formats whose columns have names."""
OneHot = Sequence[str] | Mapping[str, Sequence[str]]
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@dataclass(frozen=True, slots=True)
class Source:
    """A file, and the part that each of its columns plays: what `read` and `stream` take. All are JSON values.

    target         column of y in a CSV or Parquet file, by name or by number (from 0; negative from the end); for .npy
                   the file beside it, for .npz the name of the array; False where there is none, or none is needed
    sample_weight  the same for the rows' weights, and
    offset         for what is added to the margins; or
    exposure       for that of which the logarithm is the offset
    one_hot        columns of CSV or Parquet to spread out into one per category (`Area=A`); a mapping from column to
                   categories fixes these, which new data for an old model needs
    exclude        columns of CSV or Parquet to leave out
    n_features     columns of the whole matrix, where a LIBSVM file does not use them all
    dense          a LIBSVM file as a dense X
    zero_based     whether a LIBSVM file counts columns from 0; None finds out: it does where any index is 0
    """

    path: str
    target: str | int | bool | None = None
    sample_weight: str | int | None = None
    offset: str | int | None = None
    exposure: str | int | None = None
    one_hot: OneHot = ()
    exclude: Sequence[str] = ()
    n_features: int | None = None
    dense: bool = False
    zero_based: bool | None = None


def format_of(path: AnyPath) -> str:
    """The format a file's name promises; a suffix of a compression does not count.

    >>> format_of("a9a.xz"), format_of("train.csv.gz"), format_of("epsilon.safetensors"), format_of("X.NPY")
    ('libsvm', 'csv', 'store', 'npy')
    """
    path = Path(path)
    packed = path.suffix.lower() in _OPENERS
    suffix = (path.with_suffix("") if packed else path).suffix.lower()
    kind = FORMATS.get(suffix, "libsvm")
    if packed and kind in ("parquet", "npy", "store"):
        raise BadTable(f"{path}: a compressed {suffix} cannot be read; unpack it first")
    return kind


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
