"""What follows from a fit's options: the penalty and its proximal step, the order of rows, the size of steps."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch

from laconic.glm import FitOptions
from laconic.glm.options import ORDERS, SCHEDULES, shrink
from laconic.glm.solvers.solve import Ahead

X = torch.tensor([[3.0, -2.0, 0.5, -0.1, 0.0], [1e-3, -1e-3, 0.3, -0.3, 10.0]], dtype=torch.float64)
SIZES = [0, 1, 2, 31, 32, 33, 1000]
T = np.arange(200)
EXPECTED = {
    "constant": lambda t: 0.3,
    "adaptive": lambda t: 0.3,
    "invscaling": lambda t: 0.3 / (t + 1) ** 0.25,
    "cosine": lambda t: 0.15 * (1 + np.cos(np.pi * min(t, 100) / 100)),
}

# --- the penalty ------------------------------------------------------------------------------------------------------


def penalty(alpha, l1_ratio):
    return FitOptions(alpha=alpha, l1_ratio=l1_ratio)


@pytest.mark.parametrize(("alpha", "ratio"), [(0.0, 0.0), (0.4, 0.0), (0.4, 1.0), (0.4, 0.25)])
def test_the_value(alpha, ratio):
    expected = alpha * ((1 - ratio) / 2 * X.square().sum() + ratio * X.abs().sum())
    assert penalty(alpha, ratio).penalty(X) == pytest.approx(float(expected), rel=1e-15)
    assert penalty(alpha, ratio).penalty(X[:, :0]) == 0
    parts = penalty(alpha, ratio).penalty(X[:, :2]) + penalty(alpha, ratio).penalty(X[:, 2:])
    assert parts == pytest.approx(float(expected), rel=1e-14)  # what ranks hold adds up


@pytest.mark.parametrize("step", [0.0, 0.1, 1.0, 100.0])
@pytest.mark.parametrize(("alpha", "ratio"), [(0.3, 1.0), (0.3, 0.5), (2.0, 0.1)])
def test_the_proximal_step_is_optimal(alpha, ratio, step):
    """p = argmin ‖p − x‖² / 2 + step l1 ‖p‖₁: x − p is step l1 times a subgradient of the absolute values at p."""
    options = penalty(alpha, ratio)
    p = shrink(X, options.l1 * step)
    subgradient = X - p
    assert (subgradient.abs() <= options.l1 * step + 1e-15).all()
    moved = p != 0
    assert torch.allclose(subgradient[moved], options.l1 * step * p[moved].sign(), atol=1e-15)

    def cost(q):
        return (q - X).square() / 2 + step * options.l1 * q.abs()

    g = torch.Generator().manual_seed(0)
    for size in (1e-3, 0.1, 3.0):
        other = p + size * torch.randn(p.shape, generator=g, dtype=torch.float64)
        assert (cost(p) <= cost(other) + 1e-15).all()


def test_non_finite_weights_stay_so():
    shrunk = shrink(torch.tensor([torch.inf, -torch.inf, torch.nan]), 0.03)
    assert not shrunk.isfinite().any()


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", SIZES)
@pytest.mark.parametrize("order", ORDERS)
def test_an_epoch_is_a_function_of_seed_and_epoch(order, n_rows):
    options = FitOptions(sampling=order, seed=5)
    again = [options.order(n_rows, epoch) for epoch in (3, 0, 3)]
    np.testing.assert_array_equal(again[0], again[2])
    assert again[0].shape == (n_rows,)
    assert again[0].dtype.kind == "i"
    if n_rows >= 31:
        assert np.array_equal(again[0], again[1]) == (order == "cyclic")
        assert np.array_equal(again[0], FitOptions(sampling=order, seed=6).order(n_rows, 3)) == (order == "cyclic")
    np.testing.assert_array_equal(again[0], FitOptions(sampling=order, batch_size=7, seed=5).order(n_rows, 3))
    ahead = Ahead(partial(options.order, n_rows))
    for epoch in (0, 1, 1, 2, 5, 3, 4):
        np.testing.assert_array_equal(ahead(epoch), options.order(n_rows, epoch))


@pytest.mark.parametrize("n_rows", SIZES)
def test_what_an_epoch_takes(n_rows):
    np.testing.assert_array_equal(FitOptions(sampling="cyclic").order(n_rows, 9), np.arange(n_rows))
    np.testing.assert_array_equal(np.sort(FitOptions(sampling="shuffle").order(n_rows, 9)), np.arange(n_rows))
    np.testing.assert_array_equal(FitOptions(shuffle=False).order(n_rows, 9), np.arange(n_rows))
    drawn = FitOptions(sampling="replacement").order(n_rows, 9)
    assert ((drawn >= 0) & (drawn < n_rows)).all()
    if n_rows == 1000:  # a row is left out with probability 1/e: 368 of 1000, give or take 12 times three
        assert abs(n_rows - len(set(drawn.tolist())) - 368) < 60


@pytest.mark.parametrize("order", ["shuffle", "replacement"])
def test_every_row_is_as_likely_as_any_other_at_every_place(order):
    """χ² of the row at each place over 6000 epochs: with 4 degrees of freedom above 33 once in a million."""
    n_epochs, n_rows = 6000, 5
    taken = np.stack([FitOptions(sampling=order, seed=1).order(n_rows, epoch) for epoch in range(n_epochs)])
    for place in range(n_rows):
        counts = np.bincount(taken[:, place], minlength=n_rows)
        assert ((counts - n_epochs / n_rows) ** 2 / (n_epochs / n_rows)).sum() < 33


def test_every_order_of_four_rows_is_as_likely():
    """χ² with 23 degrees of freedom: above 72 once in a million."""
    counts = Counter(tuple(FitOptions(seed=2).order(4, epoch).tolist()) for epoch in range(6000))
    assert len(counts) == 24
    assert sum((count - 250) ** 2 / 250 for count in counts.values()) < 72


@pytest.mark.parametrize("seed", [2**32, 2**63, 2**64 - 1])
def test_large_seeds_are_seeds_of_their_own(seed):
    orders = [tuple(FitOptions(seed=s).order(100, 0).tolist()) for s in (seed, seed - 1, 0)]
    assert len(set(orders)) == 3


@pytest.mark.parametrize(("n_rows", "size", "n"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (90, 32, 3)])
def test_the_last_batch_may_be_short(n_rows, size, n):
    assert FitOptions(batch_size=size).n_batches(n_rows) == n


@pytest.mark.parametrize(("average", "after"), [(False, None), (0, None), (True, 0), (1, 1), (32, 1), (33, 2)])
def test_averaging_begins_after_so_many_rows(average, after):
    assert FitOptions(average=average, batch_size=32).average_after == after


# --- steps ------------------------------------------------------------------------------------------------------------


def rates(name, t, eta0=0.3):
    """Of a fit of 20 epochs of 5 batches."""
    return FitOptions(learning_rate=name, eta0=eta0, max_iter=20, batch_size=4).rates(t, 18)


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates(name):
    found = rates(name, T)
    np.testing.assert_allclose(found, [EXPECTED[name](t) for t in T], atol=1e-15)
    assert found.dtype == np.float64
    assert found[0] == pytest.approx(0.3)
    assert (np.diff(found) <= 0).all()
    assert rates(name, T[:0]).shape == (0,)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_rate_does_not_depend_on_what_is_asked_beside_it(name):
    """So a fit may be cut anywhere."""
    parts = [rates(name, T[k : k + 7]) for k in range(0, 200, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), rates(name, T))


def test_cosine_ends_at_nothing_and_stays_there():
    found = rates("cosine", np.array([99, 100, 1000]), 1.0)
    assert found[0] > 0
    assert (abs(found[1:]) < 1e-16).all()


# --- bad options ------------------------------------------------------------------------------------------------------

BAD = [
    ({"solver": "adam"}, "unknown solver='adam'; choose one of auto, sgd, ca_sgd"),
    ({"gradient": "median"}, "unknown gradient='median'; choose one of mean, sum"),
    ({"sampling": "random"}, "unknown sampling='random'; choose one of shuffle, cyclic, replacement"),
    ({"learning_rate": "optimal"}, "unknown learning_rate='optimal'; choose one of constant, invscaling, cosine"),
    ({"device": "tpu"}, "unknown device='tpu'; choose cpu, cuda"),
    ({"s": 0}, 's must be a whole number, at least 1, or "auto"; got 0'),
    ({"batch_size": 0}, "batch_size must be a whole number, at least 1; got 0"),
    ({"max_iter": 0}, "max_iter must be a whole number, at least 1; got 0"),
    ({"n_iter_no_change": 0}, "n_iter_no_change must be a whole number, at least 1; got 0"),
    ({"average": -1}, "average must be a whole number, at least 0, True or False; got -1"),
    *[({"momentum": bad}, "momentum must be a number from 0 to 1 .excluded.; got") for bad in (1.0, -0.1)],
    *[({"alpha": bad}, "alpha must be a number from 0 to inf; got") for bad in (-1.0, float("nan"), float("inf"))],
    *[({"l1_ratio": bad}, "l1_ratio must be a number from 0 to 1; got") for bad in (-0.1, 1.1, float("nan"))],
    *[({"eta0": bad}, "eta0 must be a number from 0 .excluded. to inf") for bad in (0.0, -1.0, float("inf"))],
    ({"shuffle": False, "sampling": "replacement"}, "shuffle=False takes rows as they come; it cannot be combined"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_options_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        FitOptions(**changes)
