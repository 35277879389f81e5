"""Data files: their formats, the roles of their columns, limits on their size, and opening them."""

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import IO, Any, cast

from laconic.data.errors import BadTable, MalformedFile
from laconic.data.errors import Path as AnyPath
from laconic.errors import InvalidOption, Option
from laconic.options import ARGUMENT, option

FORMATS = {
    ".csv": "csv",
    ".arff": "arff",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "npy",
    ".npz": "npy",
    ".safetensors": "store",
}
"""Formats by suffix; a file with another suffix is ARFF, CSV or LIBSVM, told by its first lines."""
NAMED = ("csv", "arff", "parquet")
"""Formats with named columns."""
OneHot = Sequence[str] | Mapping[str, Sequence[str]]
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_MAGIC = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
_PAIR = re.compile(rb"\s*\S+\s+\w+:[^\s,;|]+(\s|$)")
"""The beginning of a LIBSVM line: a label and a pair."""
SNIFFED_BYTES = 1 << 16
SMALL_BYTES = 1 << 28
"""Bytes that any compressed file may unpack to, however small it is."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper limits for a file, so that a small malicious or damaged one cannot take all memory.

    line_bytes      length of a line of text
    unpacked_ratio  unpacked size of a compressed file over its own size, once it unpacks to more than 256 MiB
    columns         of CSV, ARFF and Parquet
    features        largest column index of LIBSVM
    memory_bytes    of a dense X of CSV, ARFF or Parquet in memory; a larger one is fitted from a store in a cache
    """

    line_bytes: int = 1 << 26
    unpacked_ratio: int = 1000
    columns: int = 1 << 18
    features: int = 1 << 27
    memory_bytes: int = 1 << 28

    def check(self, name: str, found: int, path: AnyPath, what: str) -> None:
        """Raise `BadTable` if `found` exceeds the limit called `name`; `what` begins the message."""
        most = getattr(self, name)
        if found > most:
            allowed = f"{path}: {what} than {name}={most}; if the file is as it should be, give "
            raise BadTable(allowed, Option("limit", (f"{name}={max(found, 2 * most)}",)))


@dataclass(frozen=True, slots=True)
class Source:
    """A file and the roles of its columns, as `read` and `stream` take it. All fields are JSON values.

    Estimators take one as X, too: `fit(Source("rows.csv", one_hot=["area"]), y="claims")`.

    target         column of y in a file with named columns, by name or by number (from 0; negative from the end); for
                   .npy the file beside it, for .npz the name of the array; False where there is none, or none is needed
    sample_weight  the same for the weights of the rows
    offset         the same for a term added to the margins
    exposure       the same for a column whose logarithm is the offset
    one_hot        columns to turn into one per category (`Area=A`), besides those of a categorical type; a mapping from
                   column to categories fixes the categories, as new data for a fitted model needs
    exclude        columns to leave out
    header         whether the first line of a CSV file holds column names; "auto" infers it from the first two lines
    delimiter      of CSV fields: one character, or "tab"; None infers , ; tab or | from the first line
    n_features     columns of the whole matrix, where a LIBSVM file does not use them all
    dense          read a LIBSVM file as a dense X
    zero_based     whether a LIBSVM file counts columns from 0; None: it does if any index is 0
    limit          NAME=NUMBER for each of `Limits` that is not the default
    cache          folder for stores of files that are larger than `Limits.memory_bytes`; None for
                   $XDG_CACHE_HOME/laconic, or ~/.cache/laconic
    """

    path: str = option(
        MISSING,
        "LIBSVM, CSV or ARFF (also .gz, .bz2, .xz), Parquet, .npy, .npz, or a store made by `laconic convert`.",
        flag=ARGUMENT,
        metavar="DATA",
    )
    target: str | int | bool | None = option(
        None, "Column of y (CSV, ARFF, Parquet), or the file or array of it (.npy, .npz).", metavar="NAME", parse=str
    )
    sample_weight: str | int | None = option(
        None, "Column of the rows' weights.", flag="--weight", metavar="NAME", parse=str
    )
    offset: str | int | None = option(None, "Column that is added to the margins.", metavar="NAME", parse=str)
    exposure: str | int | None = option(
        None, "Column of exposures; their logarithm is the offset.", metavar="NAME", parse=str
    )
    one_hot: OneHot = option(  # noqa: RUF009
        (), "Columns to turn into one column per category; those of a categorical type are.", metavar="NAME,..."
    )
    exclude: Sequence[str] = option(
        (), "Columns to leave out; a name with a comma goes in quotes, as in CSV.", flag="--drop", metavar="NAME,..."
    )
    header: bool | str = option(
        "auto", "Whether a CSV file begins with names of columns; told by itself.", flag="--header/--no-header"
    )
    delimiter: str | None = option(None, "What separates fields of CSV, such as ; or tab; told by itself.")
    n_features: int | None = option(None, "Columns of the matrix, if a LIBSVM file does not use the last ones.")
    dense: bool = option(False, "Take a LIBSVM file as a dense matrix.")
    zero_based: bool | None = option(None, "Whether a LIBSVM file counts columns from 0.", flag=None)
    limit: Sequence[str] = option(
        (), "Allow a file to ask for more, such as line_bytes=1000000000.", metavar="NAME=NUMBER"
    )
    cache: str | None = option(None, "Folder for stores of files larger than memory_bytes.", metavar="FOLDER")

    def __post_init__(self) -> None:
        for name in ("one_hot", "exclude", "limit"):
            if isinstance(value := getattr(self, name), str):  # one name, not a sequence of letters
                object.__setattr__(self, name, (value,))
        _ = self.limits  # which raises for one that is none, whatever becomes of the file

    @property
    def limits(self) -> Limits:
        """The limits for this file: the defaults, overridden by `limit`.

        >>> Source("rows.csv", limit="columns=5").limits.columns
        5
        """
        known, asked = Limits.__dataclass_fields__, {}
        for text in self.limit:
            name, _, number = str(text).partition("=")
            if name not in known or not (number.isdecimal() and len(number) < 20):
                raise InvalidOption(Option("limit"), f" takes NAME=NUMBER, of {', '.join(known)}; got {text!r}")
            asked[name] = int(number)
        return Limits(**asked)


