"""Files of rows: their formats, the part that each column plays, and their bytes, compressed or not."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import IO, Any, cast

from laconic.data.errors import BadTable, MalformedFile
from laconic.data.errors import Path as AnyPath
from laconic.options import ARGUMENT, option

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

    path: str = option(
        MISSING,
        "LIBSVM or CSV (also .gz, .bz2, .xz), Parquet, .npy, .npz, or a store made by `laconic convert`.",
        flag=ARGUMENT,
        metavar="DATA",
    )
    target: str | int | bool | None = option(
        None, "Column of y (CSV, Parquet), or the file or array of it (.npy, .npz).", metavar="NAME", parse=str
    )
    sample_weight: str | int | None = option(
        None, "Column of the rows' weights.", flag="--weight", metavar="NAME", parse=str
    )
    offset: str | int | None = option(None, "Column that is added to the margins.", metavar="NAME", parse=str)
    exposure: str | int | None = option(
        None, "Column of exposures; their logarithm is the offset.", metavar="NAME", parse=str
    )
    one_hot: OneHot = option(  # noqa: RUF009
        (), "Columns to turn into one column per category (CSV, Parquet).", metavar="NAME,..."
    )
    exclude: Sequence[str] = option((), "Columns to leave out (CSV, Parquet).", flag="--drop", metavar="NAME,...")
    n_features: int | None = option(None, "Columns of the matrix, if a LIBSVM file does not use the last ones.")
    dense: bool = option(False, "Take a LIBSVM file as a dense matrix.")
    zero_based: bool | None = option(None, "Whether a LIBSVM file counts columns from 0.", flag=None)


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
