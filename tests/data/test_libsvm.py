"""LIBSVM: what scikit-learn reads, bit for bit; what is malformed, by line and column."""

import gzip
import lzma
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from laconic import LaconicError
from laconic.data import BadTable, MalformedFile, convert, libsvm, read, read_libsvm, scan_libsvm

from .files import as_dense, dump_libsvm, small_table


def assert_agrees_with_sklearn(path) -> None:
    X, y = load_svmlight_file(str(path), dtype=np.float32)
    table = read_libsvm(path)
    assert table.y.tolist() == y.tolist()
    assert table.X.shape == X.shape or X.nnz == 0
    assert table.X.indptr.tolist() == X.indptr.tolist()
    assert table.X.indices.tolist() == X.indices.tolist()
    assert table.X.data.tobytes() == X.data.tobytes()


FLOAT32 = {"allow_nan": False, "allow_infinity": False, "width": 32}
NUMBERS = st.one_of(
    st.floats(**FLOAT32).map(repr),
    st.floats(**FLOAT32).map(lambda x: f"{x:.6g}"),
    st.floats(-1e30, 1e30).map(lambda x: f"{x:.17g}"),
    st.floats(-1, 1).map(lambda x: f"{x:.25f}"),
    st.integers(-(10**25), 10**25).map(str),
    st.sampled_from(["+1", "-0", "1.", ".5", "-.5e1", "1E5", "1e+05", "0.1e-40", "16777217", "33554431.5", "00012"]),
)
ROWS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(["+1", "-1", "0", "1e0"]), NUMBERS),
        st.dictionaries(st.integers(0, 40), NUMBERS, max_size=6),
        st.sampled_from(["", " ", "\t", " # 3:4 x", "#"]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, base=st.integers(0, 1), end=st.sampled_from(["\n", "\r\n"]), last=st.booleans())
@example(rows=[("1", {3: "16777217.0000000000001"}, "")], base=1, end="\n", last=False)
@example(rows=[("1", {3: "1.00000005960464477540"}, ""), ("0.1", {}, "")], base=0, end="\n", last=True)
def test_agrees_with_sklearn(rows, base, end, last, tmp_path_factory):
    path = tmp_path_factory.mktemp("svm") / "a"
    lines = [
        " ".join([label, *(f"{i + base}:{pairs[i]}" for i in sorted(pairs))]) + tail for label, pairs, tail in rows
    ]
    path.write_bytes(end.join([*lines, "" if last else "1"]).encode())
    assert_agrees_with_sklearn(path)


def halfway_tokens(n: int) -> list[str]:
    """Numbers of 17 to 20 digits at, just above and just below the middle between two neighbours of float32."""
    rng, tokens = np.random.default_rng(1), []
    for low in np.abs(rng.standard_normal(n)).astype(np.float32) * np.float32(10.0) ** rng.integers(-3, 4, n):
        middle = (Decimal(float(low)) + Decimal(float(np.nextafter(low, np.float32(np.inf))))) / 2
        digits = int(rng.integers(17, 21))
        step = Decimal(10) ** (middle.adjusted() - digits + 1)
        tokens += [f"{middle.quantize(step) + k * step:f}" for k in (-1, 0, 1)]
    return tokens


def test_numbers_that_are_hard_to_round(tmp_path):
    """What one multiplication cannot decide is read again: values as float32(float(token)), labels as float(token)."""
    path, tokens = tmp_path / "a", halfway_tokens(2000)
    path.write_text("".join(f"-{token} 1:{token}\n" for token in tokens))
    table = read_libsvm(path)
    assert table.X.data.tolist() == [float(np.float32(float(token))) for token in tokens]
    assert table.y.tolist() == [-float(token) for token in tokens]