def as_source(path: AnyPath | Source, parts: Mapping[str, Any]) -> Source:
    """A source unchanged; a path as a source with the options in `parts`."""
    return path if isinstance(path, Source) else Source(os.fspath(path), **parts)


def format_of(path: AnyPath | Source) -> str:
    """The format of a file, by its suffix or else by its first lines; compression suffixes are ignored.

    A file without a known suffix is CSV if a header or a delimiter is given.

    >>> format_of("a9a.xz"), format_of("train.csv.gz"), format_of("epsilon.safetensors"), format_of("X.NPY")
    ('libsvm', 'csv', 'store', 'npy')
    """
    lines = isinstance(path, Source) and (path.delimiter is not None or path.header != "auto")
    path = Path(path.path if isinstance(path, Source) else path)
    packed = path.suffix.lower() in _OPENERS
    suffix = (path.with_suffix("") if packed else path).suffix.lower()
    kind = FORMATS.get(suffix)
    if packed and kind in ("parquet", "npy", "store"):
        raise BadTable(f"{path}: a compressed {suffix} cannot be read; unpack it first")
    return kind or ("csv" if lines else _format_of_text(path) if path.is_file() else "libsvm")


def _format_of_text(path: Path) -> str:
    with open_bytes(path) as file:
        lines = file.read(SNIFFED_BYTES).lstrip(b"\xef\xbb\xbf").splitlines()
    line = next((line for line in lines if line.strip() and line.lstrip()[:1] not in b"#%"), b"")
    if line.lstrip().lower().startswith((b"@relation", b"@attribute")):
        return "arff"
    return "csv" if any(c in line for c in b",;\t|") and not _PAIR.match(line) else "libsvm"


@contextmanager
def open_bytes(path: Path, limits: Limits | None = None) -> Iterator[IO[bytes]]:
    """The file opened for reading, decompressed if its suffix or first bytes are those of .gz, .bz2 or .xz.

    Raises `MalformedFile` if the compressed stream is damaged, `BadTable` if it holds more than the limits allow.
    """
    with path.open("rb") as file:
        opener = _OPENERS.get(path.suffix.lower())
        for magic, one in _MAGIC.items() if opener is None else ():
            opener = one if file.peek(8).startswith(magic) else opener
        try:
            if opener is None:
                yield file
            else:
                with opener(file) as unpacked:
                    yield cast(IO[bytes], io.BufferedReader(_Unpacked(path, file, unpacked, limits or Limits())))
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise MalformedFile(path, f"the compressed stream is damaged: {error}") from error
        except OSError as error:
            if opener and error.errno is None:
                raise MalformedFile(path, f"the compressed stream is damaged: {error}") from error
            raise


class _Unpacked(io.RawIOBase):
    """A decompressed stream that counts its bytes against the limits."""

    def __init__(self, path: Path, packed: IO[bytes], unpacked: Any, limits: Limits) -> None:
        self.path, self.unpacked, self.limits, self.n_read = path, unpacked, limits, 0
        about = os.fstat(packed.fileno())
        self.n_bytes = about.st_size if stat.S_ISREG(about.st_mode) else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n = int(self.unpacked.readinto(buffer))
        self.n_read += n
        if self.n_bytes is not None and self.n_read > SMALL_BYTES:
            ratio = -(-self.n_read // max(1, self.n_bytes))
            self.limits.check("unpacked_ratio", ratio, self.path, "it unpacks to more times its size")
        return n
