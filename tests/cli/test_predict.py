"""`laconic predict`: the model's own predictions, in every output format, and one clear line for every mistake."""

import csv
import errno
import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
import typer

from laconic import CASGDRegressor, atomic_write
from laconic.cli import app, main
from laconic.data import Source, Table, convert, write_store
from laconic.glm.model import Model

NAMES = ("age", "size", "area=A", "area=B")
COEF = torch.tensor([[0.5, -1.0, 0.25, -0.25]])
ROWS = [(1.0, 2.0, "A", 0.5), (-1.0, 0.5, "B", 1.0), (0.0, 0.0, "B", 2.0)]


@pytest.fixture
def models(tmp_path):
    inputs = {"one_hot": {"area": ["A", "B"]}, "offset": None, "exposure": None}
    made = {
        "logistic": Model(COEF, torch.tensor([0.1]), "logistic", ("no", "yes"), NAMES, inputs),
        "linear": Model(COEF, torch.tensor([0.1]), "linear", None, NAMES, inputs),
        "poisson": Model(COEF, torch.tensor([0.1]), "poisson", None, NAMES, {**inputs, "exposure": "years"}),
        "numbers": Model(COEF.repeat(3, 1) * torch.tensor([[1.0], [2.0], [-1.0]]), torch.zeros(3), "multinomial",
                         (1, 2, 5)),
    }  # fmt: skip
    for name, model in made.items():
        model.save(tmp_path / f"{name}.safetensors")
    return made


@pytest.fixture
def rows(tmp_path):
    """The columns in another order than the model's, and one that it does not know."""
    path = tmp_path / "rows.csv"
    lines = [f"{size},name{i},{area},{age},{years}" for i, (age, size, area, years) in enumerate(ROWS)]
    path.write_text("\n".join(["size,name,area,age,years", *lines]) + "\n")
    return path


X = torch.tensor([[age, size, float(area == "A"), float(area == "B")] for age, size, area, _ in ROWS])
YEARS = torch.tensor([years for *_, years in ROWS])


