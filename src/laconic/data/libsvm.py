"""LIBSVM text (`label index:value ...`), read in chunks of some MiB."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch

from laconic.data.errors import MalformedFile, WrongWidth
from laconic.data.errors import Path as AnyPath
from laconic.data.files import Source, as_source, open_bytes
from laconic.data.table import RowStream, Table, as_target, column_block, rows_at_once, to_dense, to_dtype
from laconic.errors import Option
from laconic.extras import require

if TYPE_CHECKING:
    from laconic.kernels.cpu.libsvm import Lines

Array = np.ndarray
CHUNK_BYTES = 8 << 20
_TO_THE_END = 2**62


@dataclass(frozen=True, slots=True)
class Scan:
    """Counts from a first pass over a LIBSVM file.

    n_rows, n_nonzero  rows and stored values
    n_features         columns, up to the last one used
    zero_based         whether the first column has index 0
    column_counts      (n_features,) int64, stored values per column, for `column_cuts`; None if not asked for
    """

    n_rows: int
    n_nonzero: int
    n_features: int
    zero_based: bool
    column_counts: Array | None = None


def read_libsvm(
    path: AnyPath | Source,
    *,
    columns: tuple[int, int] | None = None,
    dtype: "str | torch.dtype" = "fp32",
    **parts: Any,
) -> Table:
    """Read a LIBSVM file, in one pass.

    columns  (first, last): keep columns first to last - 1, counted from 0; by default all
    dtype    of a dense X
    parts    n_features, zero_based, dense and limit, as in `Source`

    Values are what Python's float() reads, rounded to float32. Comments (`#`), blank lines and `qid:` are skipped;
    lines with several labels, unsorted indices or anything else raise `MalformedFile`.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "two.svm")
    >>> _ = path.write_text("+1 1:0.5 3:2  # a comment\\n-1 2:1e-1\\n")
    >>> table = read_libsvm(path)
    >>> table.y.tolist(), table.X.toarray().tolist()
    ([1, -1], [[0.5, 0.0, 2.0], [0.0, 0.10000000149011612, 0.0]])
    """
    source = as_source(path, parts)
    low, high = columns or (0, _TO_THE_END)
    pieces, smallest, largest = [], _TO_THE_END, -1
    for piece in _pieces(source, low, high):
        pieces.append(piece)
        smallest, largest = min(smallest, piece.smallest), max(largest, piece.largest)
    base = _base(source, smallest)
    n = _width(source, largest + 1 - base)
    low, high = column_block(columns, n, "; ", Option("n_features", ...), " widens the matrix")
    labels = np.concatenate([np.empty(0), *(piece.labels for piece in pieces)])
    X = _csr(pieces, low, high, base)
    return Table(
        to_dense(X, to_dtype(dtype)) if source.dense else X,
        as_target(labels, "the label"),
        columns=(low, high),
        n_features=n,
        zero_based=base == 0,
    )


def scan_libsvm(path: AnyPath | Source, *, count_columns: bool = False, **parts: Any) -> Scan:
    """Count rows, columns and values and check every line, storing nothing. `parts` are as for `read_libsvm`."""
    source = as_source(path, parts)
    n_rows, n_nonzero, smallest, largest = 0, 0, _TO_THE_END, -1
    counts = np.zeros(0, np.int64)
    for piece in _pieces(source, 0, _TO_THE_END):
        n_rows, n_nonzero = n_rows + len(piece.labels), n_nonzero + len(piece.values)
        smallest, largest = min(smallest, piece.smallest), max(largest, piece.largest)
        if count_columns:
            found = np.bincount(piece.indices, minlength=len(counts))
            found[: len(counts)] += counts
            counts = found
    base = _base(source, smallest)
    n = max(0, largest + 1 - base)
    return Scan(n_rows, n_nonzero, n, base == 0, counts[len(counts) - n :] if count_columns else None)


def stream_libsvm(source: Source, dtype: "str | torch.dtype" = "fp32") -> RowStream:
    """A LIBSVM file as a stream of row blocks with all columns: a first pass counts, a second one reads."""
    scan = scan_libsvm(source)
    X = _csr([], 0, _width(source, scan.n_features), 0)
    X = to_dense(X, to_dtype(dtype)) if source.dense else X
    like = Table(X, torch.empty(0, dtype=torch.float64), zero_based=scan.zero_based)
    n_nonzero, name = None if source.dense else scan.n_nonzero, Path(source.path).name
    return RowStream(_blocks(source, like), scan.n_rows, like, n_nonzero, source=name)


def _blocks(source: Source, like: Table) -> Iterator[Table]:
    """One table per piece of the file; dense ones of at most `rows_at_once` rows."""
    for piece in _pieces(source, 0, _TO_THE_END):
        X, y = _csr([piece], 0, like.n_features, int(not like.zero_based)), torch.from_numpy(piece.labels)
        if not source.dense:
            yield replace(like, X=X, y=y)
            continue
        step = rows_at_once(like.n_features)
        for first in range(0, len(y), step):
            rows = slice(first, first + step)
            yield replace(like, X=to_dense(X[rows], like.X.dtype), y=y[rows])


def _base(source: Source, smallest: int) -> int:
    path, zero_based = source.path, source.zero_based
    if zero_based is False and smallest == 0:
        what = "has index 0, and columns were to count from 1, as they do for a model that was fitted to such a file"
        raise MalformedFile(path, what)
    return int(smallest > 0) if zero_based is None else int(not zero_based)


def _width(source: Source, used: int) -> int:
    used, n_features = max(0, used), source.n_features
    if n_features is not None and n_features < used:
        raise WrongWidth(source.path, used, n_features)
    return used if n_features is None else n_features


def _csr(pieces: "list[Lines]", low: int, high: int, base: int) -> Any:
    """Columns low to high - 1 of all pieces, whose indices run from low to high: the base was not known when parsed."""
    csr_array = require("scipy.sparse", for_="reading LIBSVM", extra="files").csr_array

    indices = np.concatenate([np.empty(0, np.int32), *(piece.indices for piece in pieces)])
    indptr = np.zeros(1 + sum(len(piece.labels) for piece in pieces), np.int64)
    row, n_before = 1, 0
    for piece in pieces:
        indptr[row : row + len(piece.labels)] = piece.row_ends + n_before
        row, n_before = row + len(piece.labels), n_before + len(piece.values)
    values = np.concatenate([np.empty(0, np.float32), *(piece.values for piece in pieces)])
    indices -= np.int32(low + base)
    inside = (indices >= 0) & (indices < high - low)
    if not inside.all():
        indptr = np.concatenate([[0], np.cumsum(inside)])[indptr]
        indices, values = indices[inside], values[inside]
    return csr_array((values, indices, indptr), shape=(len(indptr) - 1, high - low))


def _pieces(source: Source, low: int, high: int) -> "Iterator[Lines]":
    """Parsed pieces of whole lines, in order, every number in them read exactly."""
    from laconic.kernels.cpu.libsvm import GOOD, parse_lines

    n_lines, path, limits = 0, Path(source.path), source.limits
    with open_bytes(path, limits) as file:
        for buffer, size in _whole_lines(file, limits.line_bytes):
            if not size:
                limits.check("line_bytes", limits.line_bytes + 1, path, f"line {n_lines + 1} is longer")
            pieces = parse_lines(np.frombuffer(buffer, np.uint8), _cuts(buffer, size), low, high)
            for piece in pieces:
                _parse_exactly(path, buffer, piece, n_lines)
                if piece.error != GOOD:
                    raise _malformed(path, buffer, piece.position, n_lines, piece.error)
                limits.check("features", piece.largest, path, f"it has a column {piece.largest}, more")
                yield piece
            n_lines += sum(piece.n_lines for piece in pieces)


def _whole_lines(file: IO[bytes], longest: int) -> Iterator[tuple[bytearray, int]]:
    """Pairs (buffer, size): buffer[:size] is whole lines, valid until the next pair. Size 0: a line is too long."""
    buffer, n_held = bytearray(CHUNK_BYTES), 0
    while True:
        n_read = file.readinto(memoryview(buffer)[n_held:])  # type: ignore[attr-defined]
        n_held += n_read
        if n_read and n_held < len(buffer):
            continue
        if not n_read and n_held and buffer[n_held - 1] != 10:
            buffer[n_held : n_held + 1] = b"\n"
            n_held += 1
        size = buffer.rfind(b"\n", 0, n_held) + 1
        if size or n_held >= longest:
            yield buffer, size
        if not n_read:
            return
        rest = buffer[size:n_held]
        buffer = buffer if size else bytearray(2 * len(buffer))
        buffer[: len(rest)] = rest
        n_held = len(rest)


def _cuts(buffer: bytearray, size: int) -> list[int]:
    """Boundaries of pieces of whole lines, one piece per thread."""
    n_pieces = max(1, min(torch.get_num_threads(), size >> 18))
    cuts = {0, size} | {buffer.find(b"\n", size * i // n_pieces, size) + 1 for i in range(1, n_pieces)}
    return sorted(cuts)


def _parse_exactly(path: Path, buffer: bytearray, piece: "Lines", n_lines: int) -> None:
    """Read the numbers that the kernel could not read exactly; the first that is no number raises `MalformedFile`.

    A line that is malformed further on has no row: its numbers are checked, and the slice assignments drop them.
    """
    from laconic.kernels.cpu.libsvm import DROPPED

    for slot, start in zip(*(array.tolist() for array in piece.odd), strict=True):
        value = _exact(path, buffer, start, n_lines, is_label=slot < 0)
        if slot < 0:
            piece.labels[-1 - slot : -slot] = value
        elif slot != DROPPED:
            piece.values[slot : slot + 1] = value


def _exact(path: Path, buffer: bytearray, start: int, n_lines: int, *, is_label: bool) -> float:
    token, what = _token(buffer, start), "a label" if is_label else "a number"
    try:
        value = math.nan if "_" in token else float(token)
        with np.errstate(over="ignore"):
            is_finite = math.isfinite(value if is_label else np.float32(value))
        if is_finite:
            return value
        what += " that is finite in float32"
    except ValueError:
        if is_label and "," in token:
            what = "one label per line (split the file into one per label)"
    line, column = _place(buffer, start, n_lines)
    raise MalformedFile(path, f"expected {what}, found {token!r}", line=line, column=column)


def _malformed(path: Path, buffer: bytearray, position: int, n_lines: int, error: int) -> MalformedFile:
    from laconic.kernels.cpu.libsvm import MAX_INDEX, TOO_LARGE, UNSORTED

    token = _token(buffer, position)
    what = {
        UNSORTED: f"expected an index above the one before it, found {token!r}",
        TOO_LARGE: f"expected an index up to {MAX_INDEX}, found {token!r}",
    }.get(error, f"expected index:value, found {token!r}")
    line, column = _place(buffer, position, n_lines)
    return MalformedFile(path, what, line=line, column=column)


def _token(buffer: bytearray, start: int) -> str:
    line = bytes(buffer[start : buffer.find(b"\n", start)]).split(b"#")[0]
    return (line.split(None, 1) or [b""])[0][:80].decode("utf-8", "replace") if line[:1].strip() else ""


def _place(buffer: bytearray, position: int, n_lines: int) -> tuple[int, int]:
    """Line and column of a byte, both counted from 1."""
    return n_lines + buffer.count(b"\n", 0, position) + 1, position - buffer.rfind(b"\n", 0, position)
