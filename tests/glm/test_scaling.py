"""Scaling of columns: the same moments dense and sparse, and a constant column is one however many rows it has."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from glm.tables import ALL_FAMILIES, arrays
from laconic.exchange import Communicator
from laconic.glm import FitOptions
from laconic.glm.columns import as_columns
from laconic.glm.fit import choose, run
from laconic.glm.problem import make_problem
from laconic.glm.scaling import Scaling, scaling_for

RNG = np.random.default_rng(0)
MATRICES = {
    "sparse": RNG.normal(3, 2, (500, 4)) * (RNG.random((500, 4)) < 0.3),
    "far from zero": RNG.normal(1e4, 1, (500, 3)),
    "of all sizes": RNG.normal(0, 1, (500, 3)) * np.array([1e-20, 1.0, 1e15]),
    "first row far off": np.vstack([[1e6, -1e3], RNG.normal(2, 1, (500, 2))]),
    "one row": RNG.normal(0, 1, (1, 3)),
    "empty columns": np.zeros((7, 2)),
    "many rows": RNG.normal(0.3, 1e-3, (300_000, 1)),
}


def scaled(matrix, weights=None) -> Scaling:
    columns = as_columns(matrix)
    return scaling_for(columns, FitOptions(standardize=True), Communicator(), 0, columns.n, weights)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("X", MATRICES.values(), ids=MATRICES)
def test_dense_and_sparse_columns_have_the_same_moments(X, compiled, monkeypatch):
    monkeypatch.setattr("laconic.glm.columns.COMPILED_VALUES", 0 if compiled else X.size + 1)
    X = X.astype(np.float32)
    exact = X.astype(np.float64)
    deviation = np.where(exact.std(0) <= 1e-12 * np.abs(exact.mean(0)), 1.0, exact.std(0))
    for matrix in (torch.from_numpy(X), csr_array(X)):
        scaling = scaled(matrix)
        assert scaling.deviation.numpy() == pytest.approx(deviation, rel=1e-9)
        expected = exact.mean(0) if isinstance(matrix, torch.Tensor) else 0 * deviation
        assert scaling.mean.numpy() == pytest.approx(expected, rel=1e-9, abs=1e-9 * deviation.min())


@pytest.mark.parametrize("value", [0.3, 0.1, -1e7 - 1 / 3, 1e-20, 0.0])
@pytest.mark.parametrize("n_rows", [1, 3000, 300_000])
def test_a_constant_column_is_not_scaled(n_rows, value):
    X = np.full((n_rows, 1), value, np.float32)
    for matrix in (torch.from_numpy(X), csr_array(X)):
        assert scaled(matrix).deviation.tolist() == [1.0]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("X", MATRICES.values(), ids=MATRICES)
def test_weights_count_rows(X, compiled, monkeypatch):
    """A row of weight 2 is two rows, and one of weight 0 none, whatever it holds."""
    monkeypatch.setattr("laconic.glm.columns.COMPILED_VALUES", 0 if compiled else X.size + 1)
    weights = np.random.default_rng(1).integers(0, 4, len(X))
    weights[-1] = 2
    X = np.where(weights[:, None] > 0, X, 1e30).astype(np.float32)
    for kind in (torch.from_numpy, csr_array):
        found, repeated = scaled(kind(X), torch.from_numpy(0.1 * weights)), scaled(kind(X.repeat(weights, 0)))
        assert found.deviation.numpy() == pytest.approx(repeated.deviation.numpy(), rel=1e-9)
        assert found.mean.numpy() == pytest.approx(
            repeated.mean.numpy(), rel=1e-9, abs=1e-9 * float(found.deviation.min())
        )


@pytest.mark.parametrize("kind", [torch.from_numpy, csr_array])
@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_a_model_of_scaled_columns_takes_weights_for_repetitions(kind, family):
    data, options = arrays(family), FitOptions(standardize=True, alpha=0.1, recipe="fp64")
    weights, found = torch.arange(len(data["y"])) % 3, []
    for times, w in ((torch.ones_like(weights), weights), (weights, None)):
        rows = torch.repeat_interleave(times)
        X, y, offset = (data[name][rows] for name in ("X", "y", "offset"))
        own = None if w is None else w.double()
        problem = make_problem(options, kind(X.numpy()), ALL_FAMILIES[family], y, own, offset=offset)
        chosen = choose(options, problem, Communicator())
        found.append(run(options, chosen, Communicator()).coefficients(Communicator()))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)
