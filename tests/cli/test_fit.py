"""`laconic fit`: what it prints, which models it makes, and one clear line for every mistake."""

import errno
import json
import os

import numpy as np
import pytest
import torch

from forking import TORCHRUN, run_code
from laconic.cli import main
from laconic.cli.fit import lines
from laconic.data import Table, write_store
from laconic.glm.model import Model

M, N = 150, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((M, N)).round(3)
Z = X @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.3
BINARY = (RNG.random(M) < 1 / (1 + np.exp(-2 * Z))).astype(int)
EXPOSURE = RNG.uniform(0.2, 1.0, M).round(3)
AREA = RNG.choice(["north", "south", "west"], M)
TARGETS = {
    "label": np.where(BINARY == 1, "yes", "no"),
    "sign": 2 * BINARY - 1,
    "kind": np.where(Z > 0.8, "high", np.where(Z < -0.3, "low", "middle")),
    "number": (Z + 0.1 * RNG.standard_normal(M)).round(4),
    "count": RNG.poisson(EXPOSURE * np.exp(0.5 * Z)),
}
QUICK = ["--solver", "sgd", "--no-standardize", "--max-iter", "5", "--tol", "-1", "--json"]


@pytest.fixture
def csv(tmp_path):
    columns = {f"x{j}": X[:, j] for j in range(N)} | {"area": AREA, "w": 1 + BINARY, "exposure": EXPOSURE} | TARGETS
    path = tmp_path / "rows.csv"
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "rows.safetensors"
    write_store(path, Table(torch.from_numpy(X), torch.from_numpy(BINARY)), "fp64")
    return path


def drop(*kept):
    return ",".join(name for name in ("area", "w", "exposure", *TARGETS) if name not in kept)


