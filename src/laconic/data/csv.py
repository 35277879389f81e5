"""CSV, read by Arrow in blocks."""

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO, Any

import torch

from laconic.data import arrow
from laconic.data.errors import MalformedFile, NotNumeric
from laconic.data.files import Source, open_bytes
from laconic.data.table import RowStream, column_block, to_dtype
from laconic.extras import require

BLOCK_BYTES = 2 << 20
_GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_NUMBER, _FLAG = "a number", "true or false"


def stream_csv(
    source: Source, *, columns: tuple[int, int] | None = None, dtype: "str | torch.dtype" = "fp32"
) -> RowStream:
    """The rows of a CSV file in blocks; see `Source` for what its columns can be, `dialect` for header and delimiter.

    columns  (first, last): keep features first to last - 1, counted after one-hot columns are spread out

    The file is read twice: once to count its rows, once to bring them.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "claims.csv")
    >>> _ = path.write_text("age,area,claims\\n30,A,0\\n40,B,2\\n")
    >>> [block] = stream_csv(Source(str(path), target="claims", one_hot=["area"])).blocks
    >>> block.X.tolist(), block.y.tolist()
    ([[30.0, 1.0, 0.0], [40.0, 0.0, 1.0]], [0.0, 2.0])
    """
    path = Path(source.path)
    with _opened(path) as reader:
        names, found = list(reader.schema.names), list(reader.schema.types)
    schema, kinds = _schema(source, names, found)
    block = column_block(columns, len(schema.features))
    counted = schema.sources((0, 0)) or names[:1]
    n_rows = sum(map(len, _batches(path, kinds, counted)))
    batches = _batches(path, kinds, schema.sources(block))
    return arrow.rows(source, batches, schema, block, to_dtype(dtype), n_rows)


def dialect(path: Path) -> tuple[list[str] | None, str]:
    """Names c0, c1, … where the first line holds numbers, and so is no header; and what separates fields: , ; tab or |.

    A first line 0, 1, 2, … is a header, as data frames without names of columns write it.
    """
    with open_bytes(path) as file:
        line = file.readline(1 << 20).decode("utf-8-sig", "replace")
    delimiter = "," if "," in line else max(";\t|", key=line.count) if any(c in line for c in ";\t|") else ","
    fields = next(csv.reader([line], delimiter=delimiter), [])
    numbers = bool(fields) and all(field not in _GAPS and _is(_NUMBER, field) for field in fields)
    header = not numbers or fields == [str(j) for j in range(len(fields))]
    return None if header else [f"c{j}" for j in range(len(fields))], delimiter


def column_names(path: Path) -> list[str]:
    """The header line, or names made up."""
    with _opened(path) as reader:
        return list(reader.schema.names)


def _schema(source: Source, names: list[str], found: list[Any]) -> tuple[arrow.Schema, dict[str, Any]]:
    """Parts of the columns, and the Arrow type to read each in; what is no feature, or one by category, is text.

    found  types of the columns as far as the first block tells. One that is text only from some line on is a malformed
           line, not a column of text.
    """
    import pyarrow as pa

    path, kinds = Path(source.path), dict(zip(names, found, strict=True))
    try:
        schema = arrow.make_schema(
            source,
            names,
            found,
            lambda name: arrow.categories(source.path, name, _batches(path, {name: pa.string()}, [name])),
        )
    except NotNumeric as error:
        fault = _find_fault(path, {error.column: _NUMBER})
        if fault is None or fault.line == (2 if dialect(path)[0] is None else 1):
            raise
        raise fault from error
    numbers = {*schema.sources((0, len(schema.features)))} - {*schema.categories}
    for name, kind in kinds.items():
        if name not in numbers or (name == schema.target and schema.classes is not None):
            kinds[name] = pa.string()
        elif not pa.types.is_boolean(kind):
            kinds[name] = pa.float64()
    return schema, kinds