def test_chunks_and_pieces_meet_at_line_ends(tmp_path, monkeypatch):
    """Buffers from shorter than a line to longer than the file, and pieces for several threads."""
    table = small_table(400, 60, seed=3)
    path = dump_libsvm(tmp_path / "a", table)
    text = path.read_bytes()
    for size in (1, 7, 64, 1000, len(text) - 1, len(text), len(text) + 1):
        monkeypatch.setattr(libsvm, "CHUNK_BYTES", size)
        for cut in (lambda _, size: [0, size], _cut_everywhere):
            monkeypatch.setattr(libsvm, "_cuts", cut)
            assert (as_dense(read_libsvm(path, n_features=60).X) == as_dense(table.X)).all()


def _cut_everywhere(buffer, size):
    return [0, *(i + 1 for i in range(size) if buffer[i] == 10)]


def test_comments_blank_lines_and_qid(tmp_path):
    path = tmp_path / "a"
    path.write_text("# header\n\n  \n1 qid:3 1:2 # 5:6\n 2\t2:3#4\n3\n4 qid:1\n")
    table = read_libsvm(path)
    assert table.y.tolist() == [1, 2, 3, 4]
    assert table.X.toarray().tolist() == [[2, 0], [0, 3], [0, 0], [0, 0]]


def test_zero_based(tmp_path):
    path = tmp_path / "a"
    path.write_text("1 1:1 3:3\n")
    assert read_libsvm(path).X.toarray().tolist() == [[1, 0, 3]]
    assert read_libsvm(path, zero_based=True).X.toarray().tolist() == [[0, 1, 0, 3]]
    path.write_text("1 0:1 3:3\n")
    assert read_libsvm(path).X.toarray().tolist() == [[1, 0, 0, 3]]
    with pytest.raises(MalformedFile, match="has index 0, and columns were to count from 1"):
        read_libsvm(path, zero_based=False)


@pytest.mark.parametrize(("text", "zero_based"), [("1 0:1 3:3\n", True), ("1 1:1 3:3\n", False)])
def test_a_store_says_how_its_columns_were_counted(text, zero_based, tmp_path):
    path, store, again = tmp_path / "a", tmp_path / "b.safetensors", tmp_path / "c.safetensors"
    path.write_text(text)
    convert(path, store)
    convert(store, again)
    assert [read(file).zero_based for file in (path, store, again)] == [zero_based] * 3
    with pytest.raises(BadTable, match="zero_based is for LIBSVM files; this is store"):
        read(store, zero_based=zero_based)


def test_scan(tmp_path):
    table = small_table()
    for base in (0, 1):
        scan = scan_libsvm(dump_libsvm(tmp_path / "a", table, base=base), count_columns=True)
        assert (scan.n_rows, scan.n_features, scan.zero_based) == (37, 7, base == 0)
        assert scan.n_nonzero == int((table.X != 0).sum())
        assert scan.column_counts.tolist() == (table.X != 0).sum(0).tolist()


