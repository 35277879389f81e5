"""Every format gives back the same table, whole and cut into columns; every format becomes a store."""

import contextlib
import lzma
import os
import random
import zipfile
from io import BytesIO
from itertools import pairwise
from threading import Timer

import numpy as np
import pytest
import torch

from laconic.data import (
    BadTable,
    MalformedFile,
    Table,
    arff,
    column_cuts,
    column_weights,
    convert,
    csv,
    describe,
    read,
    stream,
    take_columns,
)
from laconic.data.errors import NotNumeric
from laconic.data.files import format_of

from .files import FORMATS, as_dense, assert_same, dump_libsvm, small_table, sparse

SHAPES = [(37, 7), (1, 7), (2, 7)]


@pytest.mark.parametrize(("m", "n"), SHAPES)
@pytest.mark.parametrize("name", FORMATS)
def test_round_trip(name, m, n, tmp_path):
    form, table = FORMATS[name], small_table(m, n)
    found = read(form.dump(tmp_path / form.file, table), **form.options)
    assert found.is_sparse == form.is_sparse
    assert_same(found, table, form.keeps)


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("name", FORMATS)
def test_column_blocks_make_the_whole(name, n_ranks, tmp_path):
    """Nine ranks on seven columns: some rank has none."""
    form, table = FORMATS[name], small_table()
    path = form.dump(tmp_path / form.file, table)
    cuts = column_cuts(table.n_features, n_ranks)
    blocks = [read(path, columns=(a, b), **form.options) for a, b in pairwise(cuts)]
    assert torch.equal(torch.cat([as_dense(block.X) for block in blocks], dim=1), as_dense(table.X))
    for block, a, b in zip(blocks, cuts, cuts[1:], strict=False):
        assert block.columns == (a, b)
        assert block.n_features == table.n_features
        assert torch.equal(block.y, table.y)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp64"])
@pytest.mark.parametrize("name", FORMATS)
def test_dtype(name, dtype, tmp_path):
    form, table = FORMATS[name], small_table()
    found = read(form.dump(tmp_path / form.file, table), dtype=dtype, **form.options)
    assert str(found.X.dtype).endswith(
        "float32" if form.is_sparse else {"bf16": "bfloat16", "fp64": "64"}.get(dtype, "32")
    )
    assert torch.equal(as_dense(found.X), as_dense(table.X))


@pytest.mark.parametrize("name", FORMATS)
def test_convert(name, tmp_path):
    form, table = FORMATS[name], small_table()
    path = form.dump(tmp_path / form.file, table)
    store = tmp_path / "out.safetensors"
    described = convert(path, store, **form.options)
    assert (described.n_rows, described.n_columns, described.is_sparse) == (37, 7, form.is_sparse)
    assert described.dtype == "bfloat16"
    assert_same(read(store), table, form.keeps)


@pytest.mark.parametrize("name", FORMATS)
def test_describe(name, tmp_path):
    form, table = FORMATS[name], small_table()
    path = form.dump(tmp_path / form.file, table)
    described = describe(path)
    assert described.n_bytes == path.stat().st_size
    assert described.format == name.replace("sparse ", "").replace("npz", "npy").split()[0]
    assert described.n_rows in (37, None)
    assert described.n_columns in (7, 10, None)


@pytest.mark.parametrize("columns", [(0, 8), (-1, 3), (5, 4)])
@pytest.mark.parametrize("name", FORMATS)
def test_columns_outside(name, columns, tmp_path):
    form = FORMATS[name]
    path = form.dump(tmp_path / form.file, small_table())
    with pytest.raises(ValueError, match="columns must lie within 0 to 7"):
        read(path, columns=columns, **form.options)


@pytest.mark.parametrize("name", FORMATS)
def test_wrong_number_of_features(name, tmp_path):
    form = FORMATS[name]
    path = form.dump(tmp_path / form.file, small_table())
    with pytest.raises(ValueError, match=r"n_features says 6; leave it out, or give 7"):
        read(path, **{**form.options, "n_features": 6})