def fit(capsys, *arguments, ranks=None):
    more = [] if ranks is None else ["--ranks", str(ranks)]
    assert main(["fit", *map(str, arguments), *more, "-q"]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert not err
    return json.loads(out) if "--json" in arguments else out


CASES = {
    "text of two kinds": ("label", [], "logistic", ["no", "yes"]),
    "signs": ("sign", [], "logistic", [-1, 1]),
    "text of three kinds": ("kind", [], "multinomial", ["high", "low", "middle"]),
    "two of multinomial": ("sign", ["--family", "multinomial"], "multinomial", [-1, 1]),
    "numbers": ("number", ["--family", "linear"], "linear", None),
    "counts": ("count", ["--family", "poisson", "--exposure", "exposure"], "poisson", None),
    "recipe C": ("sign", ["--recipe", "C"], "logistic", [-1, 1]),
    "weights": ("number", ["--family", "linear", "--weight", "w", "--momentum", "0.5"], "linear", None),
}


@pytest.mark.parametrize(("target", "options", "family", "classes"), CASES.values(), ids=CASES)
def test_families(csv, tmp_path, capsys, target, options, family, classes):
    output = tmp_path / "model.safetensors"
    rest = drop(target, "w" if "w" in options else "", "exposure" if "exposure" in options else "")
    report = fit(capsys, csv, "-o", output, "--target", target, "--drop", rest, *options, *QUICK)
    assert (report["family"], report["classes"]) == (family, classes)
    assert (report["n_rows"], report["n_features"], report["epochs"]) == (M, N, 5)
    model = Model.load(output)
    assert model.feature_names == ("x0", "x1", "x2", "x3")
    assert model.family == family
    assert dict(model.metrics) == report["metrics"]
    if classes:
        assert report["metrics"]["accuracy"] == np.mean(model.predict(X.astype(np.float32)) == TARGETS[target])
        assert report["metrics"]["accuracy"] > 0.7
    else:
        assert next(iter(report["metrics"].values())) > 0.15


def test_text_is_what_a_person_wants_to_know(store, tmp_path, capsys):
    quick = ["--solver", "sgd", "--max-iter", "3", "--summary"]
    out = fit(capsys, store, "-o", tmp_path / "model.safetensors", "--test", store, *quick)
    for said in (
        "150 rows × 4 columns; logistic, 2 classes (0, 1)",
        "sgd, compiled, fp64",
        "3 epochs, 15 iterations: max_iter epochs were done",
        "of what was gained is left to gain (tol 0.0001)",
        "warning: the fit did not converge; raise --max-iter or --tol",
        "standard errors from the Fisher information; dispersion 1; 95 % intervals",
        "accuracy",
        "log-loss",
        "test: accuracy",
        "fitting",
        "model.safetensors",
    ):
        assert said in out
    assert "messages" not in out


def test_two_ranks_are_one(store, tmp_path, capsys):
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    options = ["--recipe", "fp64", "--s", "4", "--batch-size", "8", "--solver", "ca_sgd", "--standardize", *QUICK]
    alone = fit(capsys, store, "-o", one, *options)
    both = fit(capsys, store, "-o", two, *options, "--test", store, ranks=2)
    assert torch.allclose(Model.load(one).coef, Model.load(two).coef, rtol=1e-12, atol=1e-14)
    assert torch.allclose(Model.load(one).intercept, Model.load(two).intercept, rtol=1e-12)
    assert both["metrics"] == pytest.approx(alone["metrics"], rel=1e-12)
    assert both["test_metrics"] == pytest.approx(both["metrics"])
    assert both["messages"] > 0
    assert both["bytes_sent"] > 0
    assert alone["one_process_seconds"] is None
    assert 0 < both["one_process_seconds"] < both["fit_seconds"]  # 400 rows pay for no message
    for seconds, said in ((1e-9, "warning: one process would"), (1e9, "one process would take about 1e+09 s")):
        assert any(line.startswith(said) for line in lines(both | {"one_process_seconds": seconds}))


@pytest.mark.parametrize("ranks", [None, 2])
def test_the_best_of_several_penalties_is_taken(store, tmp_path, capsys, ranks):
    """By folds held out; the model is then the one that it is alone."""
    one, best = tmp_path / "one.safetensors", tmp_path / "best.safetensors"
    options = [
        *["--recipe", "fp64", "--s", "4", "--batch-size", "8", "--solver", "ca_sgd", "--eta0", "0.1"],
        *QUICK[2:],
    ]
    report = fit(capsys, store, "-o", best, *options, "--alphas", "1e-3,30", "--cv", "3", ranks=ranks)
    assert [row["alpha"] for row in report["alphas"]] == [1e-3, 30.0]
    assert report["alphas"][0]["loss"] < report["alphas"][1]["loss"]
    assert report["settings"]["alpha"] == 1e-3
    assert sum("taken" in line for line in lines(report)) == 1
    fit(capsys, store, "-o", one, *options, "--alpha", "1e-3")
    assert torch.allclose(Model.load(one).coef, Model.load(best).coef, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("1e-3,x", "--alphas: expected a number, such as 0.5 or 1e-4, got 'x'"),
        ("1e-3,-1", "--alphas must be a number from 0 to inf; got -1"),
    ],
    ids=str,
)
def test_penalties_that_are_none(store, tmp_path, capsys, given, said):
    assert main(["fit", str(store), "-o", str(tmp_path / "model.safetensors"), "--alphas", given]) == 2
    assert said in capsys.readouterr().err


