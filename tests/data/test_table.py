"""What a table refuses, and what NPY files can hold."""

import numpy as np
import pytest
import torch
from scipy.sparse import csc_array, csr_array

from laconic.data import BadTable, MalformedFile, Table, as_target, check_finite, collect, read, rows_of

from .files import dump_npy, small_table, sparse

X, Y = torch.ones(3, 2), torch.tensor([0, 1, 0])

BAD_TABLES = [
    ((X, Y[:2]), {}, r"X has 3 rows and y has shape \(2,\)"),
    ((X, Y.view(3, 1)), {}, r"y has shape \(3, 1\)"),
    ((X, Y.int()), {}, "y must be int64 or float64, not torch.int32"),
    ((X, Y), {"sample_weight": torch.ones(4)}, r"X has 3 rows and sample_weight has shape \(4,\)"),
    ((X, Y), {"offset": torch.ones(4)}, r"X has 3 rows and offset has shape \(4,\)"),
    ((X[0], Y), {}, "X must have two dimensions"),
    ((X.long(), Y), {}, "X must be float32, bfloat16 or float64, not torch.int64"),
    ((torch.ones(2, 3).T, Y), {}, "X must be row-major"),
    ((X, Y), {"columns": (1, 2), "n_features": 5}, r"X has 2 columns and columns=\(1, 2\) needs 1"),
    ((X, Y), {"columns": (4, 6), "n_features": 5}, "columns must lie within 0 to 5, got 4 to 6"),
    ((X, Y), {"feature_names": ("a",)}, "there are 1 feature names and 2 features"),
    ((csc_array(np.ones((3, 2), np.float32)), Y), {}, "csc of float32"),
    ((csr_array(np.ones((3, 2))), Y), {}, "csr of float64"),
    (([[1.0]], Y), {}, "not list of unknown type"),
]


@pytest.mark.parametrize(("arguments", "options", "message"), BAD_TABLES)
def test_bad_tables(arguments, options, message):
    with pytest.raises(BadTable, match=message):
        Table(*arguments, **options)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_non_finite(value, is_sparse, dtype, monkeypatch):
    monkeypatch.setattr("laconic.data.table._CHECKED_AT_ONCE", 30)
    table = small_table()
    table.X[30, 5] = value
    matrix = sparse(table).X if is_sparse else table.X.to(dtype)
    with pytest.raises(BadTable, match=f"X is {value} in row 31, column 6;"):
        check_finite(matrix)
    with pytest.raises(BadTable, match=f"X is {value} in row 131, column 16;"):
        check_finite(matrix, first_row=100, first_column=10)


def test_finite_values_whose_sum_is_not():
    check_finite(torch.full((4, 4), 3e38))


TARGETS = [
    ([1, 2], torch.int64),
    ([1.0, -3.0], torch.int64),
    ([True, False], torch.int64),
    ([0.5, 1.0], torch.float64),
    ([1e300], torch.float64),
    ([], torch.int64),
]


@pytest.mark.parametrize(("values", "dtype"), TARGETS)
def test_targets(values, dtype):
    assert as_target(np.array(values)).dtype == dtype


def test_bad_targets():
    with pytest.raises(BadTable, match="y is nan in row 2"):
        as_target([1.0, float("nan")])
    with pytest.raises(BadTable, match="y must have one dimension"):
        as_target([[1.0]])


def test_collect_is_for_dense_rows():
    with pytest.raises(BadTable, match="dense rows"):
        collect(rows_of(sparse(small_table())))


def test_npy_is_mapped_and_private(tmp_path):
    path = dump_npy(tmp_path / "X.npy", small_table())
    before = path.read_bytes()
    table = read(path)
    table.X.add_(1)
    assert path.read_bytes() == before


ARRAYS = {
    "fortran": np.asfortranarray(small_table().X.numpy()),
    "big-endian": small_table().X.numpy().astype(">f8"),
    "float16": small_table().X.numpy().astype(np.float16),
    "double": small_table().X.numpy().astype(np.float64),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_npy_of_other_kinds(name, tmp_path):
    path = dump_npy(tmp_path / "train_X.npy", small_table())
    (tmp_path / "y.npy").rename(tmp_path / "train_y.npy")
    np.save(path, ARRAYS[name])
    assert read(path).X.dtype == (torch.float64 if name in ("big-endian", "double") else torch.float32)
    assert torch.equal(read(path, dtype="fp32").X, small_table().X)


BAD_ARRAYS = [
    (np.array([[None]]), MalformedFile, "not an .npy file of plain numbers"),
    (np.array([["a"]]), BadTable, "expected numbers"),
    (np.ones((2, 2), complex), BadTable, "expected numbers"),
    (np.ones(3), BadTable, "X must have two dimensions"),
    (np.array([[1.0, np.nan]]), BadTable, "X is nan in row 1, column 2"),
    (np.ones((5, 2)), BadTable, "X has 5 rows and y has shape"),
]


@pytest.mark.parametrize(("array", "error", "message"), BAD_ARRAYS)
@pytest.mark.parametrize("file", ["X.npy", "a.npz"])
def test_bad_npy(array, error, message, file, tmp_path):
    path, y = tmp_path / file, np.ones(1)
    if file == "a.npz":
        np.savez(path, X=array, y=y)
    else:
        np.save(path, array)
        np.save(tmp_path / "y.npy", y)
    with pytest.raises(error, match=message.replace(".npy", ".np.") if error is MalformedFile else message):
        read(path)


def test_npy_without_y(tmp_path):
    np.save(tmp_path / "data.npy", np.ones((2, 2)))
    with pytest.raises(BadTable, match="where is y"):
        read(tmp_path / "data.npy")
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2)), Y=np.ones(2))
    with pytest.raises(BadTable, match="has no array 'y'"):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize("file", ["X.npy", "a.npz"])
def test_npy_that_is_none(file, tmp_path):
    for data in (b"", b"nothing", b"\x93NUMPY\x01\x00", b"PK\x03\x04"):
        (tmp_path / file).write_bytes(data)
        np.save(tmp_path / "y.npy", np.ones(1))
        with pytest.raises(MalformedFile, match="of plain numbers"):
            read(tmp_path / file)


def test_npy_that_claims_too_much(tmp_path):
    path = dump_npy(tmp_path / "X.npy", small_table())
    path.write_bytes(path.read_bytes().replace(b"(37, 7)", b"(37, 9)"))
    with pytest.raises(MalformedFile, match="plain numbers"):
        read(path)
