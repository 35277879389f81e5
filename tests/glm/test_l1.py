"""Absolute values in the penalty: Newton's method ends at the optimum, with weights that are exactly zero."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from glm.estimator_problems import data
from glm.tables import Case, M
from laconic import CASGDClassifier, CASGDRegressor
from laconic.data import load_digits
from laconic.glm import DenseColumns, FitOptions, Gaussian, Outcome, Problem, path, solve


@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("family", ["bernoulli", "gaussian", "poisson", "gamma", "multinomial3", "one-vs-rest3"])
@pytest.mark.parametrize("few", [True, False])
def test_newton_ends_where_no_subgradient_leads_on(family, layout, fit_intercept, l1_ratio, few, monkeypatch):
    """At the optimum the slope of the smooth part is −l1 sign(x), and no steeper than l1 where x is 0."""
    monkeypatch.setattr("laconic.glm.solvers.objective.ONCE", 2**18 if few else 0)
    case = Case(family, layout=layout, weighted=True, offset=not family.endswith("3"))
    problem, every = case.problem(), np.arange(M)
    offset = 0 if problem.offset is None else problem.offset[:, None]

    def slopes(z):
        own = problem.weights[:, None] * problem.family.derivative(z, problem.y) / M
        return own, problem.columns.take(every, torch.float64).combine(own.T)

    steepest = float(slopes(problem.null * fit_intercept + offset + torch.zeros(M, 1))[1].abs().max())
    alpha = 0.7 * steepest / l1_ratio
    options = FitOptions(
        solver="newton", alpha=alpha, l1_ratio=l1_ratio, recipe="fp64", tol=1e-11, fit_intercept=fit_intercept
    )
    solution = solve(problem, options)
    assert (solution.outcome, solution.ran) == (Outcome.CONVERGED, "newton, coordinate descent, fp64")
    x, b = solution.state.coef, solution.state.intercept
    of_rows, smooth = slopes(problem.columns.margins(x) + b + offset)
    smooth, at_zero = smooth + options.l2 * x, x == 0
    assert bool(at_zero.any())
    assert not bool(at_zero.all())
    assert bool((smooth[at_zero].abs() <= options.l1 * (1 + 1e-5)).all())
    assert torch.allclose(smooth[~at_zero], -options.l1 * x.sign()[~at_zero], rtol=0, atol=1e-4 * options.l1)
    assert torch.allclose(of_rows.sum(0) * fit_intercept, torch.zeros(len(b), dtype=torch.float64), atol=1e-5)


@pytest.mark.parametrize("depend", [False, True])
def test_absolute_values_choose_columns_as_coordinate_descent_alone_does(depend):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 30))
    if depend:  # three columns are nearly one, and neither rows nor squares keep them apart
        X = np.repeat(X[:, :10], 3, 1) + 1e-3 * rng.standard_normal((300, 30))
    y = X[:, 0] - 2 * X[:, 7] + rng.standard_normal(300)
    ours = CASGDRegressor(alpha=0.05, l1_ratio=1.0).fit(X, y)
    rival = Lasso(alpha=0.05, tol=1e-12, max_iter=10**6).fit(X, y)
    assert (ours.converged_, ours.ran_) == (True, "newton, coordinate descent, fp64")
    assert ours.coef_ == pytest.approx(rival.coef_, abs=1e-6)
    assert 0 < np.count_nonzero(ours.coef_) == np.count_nonzero(rival.coef_) < 30


def test_small_data_of_nearly_equal_columns_end_soon():
    """Coordinate descent alone follows such columns for hours."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((65, 1)) + 1e-3 * rng.standard_normal((65, 4))
    y = (X @ np.ones((4, 3)) * [0, 1, 2] / 4 + rng.gumbel(size=(65, 3))).argmax(1)
    model = CASGDClassifier(alpha=2e-6, l1_ratio=1.0).fit(X, y)
    assert (model.converged_, model.n_iter_ <= 5) == (True, True)


def test_a_step_that_can_only_gain_rounding_errors_is_seen_to_end():
    images, y = load_digits()
    model = CASGDClassifier(alpha=0.006, l1_ratio=1.0).fit(images.double(), y)
    assert (model.converged_, len(model.history_)) == (True, 2)
    assert model.history_[-1]["gap"] <= 1e-4


def test_a_path_that_ends_without_a_penalty_has_single_fits():
    """Fewer rows than columns, whose basis knows nothing of absolute values."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.standard_normal((60, 100)))
    y = 2 * X[:, 0] - X[:, 1] + torch.from_numpy(rng.standard_normal(60))
    problem, options = Problem(DenseColumns(X), Gaussian(), y), FitOptions(l1_ratio=1.0)
    for alpha, fit in zip([0.1, 0.3], path(options, problem, alphas=[0.0, 0.1, 0.3])[1:], strict=True):
        single = solve(problem, replace(options, alpha=alpha))
        assert torch.allclose(fit.solution.state.coef, single.state.coef, atol=1e-6)
        assert bool((single.state.coef == 0).any())


def test_means_that_overflow_end_in_a_warning_not_in_an_error():
    rng = np.random.default_rng(9)
    X, y, far = rng.standard_normal((30, 2)) * 100, rng.poisson(1, 30), 700 * rng.standard_normal((20, 30))
    for offset in far:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            CASGDRegressor("tweedie", alpha=1e-3, l1_ratio=1.0, standardize=False).fit(X, y, offset=offset)


def test_scaled_columns_leave_an_l1_penalty_of_columns_as_given():
    X, y, _ = data("claims")
    X = X * 10.0 ** np.arange(X.shape[1])
    models = [
        CASGDRegressor("poisson", alpha=0.01, l1_ratio=0.5, standardize=how, tol=1e-10).fit(X, y)
        for how in ("auto", False)
    ]
    assert "columns were scaled" in models[0].explain()
    assert models[0].coef_ == pytest.approx(models[1].coef_, rel=1e-4, abs=1e-7)