def test_formats_give_the_same_model(csv, tmp_path, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    chosen = {f"x{j}": X[:, j].astype(np.float32) for j in range(N)} | {"y": BINARY}
    pq.write_table(pa.table(chosen), tmp_path / "rows.parquet")
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    np.save(tmp_path / "y.npy", BINARY)
    lines = [
        f"{label} " + " ".join(f"{j + 1}:{v:g}" for j, v in enumerate(row))
        for row, label in zip(X, BINARY, strict=True)
    ]
    (tmp_path / "rows.svm").write_text("\n".join(lines) + "\n")
    found = []
    for name, options in {"rows.parquet": ["--target", "y"], "X.npy": [], "rows.svm": ["--dense"]}.items():
        fit(capsys, tmp_path / name, "-o", tmp_path / "model.safetensors", *options, *QUICK)
        found.append(Model.load(tmp_path / "model.safetensors").coef)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    fit(capsys, tmp_path / "rows.svm", "-o", tmp_path / "model.safetensors", *QUICK[2:], ranks=2)
    assert torch.allclose(Model.load(tmp_path / "model.safetensors").coef, found[0], rtol=1e-3, atol=1e-4)


def test_standardized_columns_give_a_model_in_original_units(csv, tmp_path, capsys):
    wide = X * np.array([1e3, 1.0, 1e-3, 1.0]) + np.array([5e3, 0.0, 1.0, -4.0])
    path = tmp_path / "wide.safetensors"
    write_store(path, Table(torch.from_numpy(wide), torch.from_numpy(TARGETS["number"])), "fp64")
    report = fit(
        capsys, path, "-o", tmp_path / "m.safetensors", "--family", "linear", "--standardize", "--recipe", "fp64",
        "--alpha", "0", "--json",
    )  # fmt: skip
    model = Model.load(tmp_path / "m.safetensors")
    with_ones = np.column_stack([wide, np.ones(M)])
    best = np.linalg.lstsq(with_ones, TARGETS["number"], rcond=None)[0]
    assert report["metrics"]["r2"] > 0.98
    assert np.allclose(model.coef[0].numpy(), best[:N], rtol=0.05, atol=1e-2 / np.abs(wide).max(0))
    residual = TARGETS["number"] - model.predict(wide)
    assert report["metrics"]["mse"] == pytest.approx(np.mean(residual**2))


def test_sparse_rows_on_one_rank_and_two(tmp_path, capsys):
    rng = np.random.default_rng(1)
    sparse = (X * (rng.random(X.shape) < 0.5) * np.array([1.0, 10.0, 100.0, 0.0])).astype(np.float32)
    lines = [
        f"{label} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row.tolist()) if v)
        for row, label in zip(sparse, BINARY, strict=True)
    ]
    (tmp_path / "rows.svm").write_text("\n".join(lines) + "\n")
    assert main(["convert", str(tmp_path / "rows.svm"), str(tmp_path / "sparse.safetensors"), "--dtype", "fp32"]) == 0
    assert "3 columns, sparse" in capsys.readouterr().out
    options = ["--standardize", "--s", "4", "--solver", "ca_sgd", "--batch-size", "8", *QUICK]
    found = []
    for name, ranks in (("rows.svm", 1), ("rows.svm", 2), ("sparse.safetensors", 2)):
        output = tmp_path / "model.safetensors"
        report = fit(capsys, tmp_path / name, "-o", output, "--n-features", 3, *options, ranks=ranks)
        assert report["n_features"] == 3
        model = Model.load(output)
        assert report["metrics"]["accuracy"] == np.mean(model.predict(sparse[:, :3]) == BINARY)
        found.append(model.coef)
    assert torch.allclose(found[0], found[1], rtol=1e-3)
    assert torch.allclose(found[0], found[2], rtol=1e-3)


def test_scores_are_those_of_the_same_file_or_say_why_not(store, tmp_path, capsys):
    for recipe in ("auto", "fp64", "C"):
        command = [store, "-o", tmp_path / "m.safetensors", "--test", store, "--recipe", recipe, "--json"]
        report = fit(capsys, *command, "--standardize")
        same = report["metrics"] == pytest.approx(report["test_metrics"], rel=1e-12)
        assert same != any("X was rounded to bf16, and the loss" in line for line in report["explained"])


def test_one_hot_columns_are_named(csv, tmp_path, capsys):
    output = tmp_path / "model.safetensors"
    fit(capsys, csv, "-o", output, "--target", "sign", "--one-hot", "area", "--drop", drop("area", "sign"), *QUICK)
    model = Model.load(output)
    assert model.feature_names[N:] == ("area=north", "area=south", "area=west")
    assert model.inputs["one_hot"] == {"area": ["north", "south", "west"]}


def test_a_column_may_be_named_as_a_category_is(tmp_path, capsys):
    path, output = tmp_path / "rows.csv", tmp_path / "model.safetensors"
    path.write_text("area,area=rate,y\n" + "A,0.5,0\nB,-1,1\nA,2,1\n" * 10)
    report = fit(capsys, path, "-o", output, "--target", "y", "--one-hot", "area", "--test", path, *QUICK)
    assert Model.load(output).inputs["one_hot"] == {"area": ["A", "B"]}
    assert report["test_metrics"] == pytest.approx(report["metrics"])


def test_resume_on_the_command_line(store, tmp_path, capsys):
    options = ["--recipe", "fp64", "--eta0", "0.5", "--json", "--checkpoint-every", "0"]
    whole, part = tmp_path / "whole.safetensors", tmp_path / "part.safetensors"
    fit(capsys, store, "-o", whole, *options, "--max-iter", "6")
    kept = ["--checkpoint", tmp_path / "kept", "--resume"]
    fit(capsys, store, "-o", part, *options, *kept, "--max-iter", "2")
    report = fit(capsys, store, "-o", part, *options, *kept, "--max-iter", "6")
    assert report["epochs"] == 6
    assert torch.equal(Model.load(whole).coef, Model.load(part).coef)


def test_resuming_a_fit_that_stalled_says_what_to_change(store, tmp_path, capsys):
    steps = ["--solver", "sgd", "--learning-rate", "constant", "--eta0", "2", "--tol", "1e-6"]
    command = [store, "-o", tmp_path / "m.safetensors", *steps, "--checkpoint", tmp_path / "kept", "--resume"]
    before, after = fit(capsys, *command, "--max-iter", "200"), fit(capsys, *command, "--max-iter", "300")
    assert "ran nothing: with these options no epoch is left to do" in after
    for said in (before, after):
        assert "not converged: steps no longer lower the loss" in said
        assert "more epochs do not help: raise --tol, or change --solver, --eta0 or --recipe" in said


@pytest.mark.parametrize("ranks", [None, 2])
def test_steps_of_our_own_shrink_where_the_loss_diverges(tmp_path, capsys, ranks):
    """Counts have no largest curvature: a row far out is not among those that the step was chosen by."""
    rng, path = np.random.default_rng(0), tmp_path / "rows.csv"
    x = rng.standard_normal(2000)
    x[rng.choice(2000, 1)] = 10.0
    y = rng.poisson(np.exp(np.clip(0.8 * x, -5, 4)))
    path.write_text("x,z,y\n" + "".join(f"{a},0,{b}\n" for a, b in zip(x, y, strict=True)))
    options = ["--target", "y", "--family", "poisson", "--json", "--checkpoint-every", "0", "--tol", "-1"]
    whole, part = tmp_path / "whole.safetensors", tmp_path / "part.safetensors"
    report = fit(capsys, path, "-o", whole, *options, "--max-iter", "4", ranks=ranks)
    eta0 = report["settings"]["eta0"]
    assert any("back to the best iterate" in line for line in report["explained"])
    kept = ["--checkpoint", tmp_path / "kept", "--resume"]
    for epochs in ("2", "4"):
        found = fit(capsys, path, "-o", part, *options, *kept, "--max-iter", epochs, ranks=ranks)
    assert found["settings"]["eta0"] == Model.load(part).settings["eta0"] == eta0
    assert torch.equal(Model.load(whole).coef, Model.load(part).coef)
    assert main(["fit", str(path), "-o", str(part), *options, "--eta0", str(eta0), "-q"]) == 2
    assert "lower --eta0" in capsys.readouterr().err


def test_a_pipe_is_not_for_several_ranks(tmp_path, capsys):
    os.mkfifo(tmp_path / "rows.svm")
    assert main(["fit", str(tmp_path / "rows.svm"), "-o", str(tmp_path / "m.safetensors"), "--ranks", "2"]) == 2
    assert "rows.svm is a pipe or a device" in capsys.readouterr().err


def test_no_scikit_learn(store, tmp_path):
    unwanted = ("sklearn", "pyarrow", "matplotlib")
    command = ["fit", str(store), "-o", str(tmp_path / "m.safetensors"), *QUICK]
    code = f"from laconic.cli import main\nmain({command})\nsys.exit(str({{*sys.modules}} & {{*{unwanted}}}))"
    done = run_code(code, tmp_path, *unwanted)
    assert done.stderr.strip() == "set()"


@pytest.mark.parametrize("start", TORCHRUN)
def test_under_torchrun(start, store, tmp_path):
    command = ["fit", str(store), "-o", str(tmp_path / "m.safetensors"), *QUICK]
    (tmp_path / "run.py").write_text(f"from laconic.cli import main\nraise SystemExit(main({command}))\n")
    done = start(tmp_path / "run.py", tmp_path, 2)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 2


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("asked", "name", "said"),
    [
        ("auto", "fp64", "fp64: X is"),
        ("auto:0.2", "16", "tolerance 0.2: "),
        ("auto:1e-9", "fp64", "tolerance 1e-09: "),
    ],
)
def test_a_recipe_that_is_found(asked, name, said, ranks, store, tmp_path, capsys):
    command = [store, "--recipe", asked, "--s", "8", "--solver", "ca_sgd", "-o", tmp_path / "m.safetensors", *QUICK]
    report = fit(capsys, *command, ranks=ranks)
    assert name in report["settings"]["recipe"]
    assert report["ran"].endswith(report["settings"]["recipe"])
    assert report["recipe_explained"].startswith(said)