def test_no_rows(tmp_path):
    table = Table(torch.empty(0, 3), torch.empty(0, dtype=torch.int64))
    (tmp_path / "a.svm").write_text("\n# nothing\n")
    assert read(tmp_path / "a.svm", n_features=3).X.shape == (0, 3)
    for name in ("store fp32", "store bf16", "npz"):
        form, options = FORMATS[name], {}
        if name == "npz":
            np.savez(tmp_path / form.file, X=table.X.numpy(), y=table.y.numpy())
        else:
            form.dump(tmp_path / form.file, table)
        assert read(tmp_path / form.file, **options).X.shape == (0, 3)


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("weights", [[1] * 10, [100] + [1] * 9, [0] * 4, [0, 0, 7], [3], [], list(range(50))])
def test_column_cuts(weights, n_ranks):
    cuts = column_cuts(weights, n_ranks)
    assert len(cuts) == n_ranks + 1
    assert (cuts[0], cuts[-1]) == (0, len(weights))
    assert cuts == sorted(cuts)
    heaviest = max((sum(weights[a:b]) for a, b in pairwise(cuts)), default=0)
    assert heaviest <= sum(weights) / n_ranks + max(weights, default=0)


def test_take_columns():
    dense = small_table()
    for table in (dense, sparse(dense)):
        assert torch.equal(as_dense(take_columns(table.X, 2, 5)), as_dense(dense.X)[:, 2:5])
    assert column_weights(dense.X).tolist() == [37] * 7
    assert column_weights(sparse(dense).X).tolist() == (dense.X != 0).sum(0).tolist()
    with pytest.raises(ValueError, match="columns must lie within 0 to 7"):
        take_columns(dense.X, 5, 8)


OPTIONS = [
    ("libsvm", {"target": "y"}, "target is for files with named columns; .* if it is CSV, give delimiter="),
    ("libsvm", {"one_hot": ("a",)}, "one_hot is for files with named columns"),
    ("store fp32", {"offset": "o"}, "offset is for files with named columns"),
    ("csv", {"dense": True, **FORMATS["csv"].options}, "dense is for LIBSVM"),
    ("npy", {"target": 3}, "must be the name of a file"),
    ("csv", {"dtype": "fp8", **FORMATS["csv"].options}, "dtype must be one of fp32, bf16, fp64; got 'fp8'"),
]


@pytest.mark.parametrize(("name", "options", "message"), OPTIONS)
def test_options_of_another_format(name, options, message, tmp_path):
    path = FORMATS[name].dump(tmp_path / FORMATS[name].file, small_table())
    with pytest.raises(ValueError, match=message):
        read(path, **options)


def test_no_such_file(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        read(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match="is a folder"):
        read(tmp_path)
    dump_libsvm(tmp_path / "a.parquet.gz", small_table())
    with pytest.raises(ValueError, match="unpack it first"):
        read(tmp_path / "a.parquet.gz")


@pytest.mark.filterwarnings("ignore")  # NumPy warns of odd headers
@pytest.mark.parametrize("name", ["X.npy", "rows.npz"])
def test_damaged_arrays_are_read_or_refused(name, tmp_path):
    path, rng = tmp_path / name, random.Random(name)
    if name == "X.npy":
        np.save(path, np.zeros((4, 3), np.float32))
    else:
        np.savez_compressed(path, X=np.zeros((4, 3)), y=np.zeros(4))
    good = path.read_bytes()
    for _ in range(400):
        damaged = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 4])):
            damaged[rng.randrange(min(len(good), 600))] = rng.choice([rng.randrange(256), *b"('9"])
        path.write_bytes(damaged)
        with contextlib.suppress(MalformedFile, BadTable):
            read(path, target=False)


@pytest.mark.parametrize("member", ["X", "y"])
def test_a_member_that_is_no_array_is_named(member, tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, **{name: np.zeros((4, 3) if name == "X" else 4) for name in "Xy" if name != member})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{member}.npy", b"")
    with pytest.raises(MalformedFile, match=f"{member} is not an .npy file"):
        read(path)


