"""Read, stream, convert and describe files of any format, which their suffix tells."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from laconic.data import csv, libsvm, npy, parquet, store, store_writer
from laconic.data.errors import BadTable
from laconic.data.errors import Path as AnyPath
from laconic.data.files import suffix
from laconic.data.rows import RowStream, collect, rows_of
from laconic.data.schema import OneHot, Roles
from laconic.data.table import Table, to_dtype
from laconic.errors import CorruptPayload, Option

FORMATS = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "npy",
    ".npz": "npy",
    ".safetensors": "store",
}
"""By suffix; anything else is LIBSVM."""

_NAMED_COLUMNS = {"csv": csv.stream_csv, "parquet": parquet.stream_parquet}


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of a file without reading it.

    format      "libsvm", "csv", "parquet", "npy" or "store"
    n_bytes     size of the file
    n_rows      None where only reading tells (LIBSVM, CSV, .npz)
    columns     names of the columns in the file, the target among them; None where they have none
    n_columns   how many those are; of a store and of .npy the columns of X alone
    dtype       of X, where the file has one for it
    is_sparse   None where the format does not tell
    """

    path: str
    format: str
    n_bytes: int
    n_rows: int | None = None
    n_columns: int | None = None
    columns: tuple[str, ...] | None = None
    dtype: str | None = None
    is_sparse: bool | None = None


def read(
    path: AnyPath,
    *,
    target: str | int | bool | None = None,
    sample_weight: str | int | None = None,
    offset: str | int | None = None,
    n_features: int | None = None,
    columns: tuple[int, int] | None = None,
    dtype: "str | torch.dtype | None" = None,
    one_hot: OneHot = (),
    exclude: tuple[str, ...] = (),
    dense: bool = False,
    zero_based: bool | None = None,
) -> Table:
    """Read a file of any format, which its suffix tells; any other suffix is LIBSVM (`a9a`, `a9a.xz`, `x.svm.gz`).

    target, sample_weight, offset  columns of a CSV or Parquet file, by name or number; target=False where there is
                   none; for .npy the files beside it, for .npz the names of the arrays
    n_features     columns of the whole matrix, where a LIBSVM file does not use them all
    columns        (first, last): keep columns first to last - 1 of X, counted from 0; by default all
    dtype          "fp32", "bf16" or "fp64" of a dense X; by default that of the file if it has one, else fp32. A
                   sparse X is float32.
    one_hot        columns of CSV or Parquet to spread out into one per category (`Area=A`); a mapping from column to
                   categories fixes these, which new data for an old model needs
    exclude        columns of CSV or Parquet to leave out
    dense          a LIBSVM file as a dense X
    zero_based     whether a LIBSVM file counts columns from 0; None finds out: it does where any index is 0

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny")
    >>> _ = path.write_text("1 1:0.5 4:1\\n0 2:2\\n")
    >>> read(path, columns=(1, 4)).X.toarray().tolist()
    [[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]]
    """
    kind = format_of(path)
    path = _file(path, once=kind == "libsvm")
    roles = Roles(target, sample_weight, offset, one_hot, exclude)
    _check_options(path, kind, roles, dense, zero_based)
    if kind == "libsvm":
        table = libsvm.read_libsvm(
            path, n_features=n_features, columns=columns, zero_based=zero_based, dense=dense, dtype=dtype or "fp32"
        )
    elif kind in _NAMED_COLUMNS:
        table = collect(_NAMED_COLUMNS[kind](path, roles, columns=columns, dtype=dtype or "fp32"))
    elif kind == "npy":
        table = npy.read_npy(path, **_paths(path, roles), columns=columns, dtype=dtype)
    else:
        table = _in_dtype(store.open_store(path, columns), dtype)
    _check_width(path, table.n_features, n_features)
    return table


def stream(
    path: AnyPath,
    *,
    target: str | int | bool | None = None,
    sample_weight: str | int | None = None,
    offset: str | int | None = None,
    n_features: int | None = None,
    dtype: "str | torch.dtype" = "fp32",
    one_hot: OneHot = (),
    exclude: tuple[str, ...] = (),
    dense: bool = False,
    zero_based: bool | None = None,
) -> RowStream:
    """All columns as a stream of row blocks, which `convert` writes. Arguments as for `read`."""
    path = _file(path)
    kind, roles = format_of(path), Roles(target, sample_weight, offset, one_hot, exclude)
    _check_options(path, kind, roles, dense, zero_based)
    if kind == "libsvm":
        return libsvm.stream_libsvm(path, n_features=n_features, zero_based=zero_based, dense=dense, dtype=dtype)
    if kind in _NAMED_COLUMNS:
        rows = _NAMED_COLUMNS[kind](path, roles, dtype=dtype)
    else:
        table = npy.read_npy(path, **_paths(path, roles)) if kind == "npy" else store.open_store(path)
        rows = rows_of(table, path.name)
    _check_width(path, rows.n_features, n_features)
    return rows


