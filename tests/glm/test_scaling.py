"""Scaling of columns: the same moments dense and sparse, and a constant column is one however many rows it has."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from laconic.exchange import Communicator
from laconic.glm import FitOptions
from laconic.glm.columns import as_columns
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


def scaled(matrix) -> Scaling:
    columns = as_columns(matrix)
    return scaling_for(columns, FitOptions(standardize=True), Communicator(), 0, columns.n)


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