@pytest.mark.parametrize(
    ("was", "becomes", "why"),
    [
        (b"column", b"c\xb6lumn", "'utf-8' codec can't decode"),
        (b"\x16\xf8\x06", b"\x16\xf7\x06", "it says that it has -444 rows"),
    ],
)
def test_parquet_whose_footer_cannot_be_is_malformed(was, becomes, why, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"column": [1.0] * 444, "y": [1.0] * 444}), path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(was, becomes))
    with pytest.raises(MalformedFile, match=f"not a Parquet file as expected: {why}"):
        read(path, target="y")


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "X.npy", "rows.npz", "rows.safetensors"])
def test_a_pipe_is_refused_not_waited_for(name, tmp_path):
    os.mkfifo(tmp_path / name)
    for look in (read, stream, describe):
        with pytest.raises(
            BadTable, match="is a pipe or a device, and has to be read more than once; save it to a file"
        ):
            look(tmp_path / name)


def through_a_pipe(content, look):
    there, here = os.pipe()
    os.write(here, content)
    os.close(here)
    try:
        return look(f"/dev/fd/{there}")
    finally:
        os.close(there)


def test_libsvm_is_read_from_a_pipe_where_once_will_do():
    rows = b"1 1:2\n0 1:3\n"
    assert through_a_pipe(rows, lambda path: read(path).y.tolist()) == [1, 0]
    for look in (stream, describe):
        with pytest.raises(BadTable, match="is a pipe"):
            through_a_pipe(rows, look)


PIPED = {
    "nothing": ({}, "found 'a,y'; a pipe is read as LIBSVM: save rows of another format to a file first"),
    "a column": ({"target": "y"}, "is a pipe or a device, and has to be read more than once; save it"),
    "categories": ({"one_hot": ("a",)}, "is a pipe or a device, and has to be read more than once; save it"),
}


@pytest.mark.parametrize("name", PIPED)
def test_csv_in_a_pipe_is_refused_in_one_sentence(name):
    asked, message = PIPED[name]
    with pytest.raises(BadTable, match=message):
        through_a_pipe(b"a,y\n1,0\n2,1\n", lambda path: read(path, **asked))
    with pytest.raises(BadTable, match="- is a pipe or a device"):
        read("-", **asked)


HEADERLESS = {
    "numbers are rows": ("1,2,0\n3,4,1\n", "c2", ("c0", "c1"), [[1, 2], [3, 4]]),
    "semicolons": ("a;y\n1;0\n2;1\n", "y", ("a",), [[1], [2]]),
    "tabs": ("a\ty\n1\t0\n2\t1\n", "y", ("a",), [[1], [2]]),
    "0, 1, 2 are names": ("0,1\n5,0\n6,1\n", "1", ("0",), [[5], [6]]),
    "0, 1 beside an index": (",0,1\n7,5,0\n8,6,1\n", "1", ("", "0"), [[7, 5], [8, 6]]),
    "a gap among numbers is a row": ("1,,7\n2,3,8\n", "c1", ("c0", "c2"), None),
    "text among numbers is a row": ("5,a\n6,b\n", "c1", ("c0",), [[5], [6]]),
    "what separates names is not in quotes": ('"a;b;c;d",y\n1,0\n2,1\n', "y", ("a;b;c;d",), [[1], [2]]),
    "nor are commas": ('"a, in ""mm""";y\n1;0\n2;1\n', "y", ('a, in "mm"',), [[1], [2]]),
    "quotes within a name are of it": ('5" a;6"\n1;0\n2;1\n', '6"', ('5" a',), [[1], [2]]),
    "a number among names": ("y,2001\n0,5\n1,6\n", "y", ("2001",), [[5], [6]]),
}


@pytest.mark.parametrize("name", HEADERLESS)
def test_header_and_delimiter_are_told_from_the_first_line(name, tmp_path):
    content, target, names, rows = HEADERLESS[name]
    path = tmp_path / "rows.csv"
    path.write_text(content)
    if rows is None:
        with pytest.raises(BadTable, match=r"rows\.csv: c1 is nan in row 1"):
            read(path, target=target)
        return
    table = read(path, target=target)
    assert table.feature_names == names
    assert table.X.tolist() == rows
    notes = [f"{path}: no header: columns c0, c1"] * ("c0" in (target, *names))
    notes += [f"{path}: a column without a name is a feature"] * ("" in names)
    assert [found.startswith(note) for note, found in zip(notes, table.notes, strict=True)] == [True] * len(notes)


