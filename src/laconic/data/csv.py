"""CSV and ARFF (CSV after a header of its own), read by Arrow in blocks."""

import atexit
import csv
import dataclasses
import gc
import re
import time
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from operator import gt
from pathlib import Path
from threading import Lock
from typing import IO, Any
from weakref import WeakSet

import torch

from laconic.data import arff, arrow
from laconic.data.errors import MalformedFile, NotNumeric
from laconic.data.files import Limits, Source, format_of, open_bytes
from laconic.data.table import RowStream, column_block
from laconic.errors import InvalidOption, Option
from laconic.extras import require

BLOCK_BYTES, LINES, MOST_BYTES = 2 << 20, 64, 1 << 26
"""Bytes of a block: at least BLOCK_BYTES, and LINES lines as long as the first up to MOST_BYTES."""
_GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_NUMBER, _FLAG = "a number", "true or false"
_DELIMITERS = {"tab": "\t", "\\t": "\t"}
_QUOTED = re.compile(r'(?<![^,;\t|])"(?:[^"]|"")*("|$)')
"""A field in quotes, in a line whose delimiter is not known yet."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the lines of a file are written.

    names      of the columns; the first line of the file if `header`
    delimiter  separates fields
    n_skipped  lines before the data: the header of ARFF, whose data are read as the CSV that `arff` makes of them
    n_bytes    of a block to read, so that it holds many lines of a wide file
    nominal    columns that ARFF declares categorical
    notes      for the user, a sentence each
    """

    names: list[str]
    delimiter: str
    header: bool = False
    n_skipped: int = 0
    n_bytes: int = 0
    nominal: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def stream_csv(
    source: Source, *, columns: tuple[int, int] | None = None, dtype: "str | torch.dtype" = "fp32"
) -> RowStream:
    """The rows of a CSV or ARFF file in blocks; see `Source` for the roles of its columns.

    columns  (first, last): keep features first to last - 1, counted after one-hot encoding

    The file is read twice: once to count its rows, once to read them.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "claims.csv")
    >>> _ = path.write_text("age,area,claims\\n30,A,0\\n40,B,2\\n")
    >>> [block] = stream_csv(Source(str(path), target="claims", one_hot=["area"])).blocks
    >>> block.X.tolist(), block.y.tolist()
    ([[30.0, 1.0, 0.0], [40.0, 0.0, 1.0]], [0.0, 2.0])
    """
    how = dialect(source)
    with _opened(source, how) as reader:
        names, found = list(reader.schema.names), list(reader.schema.types)
    schema, kinds = _schema(source, how, names, found)
    block = column_block(columns, len(schema.features))
    with _opened(source, how, kinds, schema.sources((0, 0)) or names[:1]) as reader:
        n_rows = sum(map(len, reader))
    batches = _opened(source, how, kinds, schema.sources(block))
    return arrow.rows(source, batches, schema, block, dtype, n_rows, how.notes)


def dialect(source: Source) -> Dialect:
    """The dialect of a file, as `source` gives it or else inferred from its first two lines.

    Without a header, columns are named c0, c1, …
    """
    path, limits, asked = Path(source.path), source.limits, source.delimiter
    asked = _DELIMITERS.get(asked or "", asked)
    if asked is not None and (len(asked) != 1 or not asked.isascii() or asked in '"\r\n'):
        raise InvalidOption(Option("delimiter"), f" must be one character, or tab; got {source.delimiter!r}")
    if source.header not in (True, False, "auto"):
        raise InvalidOption(Option("header"), f' must be True, False or "auto"; got {source.header!r}')
    with open_bytes(path, limits) as file:
        if format_of(source) == "arff":
            kinds, n = arff.read_header(path, _lines(path, file, limits))
            nominal = frozenset(name for name, kind in kinds.items() if kind.startswith("{"))
            return Dialect(list(kinds), ",", n_skipped=n, nominal=nominal)
        lines = _lines(path, file, limits)
        line = next(lines, "")
        n_bytes = min(LINES * len(line), MOST_BYTES)
        bare = _QUOTED.sub("", line)
        delimiter = asked or ("," if "," in bare or not any(c in bare for c in ";\t|") else max(";\t|", key=bare.count))
        reader = csv.reader(chain([line], lines), delimiter=delimiter)
        try:
            first, second = [*islice(filter(None, reader), 2), [], []][:2]
        except csv.Error as error:
            raise MalformedFile(path, f"not CSV as expected: {error}", line=reader.line_num) from error
    if _is_header(first, second) if source.header == "auto" else source.header:
        return Dialect(first, delimiter, header=True, n_bytes=n_bytes)
    names = [f"c{j}" for j in range(len(first))]
    some = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    note = f"{path}: no header: columns {some}"
    return Dialect(names, delimiter, n_bytes=n_bytes, notes=(note,) if source.header == "auto" else ())


