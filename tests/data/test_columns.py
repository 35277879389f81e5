"""CSV and Parquet: which column is what, what is not a number, and what is never read."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from laconic.data import BadTable, MalformedFile, convert, parquet, read

from .files import NAMED, dump_csv, dump_parquet, small_table

COLUMNS = {
    "age": [30, 40, 50, 30],
    "area": ["B", "A", "B", "C"],
    "power": [9, 10, 9, 10],
    "exposure": [0.5, 1.0, 0.25, 1.0],
    "fuel": ["diesel", "petrol", "petrol", "diesel"],
}
DUMPS = {"csv": "claims.csv", "parquet": "claims.parquet"}


def dump(path, columns):
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    else:
        rows = zip(*columns.values(), strict=True)
        path.write_text(
            "\n".join([",".join(columns), *(",".join("" if x is None else str(x) for x in r) for r in rows), ""])
        )
    return path


@pytest.mark.parametrize("file", DUMPS.values(), ids=DUMPS)
def test_one_hot_and_classes(file, tmp_path):
    path = dump(tmp_path / file, COLUMNS)
    options = {"target": "fuel", "sample_weight": "exposure", "one_hot": ("area", "power")}
    table = read(path, **options)
    assert table.feature_names == ("age", "area=A", "area=B", "area=C", "power=9", "power=10")
    assert table.X.tolist() == [[30, 0, 1, 0, 1, 0], [40, 1, 0, 0, 0, 1], [50, 0, 1, 0, 1, 0], [30, 0, 0, 1, 0, 1]]
    assert table.classes == ("diesel", "petrol")
    assert table.y.tolist() == [0, 1, 1, 0]
    assert table.sample_weight.tolist() == COLUMNS["exposure"]
    assert torch.equal(read(path, columns=(2, 5), **options).X, table.X[:, 2:5])
    convert(path, tmp_path / "a.safetensors", **options)
    stored = read(tmp_path / "a.safetensors")
    assert (stored.feature_names, stored.classes) == (table.feature_names, table.classes)
    assert torch.equal(stored.X.float(), table.X)


@pytest.mark.parametrize("file", DUMPS.values(), ids=DUMPS)
def test_a_column_and_a_category_of_one_name(file, tmp_path):
    columns = {"area": ["A", "B"], "area=C": [3, 4], "y": [1, 2]}
    assert read(dump(tmp_path / file, columns), target="y", one_hot=("area",)).X.tolist() == [[1, 0, 3], [0, 1, 4]]
    columns["area"][1] = "C"
    with pytest.raises(BadTable, match="a column and a category would both be named 'area=C'; rename one"):
        read(dump(tmp_path / file, columns), target="y", one_hot=("area",))


@pytest.mark.parametrize("file", DUMPS.values(), ids=DUMPS)
def test_categories_of_an_old_model(file, tmp_path):
    path = dump(tmp_path / file, {"area": ["B", "A"], "y": [1, 2]})
    assert read(path, target="y", one_hot={"area": ["A", "B", "C"]}).X.tolist() == [[0, 1, 0], [1, 0, 0]]
    with pytest.raises(BadTable, match="column 'area' has category 'B' in row 1, which is not one of 'A', 'C'"):
        read(path, target="y", one_hot={"area": ["A", "C"]})


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_categorical_columns_are_spread_out_by_themselves(kind, tmp_path):
    values = pa.array([9, 10, 9], pa.int8()).cast(kind).dictionary_encode()
    path = dump(tmp_path / "a.parquet", {"age": [30, 40, 50], "power": values, "y": [0, 1, 1]})
    table = read(path, target="y")
    assert (table.feature_names, table.one_hot) == (("age", "power=9", "power=10"), {"power": ["9", "10"]})
    assert table.X.tolist() == [[30, 1, 0], [40, 0, 1], [50, 1, 0]]
    assert read(path, target="power", exclude=("y",)).classes == ("9", "10")
    convert(path, tmp_path / "a.safetensors", target="y")
    assert read(tmp_path / "a.safetensors").one_hot == {"power": ["9", "10"]}


@pytest.mark.parametrize("file", DUMPS.values(), ids=DUMPS)
def test_features_only(file, tmp_path):
    path = dump(tmp_path / file, {"a": [1, 2], "b": [3, 4]})
    table = read(path, target=False)
    assert table.X.tolist() == [[1, 3], [2, 4]]
    assert table.y.isnan().all()
    assert read(path, target=False, columns=(1, 1)).X.shape == (2, 0)
    convert(path, tmp_path / "a.safetensors", target=False)
    assert read(tmp_path / "a.safetensors").y.isnan().all()


@pytest.mark.parametrize("file", DUMPS.values(), ids=DUMPS)
def test_truth_values_are_numbers(file, tmp_path):
    path = dump(tmp_path / file, {"a": [True, False, False], "b": [1.5, 2, 3], "y": [False, True, True]})
    table = read(path, target="y")
    assert (table.X.tolist(), table.y.tolist()) == ([[1, 1.5], [0, 2], [0, 3]], [0, 1, 1])
    assert read(path, target="b", one_hot=("a",), exclude=("y",)).X.tolist() == [[0, 1], [1, 0], [1, 0]]


TRUTHS = {"csv": ["TRUE", "False", "true"], "parquet": [True, False, True], "text.parquet": ["TRUE", "False", "true"]}


@pytest.mark.parametrize("name", TRUTHS)
def test_categories_of_truth_values_are_spelled_alike(name, tmp_path):
    path = dump(tmp_path / f"a.{name}", {"a": TRUTHS[name], "y": [1, 2, 3]})
    for one_hot in (("a",), {"a": ["False", "True"]}):
        table = read(path, target="y", one_hot=one_hot)
        assert table.feature_names == ("a=false", "a=true")
        assert table.X.tolist() == [[0, 1], [1, 0], [0, 1]]


@pytest.mark.parametrize("file", DUMPS.values(), ids=DUMPS)
def test_what_is_left_out_may_be_anything(file, tmp_path):
    path = dump(tmp_path / file, {"id": ["k1", "k2"], "a": [1, 2], "note": ["", "x"]})
    assert read(path, target=False, exclude=("id", "note")).X.tolist() == [[1], [2]]
    assert read(path, target="a", exclude=("id", "note")).X.shape == (2, 0)


WRONG = [
    ({}, "which column is the target\\? Give target=..., one of 'age', 'area'"),
    ({"target": "ages"}, "has no column 'ages'; near names: 'age'"),
    ({"target": "zzz"}, "has no column 'zzz'; it has: 'age'"),
    ({"target": 5}, "has 5 columns, there is no column number 5"),
    (
        {"target": "age"},
        "column 'area' is not numeric; leave it out with exclude=\\('area',\\) .* one_hot=\\('area',\\)",
    ),
    ({"target": "age", "exclude": ("area", "fule")}, "has no column 'fule'; near names: 'fuel'"),
    ({"target": "age", "one_hot": ("aera",)}, "has no column 'aera'; near names: 'area'"),
    (
        {"target": "area", "one_hot": ("area",)},
        "'area': one_hot=.'area',. is to make features of it, and it is left out",
    ),
    ({"target": "age", "one_hot": ("area",), "exclude": ("area",)}, "'area': one_hot=.'area',. is to make features"),
    ({"target": "age", "sample_weight": "fuel", "exclude": ("area",)}, "'fuel' is not numeric and cannot be a weight"),
]


@pytest.mark.parametrize("file", DUMPS.values(), ids=DUMPS)
@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_columns(file, options, message, tmp_path):
    with pytest.raises(BadTable, match=message):
        read(dump(tmp_path / file, COLUMNS), **options)


@pytest.mark.parametrize("file", DUMPS.values(), ids=DUMPS)
@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("age", r"X is nan in row 3, column 1 \('age'\)"),
        ("exposure", "exposure is nan in row 3"),
        ("area", "column 'area' is empty in row 3"),
        ("power", "power is nan in row 3"),
    ],
)
def test_gaps(file, column, message, tmp_path):
    columns = {**COLUMNS, column: [*COLUMNS[column][:2], None, COLUMNS[column][3]]}
    with pytest.raises(BadTable, match=rf"{file}: {message}"):
        read(
            dump(tmp_path / file, columns),
            target="power",
            sample_weight="exposure",
            one_hot=("area",),
            exclude=("fuel",),
        )


@pytest.mark.parametrize("file", DUMPS.values(), ids=DUMPS)
def test_negative_weight_and_infinity(file, tmp_path):
    path = dump(tmp_path / file, {"a": [1.0, float("inf")], "w": [1, -1], "y": [0, 1]})
    with pytest.raises(BadTable, match=r"X is inf in row 2, column 1 \('a'\)"):
        read(path, target="y", exclude=("w",))
    with pytest.raises(BadTable, match=r"w is -1\.0 in row 2; a weight cannot be negative"):
        read(path, target="y", sample_weight="w", exclude=("a",))


@pytest.mark.parametrize("file", DUMPS.values(), ids=DUMPS)
@pytest.mark.parametrize(
    ("column", "message"), [("w", "w is -1.0 in row 41"), ("o", "o is nan in row 41"), ("y", "y is nan in row 41")]
)
def test_rows_are_counted_over_blocks(file, column, message, tmp_path, monkeypatch):
    monkeypatch.setattr("laconic.data.csv.BLOCK_BYTES", 64)
    monkeypatch.setattr("laconic.data.parquet.rows_at_once", lambda n_columns: 7)
    columns = {name: [1.0] * 50 for name in ("a", "w", "o", "y")}
    columns[column][40] = -1.0 if column == "w" else None
    with pytest.raises(BadTable, match=message):
        read(dump(tmp_path / file, columns), target="y", sample_weight="w", offset="o")


MALFORMED_CSV = [
    ("\ufeffa,y\n1,2\nx,3\n", 3, 1, "expected a number in 'a', found 'x'"),
    ("a,b,y\n1,2,3\n4,5\n", 3, 3, "expected 3 fields, found 2"),
    ("a,b,y\n1,2,3\n4,5,6,7\n", 3, 4, "expected 3 fields, found 4"),
    ("a,b,y\n1,2,3\n\n4,x5,6\n", 4, 2, "expected a number in 'b', found 'x5'"),
    ('a,b,y\n1,2,3\n4,5,6\n"1 000",2,3\n', 4, 1, "expected a number in 'a', found '1 000'"),
    ('a,b,y\n1,2,3\n4,"5,6\n' + "7,8,9\n" * 20, 23, 3, "expected 3 fields, found 2"),
    ("", 1, 1, "expected a header line, found an empty file"),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), MALFORMED_CSV)
def test_malformed_csv(text, line, column, message, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(MalformedFile) as caught:
        read(path, target="y")
    assert str(caught.value) == f"{path}, line {line}, column {column}: {message}"


@pytest.mark.parametrize("text", ["größe,y\n1,2\n", "a,y\n1,größe\n1,klein\n"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "latin-1"])
def test_text_in_another_encoding(encoding, text, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_bytes(("\ufeff" * (encoding == "utf-16-be") + text).encode(encoding))
    with pytest.raises(MalformedFile, match=r"bad\.csv: expected text in UTF-8.*; save it as UTF-8"):
        read(path, target="y")


@pytest.mark.parametrize("line", [1, 2, 3])
def test_a_field_beyond_what_csv_takes(line, tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("a,y\n1,2\n"[: 4 * (line - 1)] + f"{'x' * 200_000},3\n")
    message = rf"long\.csv, line {line}: not CSV as expected: field larger than field limit"
    with pytest.raises(MalformedFile, match=message):
        read(path, target="y")


def test_text_after_the_first_block_of_a_csv(tmp_path, monkeypatch):
    """Types are told from the first block; what comes later must still be a line and a column."""
    monkeypatch.setattr("laconic.data.csv.BLOCK_BYTES", 64)
    path = tmp_path / "bad.csv"
    path.write_text("a,y\n" + "1,2\n" * 100 + "oops,2\n")
    with pytest.raises(MalformedFile, match="line 102, column 1: expected a number in 'a', found 'oops'"):
        read(path, target="y")
    path.write_text("a,y\n" + "true,2\n" * 100 + "1,2\n")
    with pytest.raises(MalformedFile, match="line 102, column 1: expected true or false in 'a', found '1'"):
        read(path, target="y")
    path.write_text("a,y\n" + "1,2\n" * 100 + "1.5,2.5\n")
    table = read(path, target="y")
    assert (table.n_rows, table.X[-1].tolist(), table.y[-1].item()) == (101, [1.5], 2.5)


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_lines_that_end_within_quotes(block_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr("laconic.data.csv.BLOCK_BYTES", block_bytes)
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,note,y\r\n" + b'1,"two\nlines, and a ""quote""",0\r\n2,"",1\r\n' * 40)
    table = read(path, target="y", exclude="note")
    assert (table.X.flatten().tolist(), table.y.tolist()) == ([1, 2] * 40, [0, 1] * 40)


