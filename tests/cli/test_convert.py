"""`laconic convert`: the same rows in a store, and one clear line for every mistake."""

import errno
import json
import os

import pytest
import torch

from laconic.cli import main
from laconic.data import open_store, store_writer

CSV = "a,b,area,years,w,y\n1,2,N,0.5,1,0\n3,4,S,2,2,3\n5,6,N,1,0,1\n"


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(CSV)
    return path


def convert(capsys, *arguments):
    assert main(["convert", *map(str, arguments)]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert not err
    return out


@pytest.mark.parametrize(
    ("dtype", "kind"), [("bf16", torch.bfloat16), ("fp32", torch.float32), ("fp64", torch.float64)]
)
def test_rows_are_the_same(csv, tmp_path, capsys, dtype, kind):
    store = tmp_path / "rows.safetensors"
    options = ["--target", "y", "--weight", "w", "--exposure", "years", "--one-hot", "area"]
    out = convert(capsys, csv, store, "--dtype", dtype, *options)
    assert f"3 rows × 4 columns, dense, {str(kind).removeprefix('torch.')}" in out
    table = open_store(store)
    assert table.X.dtype == kind
    assert table.X.tolist() == [[1, 2, 1, 0], [3, 4, 0, 1], [5, 6, 1, 0]]
    assert table.feature_names == ("a", "b", "area=N", "area=S")
    assert table.y.tolist() == [0, 3, 1]
    assert table.sample_weight.tolist() == [1, 2, 0]
    assert torch.equal(table.offset, torch.tensor([0.5, 2, 1], dtype=torch.float64).log())


def test_libsvm_stays_sparse_unless_told(tmp_path, capsys):
    (tmp_path / "rows.svm").write_text("1 1:0.5 3:2\n0 2:1\n")
    made = json.loads(convert(capsys, tmp_path / "rows.svm", tmp_path / "s.safetensors", "--json", "--n-features", "5"))
    assert made["is_sparse"] is True
    assert (made["n_rows"], made["n_columns"]) == (2, 5)
    made = json.loads(convert(capsys, tmp_path / "rows.svm", tmp_path / "d.safetensors", "--dense", "--json"))
    assert made["is_sparse"] is False
    assert open_store(tmp_path / "d.safetensors").X.tolist() == [[0.5, 0, 2], [0, 1, 0]]


def test_a_store_in_another_type(csv, tmp_path, capsys):
    convert(capsys, csv, tmp_path / "a.safetensors", "--target", "y", "--drop", "area", "--dtype", "fp32")
    convert(capsys, tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert open_store(tmp_path / "b.safetensors").X.dtype == torch.bfloat16


def test_rows_are_counted_over_blocks(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("laconic.data.csv.BLOCK_BYTES", 32)
    (tmp_path / "rows.csv").write_text("a,e,y\n" + "1,1,0\n" * 30 + "1,0,1\n")
    command = [tmp_path / "rows.csv", tmp_path / "out.safetensors", "--target", "y", "--exposure", "e"]
    assert main(["convert", *map(str, command)]) == 2
    assert "e is 0.0 in row 31; an exposure must be positive" in capsys.readouterr().err


WRONG = {
    "no such file": (["none.csv", "out.safetensors"], "there is no file none.csv"),
    "malformed": (["bad.svm", "out.safetensors"], "bad.svm, line 2, column"),
    "NaN": (["nan.csv", "out.safetensors", "--target", "y"], "X is nan in row 2"),
    "suffix": (["rows.csv", "out.parquet", "--target", "y"], "a store's name ends in .safetensors"),
    "dtype": (["rows.csv", "out.safetensors", "--dtype", "int8"], "dtype must be one of fp32, bf16, fp64"),
    "target": (["rows.csv", "out.safetensors"], "Give --target"),
    "column": (["rows.csv", "out.safetensors", "--target", "z"], "has no column 'z'"),
    "drop": (["rows.csv", "out.safetensors", "--target", "y", "--drop", "q"], "has no column 'q'"),
    "text": (["rows.csv", "out.safetensors", "--target", "y"], "--one-hot area"),
    "itself": (["old.safetensors", "old.safetensors"], "old.safetensors: it is a file that is read for it"),
    "folder": (["rows.csv", "none/out.safetensors"], "there is no folder none"),
    "dense": (["rows.csv", "out.safetensors", "--target", "y", "--drop", "area", "--dense"], "--dense is for LIBSVM"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(csv, tmp_path, capsys, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.svm").write_text("1 1:2\n0 1:1 2;3\n")
    (tmp_path / "nan.csv").write_text("a,y\n1,0\nnan,1\n")
    (tmp_path / "old.safetensors").write_bytes(b"a store")
    before = sorted(tmp_path.iterdir())
    assert main(["convert", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("laconic: ")
    assert err.count("\n") == 1
    assert said in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk_leaves_nothing(csv, tmp_path, capsys, monkeypatch):
    def full(handle, *rest):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(store_writer.os, "fsync", full)
    command = ["convert", str(csv), str(tmp_path / "out.safetensors"), "--target", "y", "--drop", "area"]
    assert main(command) == 2
    assert "no room for the" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
