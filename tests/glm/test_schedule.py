"""Step sizes."""

import numpy as np
import pytest

from laconic.glm import Adaptive, Constant, Cosine, InverseScaling, schedule
from laconic.glm.settings import SCHEDULES

T = np.arange(200)
EXPECTED = {
    "constant": lambda t: 0.3,
    "adaptive": lambda t: 0.3,
    "invscaling": lambda t: 0.3 / (t + 1) ** 0.25,
    "cosine": lambda t: 0.15 * (1 + np.cos(np.pi * min(t, 100) / 100)),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates(name):
    made = schedule(name, 0.3, n_iterations=100)
    rates = made.rates(T)
    np.testing.assert_allclose(rates, [EXPECTED[name](t) for t in T], atol=1e-15)
    assert rates.dtype == np.float64
    assert rates[0] == pytest.approx(0.3)
    assert (np.diff(rates) <= 0).all()
    assert made.name == name
    assert made.adapts == (name == "adaptive")
    assert made.rates(T[:0]).shape == (0,)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_rate_does_not_depend_on_what_is_asked_beside_it(name):
    """So a fit may be cut anywhere."""
    made = schedule(name, 0.3, n_iterations=100)
    np.testing.assert_array_equal(np.concatenate([made.rates(T[k : k + 7]) for k in range(0, 200, 7)]), made.rates(T))


def test_cosine_ends_at_nothing_and_stays_there():
    rates = Cosine(1.0, n_iterations=10).rates(np.array([9, 10, 1000]))
    assert rates[0] > 0
    assert (abs(rates[1:]) < 1e-16).all()


def test_names_and_classes_are_the_same():
    assert schedule("constant", 0.1) == Constant(0.1)
    assert schedule("invscaling", 0.1, power_t=0.5) == InverseScaling(0.1, 0.5)
    assert schedule("cosine", 0.1, n_iterations=7) == Cosine(0.1, 7)
    assert schedule("adaptive", 0.1) == Adaptive(0.1)
    assert len({Constant(0.1), Adaptive(0.1), Constant(0.1)}) == 2


def test_bad_arguments():
    with pytest.raises(ValueError, match="unknown learning_rate 'optimal'; choose one of constant, invscaling, cosine"):
        schedule("optimal", 0.1)
    for name in SCHEDULES:
        for eta0 in (0.0, -1.0, float("inf"), float("nan")):
            with pytest.raises(ValueError, match="eta0 must be positive and finite, got"):
                schedule(name, eta0)