def test_text_that_was_meant_as_a_number_is_shown(tmp_path):
    (tmp_path / "a.csv").write_text("a;y\n1,5;0\n2,5;1\n")
    with pytest.raises(BadTable, match=r"'a' is not numeric; .*; line 2: expected a number in 'a', found '1,5'"):
        read(tmp_path / "a.csv", target="y")


def test_two_columns_of_one_name(tmp_path):
    (tmp_path / "a.csv").write_text("a,a,y\n1,2,3\n")
    with pytest.raises(BadTable, match="two columns named 'a'"):
        read(tmp_path / "a.csv", target="y")


def test_parquet_reads_only_its_columns(tmp_path, monkeypatch):
    path, asked = dump_parquet(tmp_path / "a.parquet", small_table()), []
    batches = parquet._batches
    monkeypatch.setattr(parquet, "_batches", lambda path, names, n: asked.append(names) or batches(path, names, n))
    iterate = pq.ParquetFile.iter_batches

    def spy(self, *args, **options):
        for batch in iterate(self, *args, **options):
            asked.append(batch.schema.names)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    read(path, columns=(3, 5), **NAMED)
    assert {tuple(sorted(names)) for names in asked} == {("label", "o", "w", "x3", "x4")}


@pytest.mark.parametrize(
    "values", [[[1.0], [2.0]], [{"a": 1}, {"a": 2}], [b"\xff", b"a"]], ids=["list", "struct", "bytes"]
)
def test_parquet_that_is_neither_number_nor_text(values, tmp_path):
    path = dump(tmp_path / "a.parquet", {"z": values, "x": [1, 2]})
    message = "column 'z' is .*, which cannot be made categories of; leave it out"
    for options in ({"target": "x", "one_hot": ("z",)}, {"target": "z"}):
        with pytest.raises(BadTable, match=message):
            read(path, **options)
    assert read(path, target="x", exclude=("z",)).X.shape == (2, 0)


def test_not_parquet(tmp_path):
    (tmp_path / "a.parquet").write_text("nothing of the kind")
    with pytest.raises(MalformedFile, match="not a Parquet file"):
        read(tmp_path / "a.parquet", target="y")
    whole = dump_parquet(tmp_path / "b.parquet", small_table()).read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MalformedFile, match="not a Parquet file"):
        read(tmp_path / "b.parquet", **NAMED)


def test_not_csv(tmp_path):
    path = dump_csv(tmp_path / "a.csv", small_table())
    path.write_bytes(b"\xff\xfe\x00bad" + path.read_bytes())
    with pytest.raises((MalformedFile, BadTable)):
        read(path, **NAMED)
