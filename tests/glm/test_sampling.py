"""Orders of rows: what an epoch takes, and that seed and epoch alone decide it."""

from collections import Counter

import numpy as np
import pytest

from laconic.glm import Sampling
from laconic.glm.settings import ORDERS

SIZES = [0, 1, 2, 31, 32, 33, 1000]


@pytest.mark.parametrize("n_rows", SIZES)
@pytest.mark.parametrize("order", ORDERS)
def test_an_epoch_is_a_function_of_seed_and_epoch(order, n_rows):
    sampling = Sampling(order, seed=5)
    again = [sampling.epoch(n_rows, epoch) for epoch in (3, 0, 3)]
    np.testing.assert_array_equal(again[0], again[2])
    assert again[0].shape == (n_rows,)
    assert again[0].dtype.kind == "i"
    if n_rows >= 31:
        assert np.array_equal(again[0], again[1]) == (order == "cyclic")
        assert np.array_equal(again[0], Sampling(order, seed=6).epoch(n_rows, 3)) == (order == "cyclic")
    np.testing.assert_array_equal(again[0], Sampling(order, batch_size=7, seed=5).epoch(n_rows, 3))


@pytest.mark.parametrize("n_rows", SIZES)
def test_what_an_epoch_takes(n_rows):
    np.testing.assert_array_equal(Sampling("cyclic").epoch(n_rows, 9), np.arange(n_rows))
    np.testing.assert_array_equal(np.sort(Sampling("shuffle").epoch(n_rows, 9)), np.arange(n_rows))
    drawn = Sampling("replacement").epoch(n_rows, 9)
    assert ((drawn >= 0) & (drawn < n_rows)).all()
    if n_rows == 1000:  # a row is left out with probability 1/e: 368 of 1000, give or take 12 times three
        assert abs(n_rows - len(set(drawn.tolist())) - 368) < 60


@pytest.mark.parametrize("order", ["shuffle", "replacement"])
def test_every_row_is_as_likely_as_any_other_at_every_place(order):
    """χ² of the row at each place over 6000 epochs: with 4 degrees of freedom above 33 once in a million."""
    n_epochs, n_rows = 6000, 5
    taken = np.stack([Sampling(order, seed=1).epoch(n_rows, epoch) for epoch in range(n_epochs)])
    for place in range(n_rows):
        counts = np.bincount(taken[:, place], minlength=n_rows)
        assert ((counts - n_epochs / n_rows) ** 2 / (n_epochs / n_rows)).sum() < 33


def test_every_order_of_four_rows_is_as_likely():
    """χ² with 23 degrees of freedom: above 72 once in a million."""
    counts = Counter(tuple(Sampling(seed=2).epoch(4, epoch).tolist()) for epoch in range(6000))
    assert len(counts) == 24
    assert sum((count - 250) ** 2 / 250 for count in counts.values()) < 72


@pytest.mark.parametrize("seed", [2**32, 2**63, 2**64 - 1])
def test_large_seeds_are_seeds_of_their_own(seed):
    orders = [tuple(Sampling(seed=s).epoch(100, 0).tolist()) for s in (seed, seed - 1, 0)]
    assert len(set(orders)) == 3


@pytest.mark.parametrize(("n_rows", "size", "n"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (90, 32, 3)])
def test_the_last_batch_may_be_short(n_rows, size, n):
    assert Sampling(batch_size=size).n_batches(n_rows) == n


def test_bad_arguments():
    with pytest.raises(ValueError, match="unknown order 'random'; choose one of shuffle, cyclic, replacement"):
        Sampling("random")
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        Sampling(batch_size=0)
