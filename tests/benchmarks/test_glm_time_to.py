"""The race to an objective beside scikit-learn. No test asserts a time."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from benchmarks.glm import libsvm_speed as files
from benchmarks.glm import optimum
from benchmarks.glm import sklearn_rivals as rivals
from benchmarks.glm.sklearn_rivals import TrainingRows, covtype_like
from benchmarks.glm.time_to import time_to_rows
from laconic.bench.glm.runs import objective
from laconic.bench.protocol import WrongResult
from laconic.bench.suite import no_progress
from laconic.data import BadTable, convert, read
from laconic.exchange import Communicator
from laconic.glm import Bernoulli, DenseColumns, Gaussian, Poisson, Problem, SparseColumns, begin, solve
from laconic.measure.solvers import Contender


def training_rows(family, m=400):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(m, 3, generator=generator)
    z = X @ torch.tensor([1.0, -0.5, 0.2]) - 0.3
    y = torch.poisson(z.exp(), generator=generator) if family.name == "poisson" else (z > 0).float()
    return Problem(DenseColumns(X), family, y)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=lambda family: family.name)
def test_both_ways_to_look_at_an_objective_agree(family):
    problem, settings = training_rows(family), Contender("sgd", "fp32").options(0.1, 8)
    state = solve(problem, replace(settings, max_iter=1), state=begin(problem, settings)).state
    point = state.coef[0].double().numpy(), float(state.intercept)
    seen = TrainingRows.of(problem, settings.alpha).objective(point)
    assert seen == pytest.approx(objective(problem, settings, state, Communicator()), rel=1e-5)


def test_an_exposure_is_a_weight_on_the_rate():
    plain = training_rows(Poisson(), 50)
    exposure = torch.linspace(0.5, 2.0, 50)
    rows = TrainingRows.of(replace(plain, offset=exposure.log()), 0.0)
    assert rows.w.mean() == pytest.approx(1)
    np.testing.assert_allclose(rows.y, plain.y / exposure, rtol=1e-6)
    a, b = (np.array([0.1, 0.2, 0.3]), 0.1), (np.zeros(3), -0.2)

    def loss(point):
        z = plain.columns.X.double() @ torch.from_numpy(point[0]) + point[1] + exposure.double().log()
        return float(Poisson().loss(z[:, None], plain.y.double()).sum() / exposure.double().sum())

    assert rows.objective(a) - rows.objective(b) == pytest.approx(loss(a) - loss(b), rel=1e-5)


def test_what_scikit_learn_cannot_do_is_told():
    gaussian = Problem(DenseColumns(torch.ones(2, 1)), Gaussian(), torch.ones(2))
    with pytest.raises(BadTable, match="for logistic and poisson targets, not gaussian"):
        TrainingRows.of(gaussian, 1.0)
    with pytest.raises(BadTable, match="no offsets"):
        TrainingRows.of(replace(training_rows(Bernoulli()), offset=torch.zeros(400)), 1.0)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=lambda family: family.name)
def test_the_race(family):
    rows = time_to_rows("tiny", TrainingRows.of(training_rows(family), 1e-2), batch_size=8, repeats=1)
    rivals = ["SGDClassifier", "LogisticRegression(lbfgs)"]
    rivals = rivals if family.name == "bernoulli" else ["PoissonRegressor(lbfgs)"]
    assert [row.contender for row in rows] == ["laconic fp32", "laconic C", *rivals]
    for row in rows:
        assert (row.config is None) == (row.seconds is None) == (row.above_optimum is None)
        assert row.above_optimum is None or -1e-4 <= row.above_optimum <= 0.01
    assert rows[0].config
    assert rows[-1].config


def test_sparse_rows_race_too():
    from scipy.sparse import csr_matrix

    dense = TrainingRows.of(training_rows(Bernoulli()), 1e-2)
    sparse = TrainingRows.of(replace(training_rows(Bernoulli()), columns=SparseColumns.of(csr_matrix(dense.X))), 1e-2)
    assert rivals.optimum(sparse) == pytest.approx(rivals.optimum(dense), rel=1e-5)


def test_the_shape_of_the_forest_cover_data():
    problem = covtype_like(500)
    assert problem.columns.X.shape == (500, 54)
    assert set(problem.y.tolist()) == {0.0, 1.0}
    torch.testing.assert_close(problem.columns.X.mean(0), torch.zeros(54), atol=1e-4, rtol=0)
    assert torch.equal(problem.columns.X, covtype_like(500).columns.X)


def test_files(tmp_path):
    row = files.file_row(100_000, repeats=1)
    assert row.n_bytes >= 100_000
    assert row.n_rows == 2000
    assert row.mb_per_second > 0
    assert row.peak_bytes is None or row.peak_bytes >= 0


def test_readers_that_differ_are_found(tmp_path, monkeypatch):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:0.5\n0 2:1\n")
    files.check_same(path)
    monkeypatch.setattr(rivals, "read_libsvm", lambda path: (files.read_libsvm(path).X, np.zeros(2)))
    with pytest.raises(WrongResult, match="do not find the same numbers"):
        files.check_same(path)


RACE = ["glm-time-to", "--rows", "600", "--repeats", "1", "--file-size", "20000"]


def test_a_run_writes_and_prints_the_same_rows(tmp_path, printed):
    target = tmp_path / "race.json"
    out = printed([*RACE, "--output", str(target)])
    made = json.loads(target.read_text())
    assert made["suite"] == "glm-time-to"
    assert [row["contender"] for row in made["rows"]][:2] == ["laconic fp32", "laconic C"]
    assert made["file"]["mb_per_second"] > 0
    for word in ("Where we lose", "Goals", "times scikit-learn's speed", *(row["contender"] for row in made["rows"])):
        assert word in out


WRONG = {
    "rows of a file": (["--data", "a9a", "--rows", "9"], "--rows is for synthetic rows; leave it out beside --data"),
    "a target without a file": (["--target", "y"], "--target is for files; give one with --data"),
    "no rounds": (["--repeats", "0"], "at least 1"),
    "no such file": (["--data", "/nowhere/a9a"], "/nowhere/a9a"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(arguments, said, complains):
    complains(["glm-time-to", *arguments], said)


def test_streamed_rows_are_fitted_from_each_file_alike(tmp_path):
    """The same objective from Parquet, from its store and by a rival, and judged a block at a time as in one."""
    optimum._write_rows(tmp_path / "rows.parquet", 3000)
    convert(tmp_path / "rows.parquet", tmp_path / "rows.safetensors", dtype="fp32", target="y")
    table, values = read(tmp_path / "rows.safetensors"), []
    for contender in optimum.STREAMED[:3]:
        found = optimum.fit_streamed(no_progress, contender=contender, folder=str(tmp_path), threads=1)
        point = np.array(found["coef"]), np.array(found["intercept"])
        rows = optimum.Rows("", table.X.double().numpy(), table.y.numpy().astype(int), "log_loss")
        values.append(rows.objective(*point))
        assert optimum._judged(table, point) == pytest.approx((values[-1], optimum._score(rows, point)), rel=1e-9)
        assert found["converged"]
    assert values == pytest.approx([values[0]] * 3, rel=1e-4)


@pytest.mark.parametrize(
    "make",
    [partial(optimum._bundled, "wine"), partial(optimum._bundled, "breast cancer"), optimum._diabetes, optimum._claims],
)
def test_a_lasso_is_given_as_a_share_of_the_penalty_that_leaves_no_weight(make):
    """Each contender minimises the objective that is judged."""
    scaled = make().scaled()
    assert not optimum.ours(scaled.lasso(1.001))[0].any()
    rows = scaled.lasso(0.5)
    found = {name: fit(rows) for name, fit in optimum.contenders(rows).items()}
    assert all(coef.any() and not coef.all() for coef, _ in found.values())
    values = [rows.objective(*point) for point in found.values()]
    assert values == pytest.approx([values[0]] * len(values), rel=1e-6)