def predict(capsys, *arguments):
    assert main(["predict", *map(str, arguments)]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert not err
    return out


def test_to_stdout(models, rows, tmp_path, capsys):
    out = predict(capsys, tmp_path / "logistic.safetensors", rows)
    assert out.splitlines() == ["prediction", *models["logistic"].predict(X).tolist()]
    out = predict(capsys, tmp_path / "linear.safetensors", rows)
    assert [float(line) for line in out.splitlines()[1:]] == models["linear"].predict(X).tolist()


def test_probabilities(models, rows, tmp_path, capsys):
    out = predict(capsys, tmp_path / "logistic.safetensors", rows, "--proba")
    head, *lines = csv.reader(io.StringIO(out))
    assert head == ["no", "yes"]
    assert np.array(lines, dtype=float).tolist() == models["logistic"].predict_proba(X).double().tolist()


def test_the_models_exposure_is_used_where_it_is_there(models, rows, tmp_path, capsys):
    expected = YEARS * torch.from_numpy(models["poisson"].predict(X))
    out = predict(capsys, tmp_path / "poisson.safetensors", rows)
    assert [float(line) for line in out.splitlines()[1:]] == pytest.approx(expected.tolist(), rel=1e-6)
    without = tmp_path / "without.csv"
    without.write_text("".join(f"{line.rsplit(',', 1)[0]}\n" for line in rows.read_text().splitlines()))
    out = predict(capsys, tmp_path / "poisson.safetensors", without)
    assert [float(line) for line in out.splitlines()[1:]] == pytest.approx(models["poisson"].predict(X), rel=1e-6)


@pytest.mark.parametrize("margin", ["exposure", "offset"])
def test_a_model_of_a_store_knows_the_columns_that_the_store_was_made_of(rows, tmp_path, capsys, margin):
    how = {"one_hot": ["area"], "exclude": ["name"], "target": "count", margin: "years"}
    source, table = tmp_path / "counts.csv", rows.read_text().splitlines()
    source.write_text("\n".join(f"{line},{count}" for line, count in zip(table, ["count", 1, 4, 2], strict=True)))
    convert(Source(source, **how), tmp_path / "counts.safetensors", dtype="fp64")
    model = CASGDRegressor("poisson").fit(tmp_path / "counts.safetensors")
    model.save(tmp_path / "model.safetensors")
    out = [
        predict(capsys, tmp_path / "model.safetensors", tmp_path / f"counts.{kind}") for kind in ("csv", "safetensors")
    ]
    of_csv, of_store = ([float(line) for line in one.splitlines()[1:]] for one in out)
    assert of_csv == pytest.approx(of_store, rel=1e-6)
    assert "years" not in model.feature_names_in_


@pytest.mark.parametrize("proba", [False, True])
def test_files_hold_the_same(models, rows, tmp_path, capsys, proba):
    import pyarrow.parquet as pq

    more = ["--proba"] if proba else []
    for name in ("out.csv", "out.npy", "out.parquet"):
        assert not predict(capsys, tmp_path / "logistic.safetensors", rows, "-o", tmp_path / name, *more)
    out = predict(capsys, tmp_path / "logistic.safetensors", rows, *more)
    assert (tmp_path / "out.csv").read_text() == out
    model = models["logistic"]
    expected = model.predict_proba(X).numpy() if proba else model.predict(X)
    array = np.load(tmp_path / "out.npy", allow_pickle=False)
    assert array.shape == expected.shape
    assert (array == expected).all()
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == (["no", "yes"] if proba else ["prediction"])
    assert table.column(0).to_pylist() == (expected[:, 0] if proba else expected).tolist()


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_float64_model_reads_float64(tmp_path, capsys, name):
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet as pq

    seconds = pa.table({"seconds": [1.7e9 + 1, 1.7e9 + 2, 1.7e9 + 3.5]})
    (arrow_csv.write_csv if name.endswith("csv") else pq.write_table)(seconds, tmp_path / name)
    like = {"dtype": torch.float64}
    model = Model(torch.ones(1, 1, **like), torch.tensor([-1.7e9], **like), "linear", None, ("seconds",))
    model.save(tmp_path / "wide.safetensors")
    out = predict(capsys, tmp_path / "wide.safetensors", tmp_path / name)
    assert [float(line) for line in out.splitlines()[1:]] == [1, 2, 3.5]


@pytest.mark.parametrize("train", ["train.svm", "train.safetensors"])
@pytest.mark.parametrize("base", [0, 1])
def test_libsvm_columns_count_from_where_the_model_s_did(tmp_path, capsys, train, base):
    """A file may not use its first column: what column an index is must not depend on that."""
    (tmp_path / "train.svm").write_text(f"1 {base}:2 {base + 1}:1\n0 {base + 1}:-1\n1 {base}:1\n" * 5)
    if train.endswith("safetensors"):
        convert(tmp_path / "train.svm", tmp_path / train)
    test, model = tmp_path / "new.svm", tmp_path / "m.safetensors"
    test.write_text(f"1 {base + 1}:1\n")
    options = ["--max-iter", "3", "--json", "-q"] + (["--test", str(test)] if train.endswith("svm") else [])
    assert main(["fit", str(tmp_path / train), "-o", str(model), *options]) == 0
    said, expected = json.loads(capsys.readouterr().out), Model.load(model).predict_proba(torch.tensor([[0.0, 1.0]]))
    out = predict(capsys, model, test, "--proba")
    assert [float(p) for p in out.splitlines()[1].split(",")] == pytest.approx(expected[0].tolist(), rel=1e-6)
    if said["test_metrics"]:
        assert said["test_metrics"]["log_loss"] == pytest.approx(-float(expected[0, 1].log()), abs=1e-6)
    if base == 1:
        test.write_text("1 0:1\n")
        assert main(["predict", str(model), str(test)]) == 2
        assert "new.svm: has index 0, and columns were to count from 1" in capsys.readouterr().err


def test_stores_and_libsvm(models, tmp_path, capsys):
    write_store(tmp_path / "rows.safetensors", Table(X, torch.zeros(len(X), dtype=torch.int64)), "fp32")
    (tmp_path / "rows.svm").write_text("0 1:1 2:2 3:1\n0 1:-1 2:0.5 4:1\n0 4:1\n")
    np.save(tmp_path / "X.npy", X.double().numpy())
    expected = ["prediction", *map(str, models["numbers"].predict(X).tolist())]
    for name in ("rows.safetensors", "rows.svm", "X.npy"):
        assert predict(capsys, tmp_path / "numbers.safetensors", tmp_path / name).splitlines() == expected


@pytest.mark.parametrize("name", ["X.npy", "matrix.npy", "rows.npz", "rows.safetensors"])
def test_no_target_is_needed(models, tmp_path, capsys, name):
    path, offset = tmp_path / name, np.array([0.5, -0.5, 0.0])
    if name.endswith("npz"):
        np.savez(path, X=X.numpy(), offset=offset)
    elif name.endswith("npy"):
        np.save(path, X.numpy())
        np.save(tmp_path / "y.npy", np.zeros(99))  # of other rows: not even looked at
        np.save(tmp_path / "offset.npy", offset)
    else:
        rows = [f"{','.join(map(str, row))},{o}" for row, o in zip(X.tolist(), offset, strict=True)]
        (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,d,offset", *rows]))
        convert(tmp_path / "rows.csv", path, target=False, offset="offset", dtype="fp32")
    Model(COEF, torch.tensor([0.1]), "linear").save(tmp_path / "bare.safetensors")
    options = ["--offset", "offset.npy"] if name.endswith("npy") else []
    out = predict(capsys, tmp_path / "bare.safetensors", path, *options)
    found = np.array(out.splitlines()[1:], float)
    assert np.allclose(found, (X @ COEF[0] + 0.1).numpy() + offset, atol=1e-6)


def test_many_blocks(models, tmp_path, capsys):
    wide = torch.randn(200_000, 4, generator=torch.Generator().manual_seed(0))
    write_store(tmp_path / "rows.safetensors", Table(wide, torch.zeros(len(wide), dtype=torch.int64)), "fp32")
    predict(capsys, tmp_path / "linear.safetensors", tmp_path / "rows.safetensors", "-o", tmp_path / "out.npy")
    assert np.allclose(np.load(tmp_path / "out.npy"), models["linear"].predict(wide), atol=1e-6)


def test_report(models, rows, tmp_path, capsys):
    out = predict(capsys, tmp_path / "linear.safetensors", rows, "-o", tmp_path / "out.csv", "--json")
    assert json.loads(out)["n_rows"] == 3


def test_no_rows(models, tmp_path, capsys):
    write_store(tmp_path / "rows.safetensors", Table(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)), "fp32")
    for name in ("out.csv", "out.npy", "out.parquet"):
        predict(capsys, tmp_path / "linear.safetensors", tmp_path / "rows.safetensors", "-o", tmp_path / name)
    assert np.load(tmp_path / "out.npy").shape == (0,)


def test_a_reader_may_stop(models, tmp_path):
    wide = torch.zeros(100_000, 4)
    write_store(tmp_path / "rows.safetensors", Table(wide, torch.zeros(len(wide), dtype=torch.int64)), "fp32")
    code = "import sys; from laconic.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "predict", "linear.safetensors", "rows.safetensors"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 1


WRONG = {
    "no model": (["none.safetensors", "rows.csv"], "there is no file none.safetensors"),
    "a folder for a model": ([".", "rows.csv"], ". is a folder; give a file"),
    "no model at all": (["rows.csv", "rows.csv"], "rows.csv is not a model of laconic"),
    "a store": (["rows.safetensors", "rows.csv"], "is not a model of laconic: it holds"),
    "no data": (["linear.safetensors", "none.csv"], "there is no file none.csv"),
    "missing column": (["linear.safetensors", "short.csv"], "short.csv has no column 'size', which the model needs"),
    "unknown category": (["linear.safetensors", "new.csv"], "'C' in row 1, which is not one of 'A', 'B'"),
    "features": (["linear.safetensors", "rows.safetensors"], "has 2 features and the model 4"),
    "too many": (["linear.safetensors", "rows.svm"], "rows.svm has 9 features and the model 4"),
    "a feature as offset": (
        ["linear.safetensors", "rows.csv", "--offset", "age"],
        "column 'age' is a feature of the model; it cannot be the target, weight or offset, too",
    ),
    "text": (["linear.safetensors", "text.csv"], "'size' is not numeric, as it was where the model was fitted"),
    "no matrix": (["linear.safetensors", "torn.npy"], "torn.npy: not an .npy file of plain numbers"),
    "proba": (["linear.safetensors", "rows.csv", "--proba"], "--proba is for classes"),
    "own rows": (
        ["linear.safetensors", "rows.csv", "-o", "rows.csv"],
        "cannot write rows.csv: it is a file",
    ),
    "suffix": (["linear.safetensors", "rows.csv", "-o", "out.txt"], "predictions go to .csv, .parquet, .npy"),
    "folder": (["linear.safetensors", "rows.csv", "-o", "none/out.csv"], "there is no folder none"),
    "json": (["linear.safetensors", "rows.csv", "--json"], "--json needs --output"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(models, rows, tmp_path, capsys, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.csv").write_text("age,area\n1,A\n")
    (tmp_path / "text.csv").write_text("age,size,area\n1,x,A\n")
    (tmp_path / "new.csv").write_text("age,size,area\n1,2,C\n")
    (tmp_path / "rows.svm").write_text("0 9:1\n")
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY")
    write_store(tmp_path / "rows.safetensors", Table(torch.ones(2, 2), torch.tensor([0, 1])))
    before = sorted(tmp_path.iterdir())
    assert main(["predict", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("laconic: ")
    assert err.count("\n") == 1
    assert said in err
    assert not set(re.findall(r"--[a-z-]+", err)) - set(predict_options())
    assert sorted(tmp_path.iterdir()) == before


def predict_options():
    """What `laconic predict` has: messages may name nothing else."""
    command = typer.main.get_command(app).commands["predict"]
    return [flag for option in command.params for flag in option.opts]


def test_a_full_disk_leaves_what_was_there(models, rows, tmp_path, capsys, monkeypatch):
    (tmp_path / "out.csv").write_text("old")
    before = sorted(tmp_path.iterdir())

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_write.os, "fsync", full)
    assert main(["predict", str(tmp_path / "linear.safetensors"), str(rows), "-o", str(tmp_path / "out.csv")]) == 2
    assert "no room of" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "out.csv").read_text() == "old"