def convert(
    source: AnyPath, destination: AnyPath, *, dtype: "str | torch.dtype" = "bf16", **options: Any
) -> Description:
    """Write any file as a store, a block of rows at a time, and describe the store; `options` are those of `stream`.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("x,label\\n1,0\\n2,1\\n")
    >>> convert(folder / "a.csv", folder / "a.safetensors", target="label").n_rows
    2
    """
    wide = "fp64" if to_dtype(dtype) == torch.float64 else "fp32"
    return describe(store_writer.write_store(destination, stream(source, dtype=wide, **options), dtype))


def describe(path: AnyPath) -> Description:
    """Describe a file from its name, size and header; nothing else is read."""
    path = _file(path)
    kind, n_bytes = format_of(path), path.stat().st_size
    if kind == "csv":
        names = csv.column_names(path)
        return Description(str(path), kind, n_bytes, None, len(names), tuple(names), is_sparse=False)
    if kind == "parquet":
        n_rows, names = parquet.shape(path)
        return Description(str(path), kind, n_bytes, n_rows, len(names), tuple(names), is_sparse=False)
    if kind == "npy" and path.suffix.lower() == ".npy":
        n_rows, n_columns, dtype = npy.shape(path)
        return Description(str(path), kind, n_bytes, n_rows, n_columns, None, dtype, False)
    return _describe_store(path, n_bytes) if kind == "store" else Description(str(path), kind, n_bytes)


def format_of(path: AnyPath) -> str:
    """The format a file's name promises.

    >>> format_of("a9a.xz"), format_of("train.csv.gz"), format_of("epsilon.safetensors")
    ('libsvm', 'csv', 'store')
    """
    path = Path(path)
    own = suffix(path)
    kind = FORMATS.get(own, "libsvm")
    if own != path.suffix.lower() and kind in ("parquet", "npy", "store"):
        raise BadTable(f"{path}: a compressed {own} cannot be read; unpack it first")
    return kind


def _describe_store(path: Path, n_bytes: int) -> Description:
    try:
        with path.open("rb") as file:
            header = store.read_header(file, n_bytes)
    except CorruptPayload as error:
        raise CorruptPayload(f"{path}: {error}") from error
    values = header.sections.get("X") or header.sections["values"]
    n_rows, names = store.n_rows(header), store.names(header, "feature_names")
    dtype, is_sparse = str(values.dtype).removeprefix("torch."), "values" in header.sections
    return Description(str(path), "store", n_bytes, n_rows, store.n_features(header), names, dtype, is_sparse)


def _check_width(path: Path, found: int, n_features: int | None) -> None:
    if n_features not in (None, found):
        raise BadTable(f"{path} has {found} features, ", Option("n_features"), f" says {n_features}")


def _file(path: AnyPath, *, once: bool = False) -> Path:
    """The path of a file that can be read; unless `once`, more than once, which a pipe cannot."""
    path = Path(path)
    if not path.exists():
        raise BadTable(f"there is no file {path}")
    if path.is_dir():
        raise BadTable(f"{path} is a folder; give a file")
    if not once and not path.is_file():
        raise BadTable(f"{path} is a pipe or a device, and has to be read more than once; save it to a file first")
    return path


def _check_options(path: Path, kind: str, roles: Roles, dense: bool, zero_based: bool | None) -> None:
    """Refuse an option that the format has no use for."""
    for name, given in (("dense", dense), ("zero_based", zero_based is not None)):
        if given and kind != "libsvm":
            raise BadTable(f"{path}: ", Option(name), f" is for LIBSVM files; this is {kind}")
    if kind in _NAMED_COLUMNS:
        return
    options: dict[str, Any] = {"one_hot": roles.one_hot, "exclude": roles.exclude}
    if kind != "npy":
        options |= {"target": roles.target, "sample_weight": roles.sample_weight, "offset": roles.offset}
    for name, value in options.items():
        if value is not None and not (isinstance(value, (tuple, list, dict)) and not value):
            why = f" is for files with named columns; {kind} has its own place for that"
            raise BadTable(f"{path}: ", Option(name), why)


def _paths(path: Path, roles: Roles) -> dict[str, Any]:
    given = {"target": roles.target, "sample_weight": roles.sample_weight, "offset": roles.offset}
    for name, value in given.items():
        if not (value is None or isinstance(value, str) or (name == "target" and value is False)):
            raise BadTable(f"{path}: ", Option(name), f" must be the name of a file or an array, not {value!r}")
    return given


def _in_dtype(table: Table, dtype: "str | torch.dtype | None") -> Table:
    if dtype is None or table.is_sparse or table.X.dtype == to_dtype(dtype):
        return table
    return replace(table, X=table.X.to(to_dtype(dtype)))