DIALECTS = {
    "no header": ("a,b\nc,d\n", {"header": False, "one_hot": ("c0",)}, "c1", ("c0=a", "c0=c")),
    "a header of numbers": ("7,8\n1,2\n", {"header": True}, "8", ("7",)),
    "another delimiter": ("a:y\n1:2\n", {"delimiter": ":"}, "y", ("a",)),
    "tab": ("a,b\ty\n1\t2\n", {"delimiter": "tab"}, "y", ("a,b",)),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_header_and_delimiter_as_asked(name, tmp_path):
    content, asked, target, names = DIALECTS[name]
    (tmp_path / "rows.csv").write_text(content)
    table = read(tmp_path / "rows.csv", target=target, **asked)
    assert (table.feature_names, table.notes) == (names, ())


SNIFFED = {
    "1 3:0.5 7:1\n": "libsvm",
    "1,2 3:0.5\n": "libsvm",
    "1\t3:0.5\n": "libsvm",
    "1\n": "libsvm",
    "": "libsvm",
    "# 1,2\n-1 1:1\n": "libsvm",
    "2020-01-01 12:30:00,5\n": "csv",
    "a;b\n": "csv",
    "% of 5, 6\n@RELATION r\n": "arff",
}


@pytest.mark.parametrize("text", SNIFFED)
@pytest.mark.parametrize("suffix", ["", ".data", ".xz"])
def test_text_of_no_known_suffix(text, suffix, tmp_path):
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(lzma.compress(text.encode()) if suffix == ".xz" else text.encode())
    assert format_of(path) == SNIFFED[text]


def test_a_compressed_file_without_a_suffix(tmp_path):
    (tmp_path / "rows").write_bytes(lzma.compress(b"a,y\n1,0\n2,1\n"))
    assert read(tmp_path / "rows", target="y").X.tolist() == [[1], [2]]


LIMITS = {
    "a line of CSV": ("a.csv", b"a,y\n1,2\n" + b"3" * 5000 + b"x,4\n", "line_bytes=1000", "line 3 is longer than"),
    "a header": ("a.csv", b"x" * 5000, "line_bytes=1000", "line 1 is longer than"),
    "columns": ("a.csv", b"a,b,y\n1,2,3\n", "columns=2", "it has 3 columns, more than columns=2"),
    "unpacked": (
        "a.csv.xz",
        lzma.compress(b"a,y\n" + b"1,2\n" * 9999),
        "unpacked_ratio=2",
        "it unpacks to more times",
    ),
    "unpacked rows": ("a.svm.xz", lzma.compress(b"1 1:1\n" * 9999), "unpacked_ratio=2", "it unpacks to more times"),
    "features": ("a.svm", b"1 5:1\n", "features=4", "it has a column 5, more than features=4"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name, tmp_path, monkeypatch):
    """What is allowed by default is not by a lower limit, and the message says which one to raise."""
    file, data, limit, message = LIMITS[name]
    monkeypatch.setattr("laconic.data.files.SMALL_BYTES", 1)
    parts = {} if ".svm" in file else {"target": "y"}
    (tmp_path / file).write_bytes(data)
    with pytest.raises(BadTable, match=f"{message}.* give limit=\\('{limit.split('=')[0]}="):
        read(tmp_path / file, limit=(limit,), **parts)
    for wrong in ("columns", "rows=5", "columns=-1", "columns=x"):
        with pytest.raises(ValueError, match="limit takes NAME=NUMBER, of line_bytes"):
            read(tmp_path / file, limit=(wrong,), **parts)


def test_an_npz_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("laconic.data.npy.SMALL_BYTES", 1)
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 10)), y=np.zeros(1000))
    with pytest.raises(BadTable, match=r"X\.npy unpacks to more times its size than unpacked_ratio=2"):
        read(tmp_path / "a.npz", limit=("unpacked_ratio=2",))