def _is_header(first: list[str], second: list[str]) -> bool:
    """Whether the first line of a file names its columns.

    It does if it holds no number, if a number stands below one of its texts, or if it reads 0, 1, 2, … (as data frames
    without column names write it, after an empty name of their index).
    """
    numbers, plain = list(map(_is_number, first)), first[first[:1] == [""] :]
    filled = [is_number or field in _GAPS for is_number, field in zip(numbers, first, strict=True)]
    return (
        plain == list(map(str, range(len(plain)))) or any(map(gt, map(_is_number, second), filled)) or not any(numbers)
    )


def _lines(path: Path, file: IO[bytes], limits: Limits) -> Iterator[str]:
    """Decoded lines; raises `BadTable` at one longer than the limit."""
    n = 1
    while line := file.readline(limits.line_bytes + 1):
        limits.check("line_bytes", len(line), path, f"line {n} is longer")
        if n == 1 and line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            raise MalformedFile(path, "expected text in UTF-8, found UTF-16; save it as UTF-8")
        text = line.decode("utf-8", "replace")
        yield text.removeprefix("\ufeff") if n == 1 else text
        n += 1


def _data_lines(source: Source, how: Dialect, file: IO[bytes]) -> Iterator[str]:
    """Lines of CSV from the first that is not skipped."""
    path, lines = Path(source.path), _lines(Path(source.path), file, source.limits)
    if not how.n_skipped:
        return lines
    return (arff.csv_line(path, n, line) for n, line in islice(enumerate(lines, 1), how.n_skipped, None))


def _schema(source: Source, how: Dialect, names: list[str], found: list[Any]) -> tuple[arrow.Schema, dict[str, Any]]:
    """The schema, and the Arrow type to read each column as: text, but for numeric features, target, weight, offset.

    found  column types inferred from the first block. A column that turns to text only in a later line is malformed
           there, not a text column.
    """
    import pyarrow as pa

    kinds = dict(zip(names, found, strict=True))
    declared = dict.fromkeys(how.nominal - {source.target}, pa.dictionary(pa.int32(), pa.string()))

    def categories_of(name: str) -> tuple[str, ...]:
        with _opened(source, how, {name: pa.string()}, [name]) as reader:
            return arrow.categories(source.path, name, reader)

    try:
        schema = arrow.make_schema(source, names, list(map((kinds | declared).get, names)), categories_of)
    except NotNumeric as error:
        fault = _find_fault(source, how, {error.column: _NUMBER})
        if fault is None or fault.in_first_row:
            seen = "" if fault is None else f"; line {fault.line}: {fault.what}"
            raise NotNumeric(source.path, error.column, seen) from error
        raise fault from error
    numbers = {*schema.sources((0, len(schema.features)))} - {*schema.categories}
    for name, kind in kinds.items():
        if name not in numbers or (name == schema.target and schema.classes is not None):
            kinds[name] = pa.string()
        elif not pa.types.is_boolean(kind):
            kinds[name] = pa.float64()
    return schema, kinds