def _batches(path: Path, kinds: Mapping[str, Any], names: list[str]) -> Iterator[Any]:
    with _opened(path, kinds, names) as reader:
        yield from reader


@contextmanager
def _opened(path: Path, kinds: Mapping[str, Any] | None = None, names: list[str] | None = None) -> Iterator[Any]:
    """A reader of batches of these columns, by default all. An empty field is a gap in numbers and in text.

    Arrow's errors become `MalformedFile` with line and column, for which the file is read once more.
    """
    arrow_csv = require("pyarrow.csv", for_="reading CSV", extra="files")
    import pyarrow as pa

    convert = arrow_csv.ConvertOptions(
        column_types=kinds,
        include_columns=names,
        null_values=list(_GAPS),
        strings_can_be_null=True,
        true_values=list(_TRUE),
        false_values=list(_FALSE),
    )
    made_up, delimiter = dialect(path)
    blocks = arrow_csv.ReadOptions(block_size=BLOCK_BYTES, column_names=made_up)
    parse = arrow_csv.ParseOptions(newlines_in_values=True, delimiter=delimiter)
    try:
        with open_bytes(path) as file, _ReadAhead(file) as stream:
            yield stream.read_by(arrow_csv.open_csv(stream, blocks, parse, convert))
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        what = str(error).splitlines()[0] if str(error) else "not CSV"
        words = {pa.float64(): _NUMBER, pa.bool_(): _FLAG}
        expected = {name: words[kinds[name]] for name in names or () if kinds is not None and kinds[name] in words}
        raise _find_fault(path, expected) or MalformedFile(path, f"not CSV as expected: {what}") from error


class _ReadAhead:
    """A file that a thread of Arrow's reads ahead from, and that is at its end as soon as its context is left.

    Were that thread still reading from Python's file when the interpreter ends, it would take the process with it.
    """

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.lock, self.over, self.reader = file, Lock(), False, None

    def read(self, n: int = -1) -> bytes:
        with self.lock:
            return b"" if self.over else self.file.read(n)

    def read_by(self, reader: Any) -> Any:
        """The reader, which is waited for at the end."""
        self.reader = reader
        return reader

    def __enter__(self) -> "_ReadAhead":
        return self

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.over = True
        with suppress(Exception):  # what is wrong with the file was raised before
            for _ in self.reader or ():
                pass


def _find_fault(path: Path, expected: Mapping[str, str]) -> MalformedFile | None:
    """The first line with too many or too few fields, or with something else than is `expected` of a column."""
    made_up, delimiter = dialect(path)
    with open_bytes(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        lines = csv.reader(text, delimiter=delimiter)
        try:
            return _first_fault(path, lines, expected, made_up)
        except csv.Error as error:
            return MalformedFile(path, f"not CSV as expected: {error}", line=lines.line_num)


def _first_fault(
    path: Path, lines: Any, expected: Mapping[str, str], made_up: list[str] | None
) -> MalformedFile | None:
    header = made_up or next(lines, None)
    if header is None:
        return MalformedFile(path, "expected a header line, found an empty file", line=1, column=1)
    for fields in lines:
        if fields and len(fields) != len(header):
            what = f"expected {len(header)} fields, found {len(fields)}"
            return MalformedFile(path, what, line=lines.line_num, column=min(len(fields), len(header)) + 1)
        for j, (name, field) in enumerate(zip(header, fields, strict=False)):
            if name in expected and not _is(expected[name], field):
                what = f"expected {expected[name]} in {name!r}, found {field[:80]!r}"
                return MalformedFile(path, what, line=lines.line_num, column=j + 1)
    return None


def _is(expected: str, field: str) -> bool:
    if field in _GAPS or expected == _FLAG:
        return field in (*_GAPS, *_TRUE, *_FALSE)
    try:
        float(field.replace("_", "x"))
    except ValueError:
        return False
    return True
