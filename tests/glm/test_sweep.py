"""Sweeps: each model is what it is alone, whatever it shares with others."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import laconic.glm.sweep as sweeps
from glm.tables import CASES, TOLERANCE, Case, distance, in_turn, same_bits
from laconic.glm import Diverged, FitOptions, solve
from laconic.glm.ranks import Wire
from laconic.glm.solvers.objective import Objective, serve_alone
from laconic.glm.sweep import path

FACTORS = (1.0, 0.1, 5.0)
"""Of a case's alpha, or where that is 0, alphas themselves."""


def assert_as_alone(case, how, tolerance, **options):
    """Every model of a sweep over alphas has the iterates, the losses and the steps of its own fit."""
    alphas = [factor * (case.alpha or 0.01) for factor in FACTORS]
    found = path(how, case.problem(torch.float64), alphas=alphas, **options)
    for alpha, fit in zip(alphas, found, strict=True):
        alone = solve(case.problem(torch.float64), replace(how, alpha=alpha))
        ours, theirs = fit.solution.state, alone.state
        assert fit.solution.outcome is alone.outcome, (fit.solution.outcome, alone.outcome)
        assert distance(ours.coef, theirs.coef) <= tolerance
        assert distance(ours.intercept, theirs.intercept) <= tolerance
        assert [row.get("eta") for row in ours.history] == [row.get("eta") for row in theirs.history]
        assert np.allclose([row["loss"] for row in ours.history], [row["loss"] for row in theirs.history], rtol=1e-11)
    return found


@pytest.mark.parametrize(
    ("case", "s"),
    [*in_turn(3, 0), *(pytest.param(case, 64, marks=pytest.mark.exhaustive, id=f"{case}-64") for case in CASES)],
)
def test_models_of_a_sweep_are_those_of_single_fits(case, s, monkeypatch):
    """By CA-SGD, and for s = 0 by SGD with products of matrices."""
    monkeypatch.setattr(sweeps, "LEAST_VALUES", 0)
    how = case.options("ca_sgd" if s else "sgd", max(1, s), torch.float64)
    found = assert_as_alone(case, how, TOLERANCE[torch.float64])
    shares = s > 0 or case.layout != "sparse"
    assert ("3 models at once" in found[0].solution.ran) == shares


def test_small_models_are_stepped_through_one_by_one_with_the_same_bits():
    case, how = Case(), Case().options("sgd", dtype=torch.float64)
    found = path(how, case.problem(), alphas=[0.1, 0.2])
    for alpha, fit in zip([0.1, 0.2], found, strict=True):
        assert same_bits(fit.solution.state, solve(case.problem(), replace(how, alpha=alpha)).state)


@pytest.mark.parametrize(
    ("case", "changes"),
    [
        (Case("bernoulli", schedule="adaptive"), {"solver": "sgd"}),
        (Case("gaussian", schedule="adaptive"), {"solver": "ca_sgd", "s": 4}),
        (Case("poisson", weighted=True, schedule="adaptive"), {"solver": "sgd", "polish": True}),
        (Case("multinomial3", offset=True, schedule="adaptive"), {"solver": "ca_sgd", "s": 4, "polish": True}),
        (Case("bernoulli", schedule="adaptive", l1_ratio=0.5), {"solver": "sgd"}),
    ],
    ids=str,
)
def test_each_model_stops_when_it_has_converged(case, changes, monkeypatch):
    """Passes over all rows are shared by models that are in different epochs, or done."""
    monkeypatch.setattr(sweeps, "LEAST_VALUES", 0)
    how = replace(case.options("sgd", dtype=torch.float64), eta0="auto", tol=1e-3, max_iter=200, **changes)
    found = assert_as_alone(case, how, 1e-9)
    assert len({fit.solution.state.epoch for fit in found}) > 1