ARFF = """% of flowers
@relation iris
@attribute 'petal length' real
@attribute kind {a,'b c',"d,'%"}
@attribute class {yes,no}
@data
% these are three

1.5,a,yes
  2 , 'b c' ,\t'no'
3,"d,\\'%",no
\t4 ,a , no\x20
"""
LINES_OR_BLOCKS = pytest.mark.parametrize("block", [1, 2**20])
"""Bytes that are read at once: a line, or all of a short file."""
BAD_ARFF = {
    "no data": ("@relation r\n@attribute a real\n", "expected a line @data"),
    "something else": ("@relation r\nhello\n@data\n", "line 2: expected @attribute or @data, found 'hello'"),
    "sparse": ("@relation r\n@attribute a real\n@data\n\n{0 5}\n", "sparse ARFF is not read; save it as LIBSVM"),
    "sparse after a comment": ("@attribute a real\n@data\n% {\n1\n{0 5}\n", "line 5: sparse ARFF is not read"),
    "a weight": ("@attribute a real\n@data\n1,{5}\n", "line 3, column 2: expected a value .*, found '.5.'"),
    "a comment behind a row": (
        "@attribute a real\n@data\n1 % one\n",
        "line 3, column 1: expected a value .*, found '1 % one'",
    ),
    "a million blanks": ("@attribute a real\n@data\n1" + " " * 10**6 + "2,'\n", "line 3, column 2: expected a value"),
    "a quote alone": ("@attribute a real\n@attribute b {x}\n@data\n\n1,'x\n", "line 5, column 2: expected a value "),
    "no rows": ("@attribute a real\n@attribute y real\n@data\n", "a.arff: it has no rows"),
    "text for a number": (
        "@attribute a real\n@data\n%\n1\n'x, y'\n",
        "line 5, column 1: expected a number in 'a', found",
    ),
    "a name twice": ("@attribute a real\n@attribute 'a' real\n@data\n", "line 2: a second attribute 'a'; rename one"),
    "too few": ("@relation r\n@attribute a real\n@attribute y real\n@data\n1,2\n3\n", "line 6, column 2: expected 2"),
}


@LINES_OR_BLOCKS
def test_arff(block, tmp_path, monkeypatch):
    monkeypatch.setattr(arff, "_BLOCK_BYTES", block)
    path = tmp_path / "iris.arff"
    path.write_text(ARFF)
    table = read(path, target="class")
    assert table.feature_names == ("petal length", "kind=a", "kind=b c", "kind=d,'%")
    assert table.classes == ("no", "yes")
    assert (table.X.tolist(), table.y.tolist()) == (
        [[1.5, 1, 0, 0], [2, 0, 1, 0], [3, 0, 0, 1], [4, 1, 0, 0]],
        [1, 0, 0, 0],
    )
    path.write_text(ARFF.replace("1.5,a", "x,a"))
    with pytest.raises(
        NotNumeric, match=r"leave it out with .*; line 9: expected a number in 'petal length', found 'x'"
    ):
        read(path, target="class")
    path.write_text(ARFF.replace("2 ,", "? ,"))
    with pytest.raises(BadTable, match="X is nan in row 2"):
        read(path, target="class")
    path.write_bytes(ARFF.encode().replace(b"1.5,a", b"1.5,\xff"))
    with pytest.raises(MalformedFile, match="expected text in UTF-8"):
        read(path, target="class")


@LINES_OR_BLOCKS
@pytest.mark.parametrize("name", BAD_ARFF)
def test_bad_arff(name, block, tmp_path, monkeypatch):
    monkeypatch.setattr(arff, "_BLOCK_BYTES", block)
    text, message = BAD_ARFF[name]
    (tmp_path / "a.arff").write_text(text)
    with pytest.raises(MalformedFile, match=message):
        read(tmp_path / "a.arff", target="y" if name == "too few" else False)


def test_what_a_thread_still_holds_is_waited_for_before_the_interpreter_ends(tmp_path):
    """Arrow's threads let go of a file some time after the last row, and need the interpreter for it."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n", encoding="ascii")
    assert len(read(path, target="b").y) == 1
    held = [csv._ReadAhead(BytesIO())]
    csv._AHEAD.add(held[0])
    Timer(0.05, held.clear).start()
    csv._let_go()
    assert not csv._AHEAD