MALFORMED = [
    ("x 1:2", 1, 1, "expected a label, found 'x'"),
    ("1 1:2\n1,2 1:3", 2, 1, "expected one label per line (split the file into one per label), found '1,2'"),
    ("1 1:2\n\n# c\nnan 1:3", 4, 1, "expected a label that is finite"),
    ("1:2 3:4", 1, 1, "expected a label, found '1:2'"),
    ("1 1:2 x:3", 1, 7, "expected index:value, found 'x:3'"),
    ("1 1:2 3", 1, 7, "expected index:value, found '3'"),
    ("1 1:2 -3:1", 1, 7, "expected index:value, found '-3:1'"),
    ("1 1:2\n1e-400 :3", 2, 8, "expected index:value, found ':3'"),
    ("1 1:2\n1   2:", 2, 7, "expected a number, found ''"),
    ("1 1:2 2: 3", 1, 9, "expected a number, found ''"),
    ("1 1:2 2:#3", 1, 9, "expected a number, found ''"),
    ("1 1:2 2:abc", 1, 9, "expected a number, found 'abc'"),
    ("1 1:2 2:1.2.3", 1, 9, "expected a number, found '1.2.3'"),
    ("1 1:2 2:1e", 1, 9, "expected a number, found '1e'"),
    ("1 1:2 2:--1", 1, 9, "expected a number, found '--1'"),
    ("1 1:2 2:1_0", 1, 9, "found '1_0'"),
    ("1 1:2 2:nan", 1, 9, "expected a number that is finite in float32, found 'nan'"),
    ("1 1:2 2:-inf", 1, 9, "expected a number that is finite in float32, found '-inf'"),
    ("1 1:2 2:1e39", 1, 9, "expected a number that is finite in float32, found '1e39'"),
    ("1 1:2 2:1e999999999999", 1, 9, "expected a number that is finite in float32"),
    ("1 2:2 1:1", 1, 7, "expected an index above the one before it, found '1:1'"),
    ("1 2:2 2:1", 1, 7, "expected an index above the one before it, found '2:1'"),
    ("1 1:2 2147483647:1", 1, 7, "expected an index up to 2147483646, found '2147483647:1'"),
    ("1 1:2 99999999999999999999999:1", 1, 7, "expected an index up to 2147483646"),
    ("1 1:2 qid:3", 1, 7, "expected index:value, found 'qid:3'"),
    ("1 1:2\x00 2:3", 1, 6, "expected index:value, found"),
    ("1 1:x 2", 1, 5, "expected a number, found 'x'"),
]


@pytest.mark.parametrize("chunk_bytes", [4, 1 << 20])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(("text", "line", "column", "message"), MALFORMED)
def test_malformed(text, line, column, message, suffix, chunk_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(libsvm, "CHUNK_BYTES", chunk_bytes)
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix else text.encode())
    with pytest.raises(MalformedFile) as caught:
        read_libsvm(path)
    assert str(caught.value).startswith(f"{path}, line {line}, column {column}: ")
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert isinstance(caught.value, LaconicError)


@pytest.mark.parametrize("suffix", ["", ".xz"])
def test_a_line_without_an_end_is_refused(suffix, tmp_path, monkeypatch):
    """A few hundred bytes of xz may hold a line that no memory does."""
    monkeypatch.setattr(libsvm, "CHUNK_BYTES", 64)
    path, text = tmp_path / f"long{suffix}", b"1 1:2\n1 " + b"0" * 100_000
    path.write_bytes(lzma.compress(text) if suffix else text)
    with pytest.raises(BadTable, match=r"line 2 is longer than line_bytes=1000; .* give limit=\('line_bytes=2000',\)"):
        read_libsvm(path, limit=("line_bytes=1000",))


def test_columns_that_no_memory_holds_are_refused(tmp_path):
    path = tmp_path / "wide"
    path.write_text("1 2147483646:1\n" * 10_000)
    with pytest.raises(BadTable, match="10000 rows of 2147483646 columns, dense, would take 85899345840000 bytes"):
        read_libsvm(path, dense=True, limit=("features=2147483646",))
    for dense in (False, True):
        with pytest.raises(BadTable, match=r"it has a column 2147483646, more than features=134217728"):
            read_libsvm(path, dense=dense)


def test_a_bad_value_in_another_ranks_column_is_found_by_all(tmp_path):
    path = tmp_path / "bad"
    path.write_text("1 1:2 5:x\n")
    with pytest.raises(MalformedFile, match="line 1, column 9"):
        read_libsvm(path, n_features=5, columns=(0, 2))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"plain text" + data])
def test_damaged_compression(suffix, damage, tmp_path):
    path = dump_libsvm(tmp_path / f"a{suffix}", small_table())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(MalformedFile, match="the compressed stream is damaged"):
        read_libsvm(path)


@settings(max_examples=100, deadline=None)
@given(text=st.text("01:.e+-# \n,xq\x00", max_size=60))
def test_noise_is_read_or_refused(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("svm") / "a"
    path.write_text(text)
    try:
        table = read_libsvm(path)
    except (MalformedFile, BadTable):
        return
    assert table.X.shape[0] == len(table.y)