def test_a_step_that_is_too_large_for_one_model_does_not_disturb_the_others(monkeypatch):
    """Its loss is no longer a number; in an epoch of its own it begins again with a quarter of the step."""
    monkeypatch.setattr(sweeps, "LEAST_VALUES", 0)
    case = Case("poisson", alpha=0.01)
    how = replace(case.options("sgd", dtype=torch.float64), tol=1e-3, max_iter=30)
    problem, steps = case.problem(), [0.01, 30.0, 0.02]
    several = [replace(how, eta0=eta0) for eta0 in steps]
    found = sweeps.solve_several(problem, several, sweeps.Communicator(), ours=True)
    for own, solution in zip(several, found, strict=True):
        alone = solve(problem, own, ours=True)
        assert solution.state.returns == alone.state.returns
        assert distance(solution.state.coef, alone.state.coef) < 1e-9
    assert [solution.state.returns > 0 for solution in found] == [False, True, False]
    with pytest.raises(Diverged, match="lower eta0"):
        path(replace(how, eta0=30.0), problem, alphas=[0.01, 0.1])


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "multinomial3", "poisson", "gamma"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_newton_ends_where_it_does_alone(family, layout):
    case = Case(family, layout=layout, weighted=True)
    alphas = [1e-3, 1.0, 0.0, 1e-2]
    found = path(FitOptions(recipe="fp64"), case.problem(), alphas=alphas)
    for alpha, fit in zip(alphas, found, strict=True):
        alone = solve(case.problem(), FitOptions(recipe="fp64", alpha=alpha))
        assert fit.options.alpha == alpha
        assert fit.solution.ran.startswith("newton, Cholesky")
        assert distance(fit.solution.state.coef, alone.state.coef) < 1e-5
        assert fit.solution.state.history[-1]["objective"] <= alone.history[-1]["objective"] * (1 + 1e-11)
    if family == "gaussian":
        assert all(fit.solution.state.epoch <= 2 for fit in found)


def test_only_the_largest_penalty_begins_with_sgd_where_newton_s_steps_end_the_fits(monkeypatch):
    monkeypatch.setattr("laconic.glm.resolve.DIRECT", 0)
    monkeypatch.setattr("laconic.glm.resolve.FEW_VALUES", 0)
    problem, alphas = Case("multinomial3").problem(), [1e-3, 1e-1, 1e-2]
    found = path(FitOptions(recipe="fp64"), problem, alphas=alphas)
    for alpha, fit in zip(alphas, found, strict=True):
        alone = solve(problem, FitOptions(recipe="fp64", alpha=alpha, solver="newton"))
        assert fit.solution.converged
        assert fit.solution.history[-1]["objective"] == pytest.approx(alone.history[-1]["objective"], rel=1e-5)
        assert any("eta" in row for row in fit.solution.history) == (alpha == max(alphas))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_all_penalties_have_the_solver_and_the_recipe_of_one(dtype):
    problem = Case("bernoulli").problem(dtype)
    first, *others = path(FitOptions(), problem, alphas=[1e-3, 1e-2, 1e-1])
    assert first.solution.ran == solve(problem, FitOptions(alpha=1e-3)).ran
    assert first.solution.ran.startswith("newton")
    for fit in others:
        assert (fit.solution.ran, fit.options.recipe) == (first.solution.ran, first.options.recipe)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("family", ["bernoulli", "poisson", "multinomial3"])
