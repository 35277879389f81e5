"""The same fit on one rank and on several; rows cut by rows or by columns; mistakes on one rank are told to all."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from forking import TORCHRUN, run_script
from laconic import CASGDClassifier, CASGDRegressor
from laconic.exchange import Communicator

M, N = 203, 7
GUIDE = Path(__file__).parents[2] / "docs" / "glm.md"


def data(loss, n=N):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((M, n)) * (rng.random((M, n)) < 0.6)
    z = X @ rng.standard_normal(n) * 0.5
    if loss == "poisson":
        y = rng.poisson(np.exp(z)).astype(float)
    elif loss == "squared_error":
        y = z + rng.standard_normal(M)
    else:
        y = np.array(["a", "bb", "ccc"])[np.digitize(z + rng.logistic(size=M), [-1, 1])]
    return X, y, rng.uniform(0.5, 2, M), rng.uniform(-1, 1, M)


def model(loss, **parameters):
    parameters = {"random_state": 0, "max_iter": 4, "tol": None, "recipe": "fp64", "batch_size": 8} | parameters
    return CASGDClassifier(loss, **parameters) if loss == "log_loss" else CASGDRegressor(loss, **parameters)


def as_kind(X, kind):
    if kind == "torch":
        return torch.from_numpy(X)
    return scipy.sparse.csr_array(X) if kind == "sparse" else X


def fitted(group, loss, rows, kind, n=N, cuts=None, **parameters):
    """coef_, intercept_ and what the fit told, on this rank of `group`."""
    comm = Communicator.over(group)
    X, y, w, offset = data(loss, n)
    if rows == "partitioned":
        cuts = cuts or [r * M // comm.size for r in range(comm.size + 1)]
        own = slice(cuts[comm.rank], cuts[comm.rank + 1])
        X, y, w, offset = X[own], y[own], w[own], offset[own]
    est = model(loss, **parameters).fit(as_kind(X, kind), y, w, offset, rows=rows, comm=comm)
    return est.coef_, est.intercept_, est.history_, est.ran_, est.t_


MEMBERS = [
    ("log_loss", "numpy"),
    ("squared_error", "numpy"),
    ("poisson", "numpy"),
    ("log_loss", "sparse"),
    ("poisson", "torch"),
]


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    """Compile once, here, what all ranks will need."""
    for kind, recipe in (("numpy", "fp64"), ("numpy", "fp32"), ("sparse", "fp64")):
        alone("log_loss", kind, solver="ca_sgd", s=4, recipe=recipe)


def check(ranks, one, tolerance=1e-12):
    for coef, intercept, history, _, t in ranks:
        np.testing.assert_array_equal(coef, ranks[0][0])
        np.testing.assert_array_equal(intercept, ranks[0][1])
        assert [row["loss"] for row in history] == [row["loss"] for row in ranks[0][2]]
        assert t == one[4]
    np.testing.assert_allclose(ranks[0][0], one[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(ranks[0][1], one[1], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("rows", ["replicated", "partitioned"])
@pytest.mark.parametrize(("loss", "kind"), MEMBERS)
def test_the_same_model_on_any_number_of_ranks(pool, loss, kind, rows, size):
    check(pool.run(fitted, size, loss=loss, rows=rows, kind=kind), alone(loss, kind))


def alone(loss, kind, n=N, **parameters):
    X, y, w, offset = data(loss, n)
    est = model(loss, **parameters).fit(as_kind(X, kind), y, w, offset)
    return est.coef_, est.intercept_, est.history_, est.ran_, est.t_


@pytest.mark.parametrize("rows", ["replicated", "partitioned"])
@pytest.mark.parametrize("kind", ["numpy", "sparse"])
def test_more_ranks_than_columns(pool, rows, kind):
    check(pool.run(fitted, 4, loss="log_loss", rows=rows, kind=kind, n=2), alone("log_loss", kind, n=2))


@pytest.mark.parametrize("kind", ["numpy", "sparse"])
def test_ranks_without_rows(pool, kind):
    cuts = [0, 0, 150, 150, M]
    ranks = pool.run(fitted, 4, loss="log_loss", rows="partitioned", kind=kind, cuts=cuts)
    check(ranks, alone("log_loss", kind))


def test_all_the_options_at_once(pool):
    options = {"early_stopping": True, "momentum": 0.5, "average": 20, "class_weight": "balanced"}
    options["sampling"] = "replacement"
    ranks = pool.run(fitted, 3, loss="log_loss", rows="replicated", kind="numpy", s=4, **options)
    check(ranks, alone("log_loss", "numpy", **options), 1e-10)
    assert ranks[0][3] == "ca_sgd s=4, compiled recurrence, fp64"


@pytest.mark.parametrize("recipe", ["fp32", "C", "D"])
def test_few_bits(pool, recipe):
    ranks = pool.run(fitted, 2, loss="squared_error", rows="replicated", kind="numpy", recipe=recipe)
    check(ranks, alone("squared_error", "numpy", recipe=recipe), {"fp32": 1e-5, "C": 0.05, "D": 0.05}[recipe])


def going_on(group):
    """Half of it on these ranks; what is saved knows nothing of how many there were."""
    comm = Communicator.over(group)
    X, y, w, offset = data("poisson")
    est = model("poisson", warm_start=True, max_iter=2, momentum=0.5).fit(X, y, w, offset, comm=comm)
    est.fit(X, y, w, offset, comm=Communicator())
    part = model("poisson", eta0=0.05).partial_fit(X, y, comm=comm).partial_fit(X, y, comm=comm)
    return est.coef_, part.coef_


def test_a_fit_goes_on_under_another_number_of_ranks(pool):
    (whole, part), *others = pool.run(going_on, 3)
    assert all(np.array_equal(whole, other[0]) and np.array_equal(part, other[1]) for other in others)
    np.testing.assert_allclose(whole, alone("poisson", "numpy", momentum=0.5)[0], rtol=1e-11)
    X, y, _, _ = data("poisson")
    np.testing.assert_allclose(part, model("poisson", max_iter=2, eta0=0.05).fit(X, y).coef_, rtol=1e-11)


def unseeded(group):
    X, y, w, offset = data("log_loss")
    return model("log_loss", random_state=None).fit(X, y, w, offset, comm=Communicator.over(group)).coef_


def test_ranks_without_a_seed_share_one(pool):
    a, b = pool.run(unseeded, 2)
    np.testing.assert_array_equal(a, b)


def mistaken(group, mistake):
    comm = Communicator.over(group)
    X, y, w, offset = data("squared_error")
    parameters = {}
    if comm.rank == 1 and mistake == "nan":
        X[3, 3] = np.nan
    elif comm.rank == 1 and mistake == "y":
        y[5] += 1
    elif comm.rank == 1 and mistake == "alpha":
        parameters["alpha"] = 0.5
    elif comm.rank == 1 and mistake == "rows":
        X, y, w, offset = X[:9], y[:9], w[:9], offset[:9]
    try:
        model("squared_error", **parameters).fit(X, y, w, offset, comm=comm)
    except Exception as error:  # noqa: BLE001
        return type(error).__name__, str(error)


MISTAKES = [
    ("nan", "rank 1: Input X contains NaN"),
    ("y", "y is [0-9a-f]+ on rank 0 and [0-9a-f]+ on rank 1"),
    ("alpha", "alpha is 0.0001 on rank 0 and 0.5 on rank 1"),
    ("rows", "n_rows is 203 on rank 0 and 9 on rank 1"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[m for m, _ in MISTAKES])
def test_a_mistake_on_one_rank_is_told_to_all(pool, mistake, message):
    first, second = pool.run(mistaken, 2, mistake=mistake)
    assert first[0] == "Disagreement"
    assert re.search(message, first[1])
    assert second is not None


def from_file(group, path, kind):
    comm = Communicator.over(group)
    target = "y" if kind == "csv" else None
    return model("squared_error").fit(path, target, comm=comm).coef_


@pytest.mark.parametrize("kind", ["csv", "svm"])
def test_each_rank_reads_its_own_columns(pool, tmp_path, kind):
    X, y, _, _ = data("squared_error")
    path = tmp_path / f"train.{kind}"
    if kind == "csv":
        names = ",".join([f"x{j}" for j in range(N)] + ["y"])
        np.savetxt(path, np.column_stack([X, y]), delimiter=",", header=names, comments="")
    else:
        lines = (f"{t} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(x)) for x, t in zip(X, y, strict=True))
        path.write_text("\n".join(lines) + "\n")
    a, b = pool.run(from_file, 2, path=str(path), kind=kind)
    np.testing.assert_array_equal(a, b)
    usual = model("squared_error").fit(path, "y" if kind == "csv" else None)
    np.testing.assert_allclose(a, usual.coef_, rtol=1e-11)


@pytest.mark.parametrize("start", TORCHRUN)
def test_the_guide_s_script_under_torchrun(start, tmp_path):
    script = re.search(r'```python title="fit.py"\n(.*?)```', GUIDE.read_text(), flags=re.DOTALL)
    (tmp_path / "fit.py").write_text(script.group(1))
    first, run = run_script(tmp_path / "fit.py", tmp_path), start(tmp_path / "fit.py", tmp_path, 2)
    assert first.returncode == 0, first.stderr
    assert run.returncode == 0, run.stderr
    (one,) = first.stdout.splitlines()
    assert one.startswith("sgd, compiled, ")
    said = re.findall(r"ca_sgd s=8, .*?; (accuracy [\d.]+)", run.stdout)  # two ranks may print in one line
    assert said == [one.split("; ")[1]] * 2
