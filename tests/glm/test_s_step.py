"""Law 8: CA-SGD's iterates equal SGD's on the same batches, whatever s."""

from functools import cache
from itertools import combinations, pairwise, product

import pytest
import torch

from glm.tables import (
    CASES,
    CHOICES,
    EACH,
    TOLERANCE,
    Case,
    assert_same_iterates,
    assert_same_losses,
    distance,
    fit,
    in_turn,
    vectors,
)
from laconic.glm import solve

S = [1, 2, 3, 7, 16, 64]


@cache
def by_sgd(case: Case, dtype: torch.dtype):
    return fit(case.problem(dtype), case.options("sgd", dtype=dtype))


def test_the_table_lets_every_two_choices_meet():
    for a, b in combinations(CHOICES, 2):
        assert {(getattr(c, a), getattr(c, b)) for c in CASES} == set(product(CHOICES[a], CHOICES[b]))
    for kind, half in product(CHOICES, (CASES[::2], CASES[1::2])):  # what `in_turn` relies on
        assert {getattr(case, kind) for case in half} == set(CHOICES[kind])


@pytest.mark.parametrize(("case", "dtype"), in_turn(torch.float64, torch.float32))
def test_iterates_and_losses_are_those_of_sgd(case, dtype):
    expected, expected_ends = by_sgd(case, dtype)
    for s in S:
        solution, ends = fit(case.problem(dtype), case.options("ca_sgd", s, dtype))
        assert_same_iterates(ends, expected_ends, TOLERANCE[dtype])
        assert_same_losses(solution.history, expected.history, TOLERANCE[dtype])
        assert solution.state.factor == expected.state.factor


@pytest.mark.parametrize("case", **EACH)
def test_the_table_is_worth_comparing(case):
    """Iterates move in every epoch, and the loss falls: equal would otherwise say little."""
    solution, ends = by_sgd(case, torch.float64)
    assert all(distance(a["x"], b["x"]) > 1e-6 for a, b in pairwise(ends))
    if case.order != "replacement":  # epochs of other rows have other losses
        assert solution.history[-1]["loss"] < solution.history[0]["loss"]
    assert solution.state.factor == 1 or case.schedule == "adaptive"


@pytest.mark.parametrize("n_outer", [1, 2, 3])
def test_iterates_are_equal_inside_an_epoch_too(n_outer):
    case = Case("poisson", momentum=0.9, average=3, weighted=True, offset=True)
    states = []
    for solver in ("sgd", "ca_sgd"):

        def stop(progress):
            return progress.iteration == 7 * n_outer

        # SGD is cut into segments of one iteration here, CA-SGD into segments of s = 7
        solution = solve(case.problem(), case.options(solver, s=7), callbacks=[stop])
        assert solution.state.iteration == 7 * n_outer
        states.append(vectors(solution.state))
    assert_same_iterates(states[1:], states[:1], TOLERANCE[torch.float64])


L1 = [
    Case("bernoulli", l1_ratio=1.0, alpha=0.05),
    Case("gaussian", l1_ratio=0.5, momentum=0.9, batch_size=32),
    Case("poisson", l1_ratio=0.3, layout="sparse", schedule="cosine", weighted=True),
    Case("multinomial3", l1_ratio=0.7, layout="sparse", momentum=0.9),
    Case("multinomial3", l1_ratio=0.7, alpha=0.02, average=5),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("case", L1, ids=str)
def test_with_l1_equality_holds_at_s_1(case, dtype):
    expected, expected_ends = by_sgd(case, dtype)
    solution, ends = fit(case.problem(dtype), case.options("ca_sgd", 1, dtype))
    assert_same_iterates(ends, expected_ends, TOLERANCE[dtype])
    assert_same_losses(solution.history, expected.history, TOLERANCE[dtype])


@pytest.mark.parametrize("case", L1, ids=str)
def test_with_l1_the_iterates_depend_on_s_and_stay_near(case):
    """As the penalty's docstring says: the absolute value acts once an outer iteration, with its step sizes summed."""
    _, expected = by_sgd(case, torch.float64)
    _, ends = fit(case.problem(), case.options("ca_sgd", 7))
    apart = distance(ends[-1]["x"], expected[-1]["x"])
    assert 1e-9 < apart < 0.25
