"""Scores from sums over blocks of rows: what scikit-learn finds from all rows at once, wherever the targets lie."""

import numpy as np
import pytest
import torch
from sklearn.metrics import d2_tweedie_score, r2_score

from laconic.glm import Gaussian, Poisson
from laconic.glm.job.scores import Scores

RNG = np.random.default_rng(0)
M = 500


def summed(name, family, z, y, w, offset=None):
    scores = Scores(name, family)
    for rows in np.array_split(np.arange(M), [0, 1, 200, 200]):
        parts = (None if v is None else torch.from_numpy(v[rows]) for v in (y, w, offset))
        scores.add(torch.from_numpy(z[rows])[:, None], *parts)
    return scores.summary()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("far", [0.0, -1e3, 1e9, 1e12])
def test_r2(far, weighted):
    z, w = RNG.standard_normal(M), RNG.integers(0, 3, M).astype(float) if weighted else None
    y, offset = far + z + RNG.standard_normal(M), RNG.standard_normal(M)
    found = summed("linear", Gaussian(), far + z, y, w)
    assert found["r2"] == pytest.approx(r2_score(y, far + z, sample_weight=w), rel=1e-6)
    shifted = summed("linear", Gaussian(), far + z + offset, y + offset, w, offset)
    assert shifted["r2"] == pytest.approx(found["r2"], rel=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rate", [1e-3, 1.0, 1e6])
def test_d2(rate, weighted):
    z, w = np.log(rate) + 0.5 * RNG.standard_normal(M), RNG.integers(0, 3, M).astype(float) if weighted else None
    y = RNG.poisson(np.exp(z)).astype(float)
    y[0] = 1 + y[0]
    w = None if w is None else np.maximum(w, np.arange(M) == 0)
    found = summed("poisson", Poisson(), z, y, w)
    assert found["d2"] == pytest.approx(d2_tweedie_score(y, np.exp(z), sample_weight=w, power=1), rel=1e-6)