def test_the_recipe_that_was_found_is_told_and_gone_on_with(store, tmp_path, capsys):
    command = [store, "--recipe", "auto:0.2", "--checkpoint", tmp_path / "state", "-o", tmp_path / "m.safetensors"]
    assert "\nrecipe: tolerance 0.2: " in fit(capsys, *command, "--max-iter", "2", "--tol", "-1")
    assert "3 epochs" in fit(capsys, *command, "--max-iter", "3", "--tol", "-1", "--resume")
    assert "recipe:" not in fit(capsys, store, "-o", tmp_path / "m.safetensors", "--max-iter", "1")


WRONG = {
    "no such file": (["none.csv"], "there is no file"),
    "a folder": (["."], "is a folder"),
    "malformed line": (["bad.svm"], "bad.svm, line 2, column 7: expected index:value, found '2;3'"),
    "NaN": (["nan.csv", "--target", "y"], "X is nan in row 2, column 1 ('a')"),
    "negative counts": (["neg.csv", "--target", "y", "--family", "poisson"], "targets must not be negative"),
    "length of y": (["X.npy"], "X has 3 rows and y has shape (2,)"),
    "recipe": (["{store}", "--recipe", "E"], "unknown --recipe E; choose one of fp32, fp64, C, D, auto, auto:1e-3"),
    "tolerance": (["{store}", "--recipe", "auto:2"], "--recipe auto:2: after 'auto:' comes the largest error"),
    "tight tolerance": (["{store}", "--recipe", "auto:1e-18"], "tolerance 1e-18 cannot be met"),
    "column": (["rows.parquet", "--target", "lable"], "no column 'lable'; near names: 'label'"),
    "no target": (["neg.csv"], "which column is the target? Give --target, one of"),
    "text": (["{csv}", "--target", "sign"], "'area' is not numeric; leave it out with --drop area"),
    "family": (["{store}", "--family", "hinge"], "unknown --family hinge; choose one of logistic"),
    "which family": (
        ["three.csv", "--target", "y"],
        "y has 3 distinct values: give --family, one of linear",
    ),
    "two classes": (["three.csv", "--target", "y", "--family", "logistic"], "use --family multinomial"),
    "one class": (["one.csv", "--target", "y", "--family", "logistic"], "1 distinct value"),
    "one label": (["same.csv", "--target", "y"], "y has 1 distinct value, yes: there is nothing to tell apart"),
    "exposure": (["bad.csv", "--target", "a", "--family", "poisson", "--exposure", "y"], "y is -1.0 in row 1"),
    "both": (["neg.csv", "--target", "a", "--exposure", "y", "--offset", "y"], "not both"),
    "solver": (["{store}", "--solver", "adam"], "unknown --solver adam; choose one of auto, sgd, ca_sgd"),
    "steps": (["{store}", "--learning-rate", "slow"], "unknown --learning-rate slow"),
    "eta0": (["{store}", "--eta0", "-1"], '--eta0 must be a number from 0 (excluded) to inf, or "auto"; got -1'),
    "s": (["{store}", "--s", "0"], '--s must be a whole number, at least 1, or "auto"; got 0'),
    "s in words": (["{store}", "--s", "abc"], "--s must be a whole number, at least 1, or \"auto\"; got 'abc'"),
    "codec": (["{store}", "--average-codec", "zip"], "--average-codec zip: "),
    "alpha in words": (["{store}", "--alpha", "abc"], "'--alpha': expected a number, such as 0.5 or 1e-4, got 'abc'"),
    "a file for a folder": (["{store}", "--checkpoint", "one.csv"], "one.csv is a file; give --checkpoint a folder"),
    "gamma": (["bad.csv", "--target", "y", "--family", "gamma"], "must be positive, but row 1 has y = -1"),
    "a model for rows": (["other.safetensors"], "it is no store of rows, such as `laconic convert` writes"),
    "alpha": (["{store}", "--alpha", "-1"], "--alpha must be a number from 0 to inf; got -1.0"),
    "momentum": (["{store}", "--momentum", "1"], "--momentum must be a number from 0 to 1 (excluded); got 1.0"),
    "resume alone": (["{store}", "--resume"], "--resume needs --checkpoint"),
    "robust alone": (
        ["{store}", "--robust"],
        "--robust is of the standard errors that --summary prints: add --summary",
    ),
    "folds alone": (["{store}", "--cv", "3"], "--cv is of the penalties that --alphas tries: add --alphas"),
    "two penalties": (["{store}", "--alphas", "1,2", "--alpha", "3"], "own penalties: leave out --alpha"),
    "test file": (["{store}", "--test", "none.csv"], "there is no file none.csv"),
    "test labels": (["two.csv", "--target", "y", "--test", "three.csv"], "three.csv: label 3 in row 3 is not one of"),
    "test text": (["two.csv", "--target", "y", "--test", "text.csv"], "text.csv: label 'x' is not one of the model's"),
    "test amounts": (
        ["three.csv", "--target", "y", "--family", "gamma", "--test", "neg.csv"],
        "neg.csv: gamma: targets must be positive, but row 1 has y = -1",
    ),
    "test columns": (["{store}", "--test", "one.safetensors"], "has 1 features and the model 4"),
    "diverged": (["{store}", "--eta0", "1e200", "--recipe", "fp64"], "lower --eta0"),
    "torn store": (["torn.safetensors"], "torn.safetensors"),
    "many words": (
        ["words.csv", "--target", "y"],
        "y is text with 1,001 different values, such as '0,0': at most 1000 can",
    ),
    "wide summary": (["wide.safetensors", "--summary"], "at most 768; here are 801"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch, csv, store):
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.svm").write_text("1 1:2\n0 1:1 2;3\n")
    (tmp_path / "nan.csv").write_text("a,y\n1,0\nnan,1\n")
    (tmp_path / "neg.csv").write_text("a,y\n1,-1\n2,3\n")
    (tmp_path / "bad.csv").write_text("a,b,y\n1,1,-1\n2,2,3\n")
    (tmp_path / "three.csv").write_text("a,y\n1,1\n2,2\n3,3\n")
    (tmp_path / "same.csv").write_text("a,y\n1,yes\n2,yes\n")
    (tmp_path / "two.csv").write_text("a,y\n1,1\n2,2\n3,2\n")
    (tmp_path / "text.csv").write_text("a,y\n1,1\n2,x\n")
    (tmp_path / "one.csv").write_text("a,y\n1,1\n2,1\n")
    Model(torch.ones(1, 1), torch.zeros(1), "linear", None, None, {}, {}).save(tmp_path / "other.safetensors")
    np.save(tmp_path / "X.npy", np.ones((3, 2)))
    np.save(tmp_path / "y.npy", np.ones(2))
    pq.write_table(pa.table({"a": [1.0, 2.0], "label": [0, 1]}), tmp_path / "rows.parquet")
    write_store(tmp_path / "one.safetensors", Table(torch.ones(2, 1), torch.tensor([0, 1])))
    (tmp_path / "words.csv").write_text("a;y\n" + "".join(f"{j};{j},0\n" for j in range(1001)))
    write_store(tmp_path / "wide.safetensors", Table(torch.ones(2, 800), torch.tensor([0, 1])))
    (tmp_path / "torn.safetensors").write_bytes(store.read_bytes()[:-8])
    return tmp_path


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(folder, csv, store, capsys, arguments, said):
    before = sorted(folder.iterdir())
    filled = [argument.format(csv=csv, store=store) for argument in arguments]
    assert main(["fit", *filled, "-o", "model.safetensors"]) == 2
    complains(capsys, said)
    assert sorted(folder.iterdir()) == before


def test_a_model_is_there_whatever_later_rows_of_its_test_file_say(folder, capsys, monkeypatch):
    monkeypatch.setattr("laconic.data.csv.BLOCK_BYTES", 8)
    monkeypatch.setattr("laconic.data.csv.LINES", 1)
    (folder / "late.csv").write_text("a,y\n1,2\n1,2\n2,-1\n")
    assert main(["fit", "three.csv", "--target", "y", "--family", "gamma", "--test", "late.csv", "-o", "m.st"]) == 2
    complains(capsys, "late.csv: gamma: targets must be positive, but row 1 has y = -1 of those after the first")
    assert (folder / "m.st").is_file()


def test_a_score_that_overflows_is_null_in_json(folder, capsys):
    (folder / "far.csv").write_text("a,y\n1,2\n9e5,1\n")
    found = fit(
        capsys, "three.csv", "--target", "y", "--family", "poisson", "--test", "far.csv", "-o", "m.st", "--json"
    )
    assert found["test_metrics"] == {"d2": None, "deviance": None}


def test_output_is_checked_before_the_work(store, tmp_path, capsys):
    assert main(["fit", str(store), "-o", "/nowhere/model.safetensors"]) == 2
    complains(capsys, "cannot write /nowhere/model.safetensors: there is no folder /nowhere")
    assert main(["fit", str(store), "-o", str(tmp_path)]) == 2
    complains(capsys, "it is a folder")


@pytest.mark.parametrize(
    "arguments", [["nan.csv", "--target", "y"], ["{store}", "--recipe", "E"]], ids=["NaN", "recipe"]
)
def test_mistakes_on_ranks_are_one_line_too(folder, store, capsys, arguments):
    """Of two columns, the second rank has the one without NaN."""
    (folder / "nan.csv").write_text("a,b,y\n1,1,0\nnan,2,1\n")
    filled = [argument.format(store=store) for argument in arguments]
    assert main(["fit", *filled, "-o", "model.safetensors", "--ranks", "2"]) == 2
    complains(capsys, "nan" if "nan.csv" in filled else "unknown --recipe E")


def test_a_full_disk_leaves_nothing(store, tmp_path, capsys, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(os, "fsync", full)
    assert main(["fit", str(store), "-o", str(tmp_path / "model.safetensors"), *QUICK]) == 2
    complains(capsys, "no room for the")
    assert sorted(tmp_path.iterdir()) == before


def test_other_settings_are_not_resumed(store, tmp_path, capsys):
    kept = ["--checkpoint", tmp_path / "kept", "--max-iter", "1", "--json"]
    fit(capsys, store, "-o", tmp_path / "m.safetensors", *kept)
    arguments = ["fit", str(store), "-o", str(tmp_path / "m.safetensors"), *map(str, kept)]
    assert main([*arguments, "--resume", "--alpha", "0.5"]) == 2
    complains(capsys, "was made with other alpha: then 0.0001, now 0.5")
    assert main(arguments) == 2
    complains(capsys, "go on from it with --resume")


def test_torchrun_decides_on_the_ranks(store, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["fit", str(store), "-o", str(tmp_path / "m.safetensors"), "--ranks", "3"]) == 2
    complains(capsys, "torchrun has started 2 ranks and --ranks says 3")


def complains(capsys, said):
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("laconic: ")
    assert err.count("\n") == 1
    assert said in err
