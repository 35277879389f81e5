"""Scores from sums over blocks of rows: what scikit-learn finds from all rows at once, wherever the targets lie."""

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.metrics import d2_tweedie_score, r2_score

from laconic.glm import Bernoulli, Gamma, Gaussian, Poisson, Tweedie
from laconic.glm.columns import SparseColumns
from laconic.glm.scores import ScoredRows

RNG = np.random.default_rng(0)
M = 500


def summed(family, z, y, w, offset=None):
    scored = ScoredRows(family, M)
    for rows in np.array_split(np.arange(M), [0, 1, 200, 200]):
        parts = (None if v is None else torch.from_numpy(v[rows]) for v in (y, w, offset))
        scored.add(torch.from_numpy(z[rows])[:, None], *parts)
    return scored.scores().metrics


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("far", [0.0, -1e3, 1e9, 1e12])
def test_r2(far, weighted):
    z, w = RNG.standard_normal(M), RNG.integers(0, 3, M).astype(float) if weighted else None
    y, offset = far + z + RNG.standard_normal(M), RNG.standard_normal(M)
    found = summed(Gaussian(), far + z, y, w)
    assert found["r2"] == pytest.approx(r2_score(y, far + z, sample_weight=w), rel=1e-6)
    shifted = summed(Gaussian(), far + z + offset, y + offset, w, offset)
    assert shifted["r2"] == pytest.approx(found["r2"], rel=1e-3)


COUNTED = {"poisson": (Poisson(), 1.0), "gamma": (Gamma(), 2.0), "tweedie": (Tweedie(1.3), 1.3)}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rate", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("name", COUNTED)
def test_d2(name, rate, weighted):
    (family, power), w = COUNTED[name], RNG.integers(0, 3, M).astype(float) if weighted else None
    z = np.log(rate) + 0.5 * RNG.standard_normal(M)
    y = RNG.gamma(2.0, np.exp(z) / 2) if name == "gamma" else RNG.poisson(np.exp(z)).astype(float)
    y[0] = 1 + y[0]
    w = None if w is None else np.maximum(w, np.arange(M) == 0)
    found = summed(family, z, y, w)
    assert found["d2"] == pytest.approx(d2_tweedie_score(y, np.exp(z), sample_weight=w, power=power), rel=1e-6)


def test_blocks_do_not_matter():
    """To the last digit, however the rows are cut."""
    z, y = torch.from_numpy(RNG.standard_normal((M, 1))), torch.from_numpy(RNG.gamma(2.0, 1.0, M))
    found = []
    for size in (1, 7, 100, M):
        scored = ScoredRows(Gamma(), M)
        for first in range(0, M, size):
            scored.add(z[first : first + size], y[first : first + size])
        found.append(scored.scores())
    assert all(other == found[0] for other in found)


def test_targets_that_a_constant_explains():
    scored = ScoredRows(Gaussian(), 4)
    assert scored.scores().score == 0.0
    scored.add(torch.ones(3, 1), torch.ones(3))
    assert scored.scores().score == 1.0
    scored.add(torch.full((1, 1), 2.0), torch.ones(1))
    assert scored.scores().score == 0.0


def test_labels():
    """A row of weight 0 counts for nothing; a class that the model does not know is never right."""
    z, y = torch.tensor([[2.0], [-1.0], [3.0], [1.0]]), torch.tensor([1, 0, 0, 1])
    scored = ScoredRows(Bernoulli(), 5)
    scored.add(z, y, torch.tensor([1.0, 2.0, 1.0, 0.0]))
    losses = Bernoulli().loss(z.double(), y.double())
    assert scored.scores().metrics == pytest.approx(
        {"accuracy": 0.75, "log_loss": float((losses[0] + 2 * losses[1] + losses[2]) / 4)}
    )
    scored.add(z[:1], torch.tensor([-1]))
    scores = scored.scores()
    assert (scores.score, scores.loss) == (0.6, float("inf"))


def test_blocks_of_sparse_rows_are_cut_by_their_values_not_their_width():
    """Each block copies the weights, and a wide X had hardly a row in one."""
    wide = SparseColumns.of(scipy.sparse.random(2000, 100_000, density=1e-4, format="csr", random_state=0))
    ((rows, Y),) = wide.blocks(None, torch.float32)
    assert (rows, len(Y.matrix[2]) - 1) == (slice(0, 2000), 2000)