def test_newton_begins_where_the_last_solutions_lead_and_not_where_f_is_larger(family, direct, monkeypatch):
    if not direct:
        monkeypatch.setattr("laconic.glm.solvers.objective.DIRECT", 0)
    how, problem = FitOptions(solver="newton", recipe="fp64", tol=1e-10), Case(family, weighted=True).problem()
    alphas, falls, extrapolate = [0.0, 1e-12, *np.geomspace(1e-3, 1e-1, 8), 3.0], list[float](), sweeps._extrapolate

    def watched(run, known):
        F = run.objective
        before = serve_alone(F.at(F.theta(run.state), margins=False)).value
        yield from extrapolate(run, known)
        falls.append(before - serve_alone(F.at(F.theta(run.state), margins=False)).value)

    monkeypatch.setattr(sweeps, "_extrapolate", watched)
    alone = [solve(problem, replace(how, alpha=alpha)) for alpha in alphas]
    for farthest in (2.0, 1e9):
        monkeypatch.setattr(sweeps, "FARTHEST", farthest)
        for fit, other in zip(path(how, problem, alphas=alphas), alone, strict=True):
            assert fit.solution.outcome is other.outcome
            assert fit.solution.history[-1]["objective"] == pytest.approx(other.history[-1]["objective"], rel=1e-9)
    assert min(falls) >= -1e-14
    assert sum(fall > 0 for fall in falls) >= 12
    assert falls[8] == falls[17] == 0, "without a penalty there is no logarithm of it"


@pytest.mark.parametrize("family", ["bernoulli", "multinomial3"])
def test_no_point_of_a_path_is_computed_twice_and_one_diagonal_serves_all_penalties(family, monkeypatch):
    monkeypatch.setattr("laconic.glm.solvers.objective.DIRECT", 0)
    monkeypatch.setattr("laconic.glm.solvers.objective.WIDTH", 0)
    asked, passes, alphas = list[tuple[bool, float, bytes]](), Objective.passes, [1e-4, 1e-3, 1e-2, 1e-1]

    def watched(self, some):
        asked.extend((one.squared, float(one.objective.l2[0]), one.v.float().numpy().tobytes()) for one in some)
        return passes(self, some)

    monkeypatch.setattr(Objective, "passes", watched)
    found = path(FitOptions(solver="newton", recipe="fp32"), Case(family).problem(torch.float32), alphas=alphas)
    assert all(fit.solution.converged for fit in found)
    products = [one for one in asked if not one[0]]
    assert len(products) == len(set(products))
    assert {l2 for squared, l2, _ in asked if squared} == {max(alphas)}


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("family", ["bernoulli", "multinomial3", "poisson", "gaussian"])
def test_newton_fits_that_share_their_passes_end_as_near_to_the_optimum(
    family, direct, sampled, intercept, weighted, monkeypatch
):
    """As on a GPU, here at most 5 at once. 10 penalties, of which one is 0."""
    monkeypatch.setattr(sweeps, "_most_at_once", lambda *_: 5)
    for name, value in {"SAMPLE_FROM": 0, "SAMPLE": 2, "SAMPLED_ROWS": 2}.items() if sampled else ():
        monkeypatch.setattr(sys.modules[sweeps.Run.__module__], name, value)
    for name in ("ONCE", "DESCEND", "FEW", "CHEAP", *(() if direct else ("DIRECT", "WIDTH"))):
        monkeypatch.setattr(f"laconic.glm.solvers.objective.{name}", 0)
    at_once, passes = list[int](), Objective.passes
    monkeypatch.setattr(Objective, "passes", lambda self, asked: at_once.append(len(asked)) or passes(self, asked))
    problem, alphas = Case(family, weighted=weighted).problem(), [1e-2, 0.0, *np.geomspace(1e-5, 1.0, 8)]
    how = FitOptions(solver="newton", recipe="fp64", fit_intercept=intercept, tol=1e-6)
    found = path(how, problem, alphas=alphas)
    assert max(at_once) == 5
    assert sum(at_once) > 1.5 * len(at_once)
    null = Objective(problem, found[0].options, Wire(sweeps.Communicator())).null
    for alpha, fit in zip(alphas, found, strict=True):
        alone = solve(problem, replace(how, alpha=alpha, tol=1e-12))
        assert fit.options.alpha == alpha
        assert fit.solution.converged
        ours, least = fit.solution.history[-1]["objective"], alone.history[-1]["objective"]
        assert -1e-12 < ours - least <= 1e-5 * (null - least)