@contextmanager
def _opened(
    source: Source, how: Dialect, kinds: Mapping[str, Any] | None = None, names: list[str] | None = None
) -> Iterator[Any]:
    """A reader of batches of these columns, by default all. An empty field is null, also in text columns.

    Arrow's errors become `MalformedFile` with line and column, found by reading the file once more.
    """
    arrow_csv = require("pyarrow.csv", for_="reading CSV", extra="files")
    import pyarrow as pa

    path = Path(source.path)
    convert = arrow_csv.ConvertOptions(
        column_types=kinds,
        include_columns=names,
        null_values=list(_GAPS),
        strings_can_be_null=True,
        true_values=list(_TRUE),
        false_values=list(_FALSE),
    )
    own_names = None if how.header else how.names
    blocks = arrow_csv.ReadOptions(block_size=max(BLOCK_BYTES, how.n_bytes), column_names=own_names)
    parse = arrow_csv.ParseOptions(newlines_in_values=True, delimiter=how.delimiter)
    try:
        with open_bytes(path, source.limits) as file:
            rows = arff.Rows(path, file, source.limits, how.n_skipped) if how.n_skipped else file
            ahead, reader = _ReadAhead(rows), ()
            _AHEAD.add(ahead)
            try:
                reader = arrow_csv.open_csv(ahead, blocks, parse, convert)
                yield reader
            finally:
                with ahead.lock:
                    ahead.over = True
                with suppress(Exception):  # what is wrong with the file was raised before
                    for _ in reader:  # wait for the thread
                        pass
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        what = str(error).splitlines()[0] if str(error) else "not CSV"
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in what:
            raise MalformedFile(path, f"expected text in UTF-8 ({what}); save it as UTF-8") from error
        words = {pa.float64(): _NUMBER, pa.bool_(): _FLAG}
        expected = {name: words[kinds[name]] for name in names or () if kinds is not None and kinds[name] in words}
        what = "it has no rows" if what == "Empty CSV file" else f"not CSV as expected: {what}"
        raise _find_fault(source, how, expected) or MalformedFile(path, what) from error


@dataclass(eq=False)
class _ReadAhead:
    """A file read ahead by a thread of Arrow's; once `over` is set, every read returns end of file.

    The process would crash if that thread still read or released this Python object while the interpreter shuts down;
    `_let_go` waits for it.
    """

    file: IO[bytes] | arff.Rows
    lock: Any = dataclasses.field(default_factory=Lock)
    over: bool = False
    closed: bool = False

    def read(self, n: int = -1) -> bytes:
        with self.lock:
            return b"" if self.over else self.file.read(n)


_AHEAD: WeakSet[_ReadAhead] = WeakSet()
"""Files that Arrow still holds a reference to."""


@atexit.register
def _let_go(seconds: float = 2.0) -> None:
    """At exit, wait up to `seconds` until Arrow has released all files: its threads need the interpreter for that."""
    until = time.monotonic() + seconds
    while len(_AHEAD) and time.monotonic() < until:
        gc.collect()
        time.sleep(1e-3)


def _find_fault(source: Source, how: Dialect, expected: Mapping[str, str]) -> MalformedFile | None:
    """The error for the first line with a wrong number of fields or a field that is not as `expected` of its column."""
    path, skipped = Path(source.path), how.n_skipped
    with open_bytes(path, source.limits) as file:
        reader = csv.reader(_data_lines(source, how, file), delimiter=how.delimiter)
        try:
            fault = _first_fault(reader, expected, None if how.header else how.names)
        except csv.Error as error:
            fault = f"not CSV as expected: {error}", None, False
        line = max(1, skipped + reader.line_num)
    return None if fault is None else MalformedFile(path, fault[0], line=line, column=fault[1], in_first_row=fault[2])


def _first_fault(
    lines: Any, expected: Mapping[str, str], names: list[str] | None
) -> tuple[str, int | None, bool] | None:
    """What was expected and found, in which field, and whether that is in the first row."""
    header = names or next(lines, None)
    if header is None:
        return "expected a header line, found an empty file", 1, False
    for i, fields in enumerate(filter(None, lines)):
        if len(fields) != len(header):
            what = f"expected {len(header)} fields, found {len(fields)}"
            return what, min(len(fields), len(header)) + 1, i == 0
        for j, (name, field) in enumerate(zip(header, fields, strict=False)):
            if name in expected and not _is(expected[name], field):
                return f"expected {expected[name]} in {name!r}, found {field[:80]!r}", j + 1, i == 0
    return None


def _is(expected: str, field: str) -> bool:
    return field in _GAPS or (field in (*_TRUE, *_FALSE) if expected == _FLAG else _is_number(field))


def _is_number(field: str) -> bool:
    try:
        float(field.replace("_", "x"))
    except ValueError:
        return False
    return field not in _GAPS
