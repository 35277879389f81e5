"""CSV with a header line, read by Arrow in blocks."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from laconic.data import arrow
from laconic.data.errors import MalformedFile, NotNumeric
from laconic.data.errors import Path as AnyPath
from laconic.data.files import open_bytes
from laconic.data.rows import RowStream
from laconic.data.schema import Roles, Schema, make_schema
from laconic.data.table import column_block, to_dtype
from laconic.extras import require

BLOCK_BYTES = 2 << 20
_GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_NUMBER, _FLAG = "a number", "true or false"


def stream_csv(
    path: AnyPath,
    roles: Roles = Roles(),  # noqa: B008
    *,
    columns: tuple[int, int] | None = None,
    dtype: "str | torch.dtype" = "fp32",
) -> RowStream:
    """The rows of a CSV file with a header line, in blocks; see `Roles` for what its columns can be.

    columns  (first, last): keep features first to last - 1, counted after one-hot columns are spread out

    The file is read twice: once to count its rows, once to bring them.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "claims.csv")
    >>> _ = path.write_text("age,area,claims\\n30,A,0\\n40,B,2\\n")
    >>> [block] = stream_csv(path, Roles(target="claims", one_hot=["area"])).blocks
    >>> block.X.tolist(), block.y.tolist()
    ([[30.0, 1.0, 0.0], [40.0, 0.0, 1.0]], [0.0, 2.0])
    """
    path = Path(path)
    names, found = _first_block(path)
    schema = _schema(path, roles, names, found)
    block = column_block(columns, len(schema.features))
    kinds = _kinds(schema, names, found)
    counted = schema.sources((0, 0)) or names[:1]
    n_rows = sum(map(len, _batches(path, kinds, counted)))
    return arrow.rows(path, _batches(path, kinds, schema.sources(block)), schema, block, to_dtype(dtype), n_rows)


def column_names(path: Path) -> list[str]:
    """The header line."""
    return _first_block(path)[0]


def _first_block(path: Path) -> tuple[list[str], list[Any]]:
    """Names and Arrow types of the columns, these as far as the first block tells."""
    require("pyarrow.csv", for_="reading CSV", extra="files")
    with open_bytes(path) as file, _malformed(path):
        schema = _reader(file, {}, []).schema
        return list(schema.names), list(schema.types)


def _schema(path: Path, roles: Roles, names: list[str], found: list[Any]) -> Schema:
    """A column that is text only from some line on is a malformed line, not a column of text."""
    try:
        numeric = arrow.numeric_columns(str(path), names, found)
        return make_schema(str(path), numeric, roles, lambda name: _categories(path, name))
    except NotNumeric as error:
        fault = _find_fault(path, {error.column: _NUMBER})
        if fault is None or fault.line == 2:
            raise
        raise fault from error


def _categories(path: Path, name: str) -> tuple[str, ...]:
    import pyarrow as pa

    with open_bytes(path) as file, _malformed(path):
        return arrow.categories(str(path), name, _reader(file, {name: pa.string()}, [name]))


def _kinds(schema: Schema, names: list[str], found: list[Any]) -> dict[str, Any]:
    """The Arrow type to read each column in; what is no feature, and what is one by category, is text."""
    import pyarrow as pa

    text = {*schema.categories, *([schema.target] if schema.classes is not None else [])}
    numbers = {*schema.sources((0, len(schema.features)))} - text
    return {
        name: pa.string() if name not in numbers else kind if pa.types.is_boolean(kind) else pa.float64()
        for name, kind in zip(names, found, strict=True)
    }


def _batches(path: Path, kinds: Mapping[str, Any], names: list[str]) -> Iterator[Any]:
    with open_bytes(path) as file, _malformed(path, kinds, names):
        yield from _reader(file, kinds, names)


def _reader(file: Any, kinds: Mapping[str, Any], names: list[str]) -> Any:
    """Batches of these columns, by default all. A quoted or unquoted empty field is a gap in numbers and in text."""
    from pyarrow import csv as arrow_csv

    convert = arrow_csv.ConvertOptions(
        column_types=kinds,
        include_columns=names,
        null_values=list(_GAPS),
        strings_can_be_null=True,
        true_values=list(_TRUE),
        false_values=list(_FALSE),
    )
    return arrow_csv.open_csv(
        file,
        arrow_csv.ReadOptions(block_size=BLOCK_BYTES),
        arrow_csv.ParseOptions(newlines_in_values=True),
        convert,
    )


@contextmanager
def _malformed(path: Path, kinds: Mapping[str, Any] | None = None, names: Sequence[str] = ()) -> Iterator[None]:
    """Turn Arrow's errors into `MalformedFile` with line and column, for which the file is read once more.

    names  of the columns that were being read, as `kinds` says
    """
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        what = str(error).splitlines()[0] if str(error) else "not CSV"
        words = {pa.float64(): _NUMBER, pa.bool_(): _FLAG}
        expected = {name: words[kinds[name]] for name in names if kinds is not None and kinds[name] in words}
        raise _find_fault(path, expected) or MalformedFile(path, f"not CSV as expected: {what}") from error


def _find_fault(path: Path, expected: Mapping[str, str]) -> MalformedFile | None:
    """The first line with too many or too few fields, or with something else than is `expected` of a column."""
    import io

    with open_bytes(path) as file:
        lines = csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline=""))
        header = next(lines, None)
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
