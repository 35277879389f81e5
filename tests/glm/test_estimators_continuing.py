"""A fit that goes on: warm starts, parts of the data, callbacks, rows held back."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from laconic import CASGDClassifier, CASGDRegressor

from .estimator_problems import KNOWN, distance, features


@pytest.mark.parametrize("name", KNOWN)
def test_stop_and_go_is_never_stopped(name):
    X, y = features(), KNOWN[name].y
    options = {"momentum": 0.5, "average": 100, "tol": None, "learning_rate": "invscaling"}
    whole = KNOWN[name].ours(max_iter=6, **options).fit(X, y)
    parts = KNOWN[name].ours(max_iter=2, warm_start=True, **options)
    for epochs in (2, 4, 6):
        parts.fit(X, y)
        assert len(parts.history_) == epochs
    np.testing.assert_array_equal(parts.coef_, whole.coef_)
    np.testing.assert_array_equal(parts.intercept_, whole.intercept_)
    assert (parts.t_, parts.n_iter_) == (whole.t_, 2)


def test_a_callback_stops_and_a_warm_start_goes_on():
    X, y = features(), KNOWN["binary"].y
    whole = KNOWN["binary"].ours(max_iter=3, tol=None).fit(X, y)
    model = KNOWN["binary"].ours(max_iter=3, tol=None, warm_start=True)
    model.set_params(callbacks=[lambda progress: progress.epoch == 1 and progress.fraction > 0.3]).fit(X, y)
    assert model.outcome_.name == "STOPPED"
    assert 47 < model.t_ < 94
    model.set_params(callbacks=(), max_iter=2).fit(X, y)
    np.testing.assert_array_equal(model.coef_, whole.coef_)


@pytest.mark.parametrize("solver", ["sgd", "auto"])
def test_a_warm_start_without_an_intercept_has_none(solver):
    X, y = features(), KNOWN["linear"].y
    model = CASGDRegressor(warm_start=True, solver=solver).fit(X, y + 10)
    assert abs(float(model.intercept_[0])) > 5
    assert float(model.set_params(fit_intercept=False).fit(X, y).intercept_[0]) == 0


def test_a_warm_start_on_other_data_begins_a_new_run():
    X, y = features(), KNOWN["linear"].y
    model = KNOWN["linear"].ours(warm_start=True).fit(X, y)
    model.fit(X[:700], -y[:700])
    best = KNOWN["linear"].best(X[:700], -y[:700])
    assert distance(model, best) < 1e-2


def test_a_warm_start_may_change_parameters():
    X, y = features(), KNOWN["linear"].y
    model = KNOWN["linear"].ours(warm_start=True, max_iter=3, tol=None).fit(X, y)
    model.set_params(momentum=0.5, alpha=0.1).fit(X, y)
    model.set_params(average=True, momentum=0.0, max_iter=40).fit(X, y)
    assert distance(model, KNOWN["linear"].best(alpha=0.1)) < 0.06  # 0.01 to 0.04 over ten seeds
    assert len(model.history_) == 46


@pytest.mark.parametrize(
    "changed", [{"batch_size": 64}, {"batch_size": 5000}, {"batch_size": 7}, {"sampling": "replacement"}], ids=str
)
def test_other_batches_begin_the_epoch_anew(changed):
    X, y = features(), KNOWN["binary"].y
    model = KNOWN["binary"].ours(tol=None, warm_start=True)
    model.set_params(callbacks=[lambda progress: progress.epoch == 1 and progress.fraction > 0.6]).fit(X, y)
    before = model.t_
    model.set_params(callbacks=(), max_iter=2, **changed).fit(X, y)
    assert model.t_ == before + 2 * -(-len(y) // model.batch_size)
    assert (model.outcome_.name, len(model.history_)) == ("MAX_ITER", 3)


@pytest.mark.parametrize("name", KNOWN)
def test_parts_of_the_data_one_after_another(name):
    X, y = features(), KNOWN[name].y
    model = KNOWN[name].ours(eta0=0.02, random_state=3)
    classes = {"classes": np.unique(y)} if name in ("binary", "multinomial") else {}
    for _ in range(30):
        for rows in np.split(np.arange(len(y)), 3):
            model.partial_fit(X[rows], y[rows], **classes)
    assert model.n_iter_ == 1
    assert model.t_ == 90 * 16
    assert distance(model, KNOWN[name].best()) < 0.1


def test_counts_with_exposure_in_parts():
    rng, X = np.random.default_rng(0), features()
    exposure = rng.uniform(0.5, 3, len(X))
    y = rng.poisson(exposure * np.exp(0.3 * X[:, 0]))
    model = CASGDRegressor("poisson", eta0=0.02, random_state=0)
    for _ in range(20):
        model.partial_fit(X, y, sample_weight=np.ones(len(y)), offset=np.log(exposure))
    assert model.coef_[0] == pytest.approx(0.3, abs=0.05)


def test_one_part_is_one_epoch():
    X, y = features(), KNOWN["linear"].y
    part = KNOWN["linear"].ours(eta0=0.02).partial_fit(X, y).partial_fit(X, y)
    whole = KNOWN["linear"].ours(max_iter=2, tol=None, eta0=0.02).fit(X, y)
    np.testing.assert_array_equal(part.coef_, whole.coef_)


def test_classes_of_parts():
    X, y = features(), KNOWN["multinomial"].y
    model = CASGDClassifier()
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        model.partial_fit(X, y)
    model.partial_fit(X[y != "dog"], y[y != "dog"], classes=["ant", "bee", "cat", "dog"])
    assert model.coef_.shape == (4, 6)
    with pytest.raises(ValueError, match="label 'eel' in row 1, which is not among the classes"):
        model.partial_fit(X[:1], ["eel"])
    with pytest.raises(ValueError, match="not the same as on last call"):
        model.partial_fit(X, y, classes=["ant", "bee"])
    with pytest.raises(ValueError, match="with partial_fit, pass a dict"):
        CASGDClassifier(class_weight="balanced").partial_fit(X, y, classes=np.unique(y))


@pytest.mark.parametrize("name", KNOWN)
def test_rows_held_back_decide_when_to_stop(name):
    known, X = KNOWN[name], features()
    model = known.ours(early_stopping=True, validation_fraction=0.2).fit(X, known.y)
    assert model.converged_
    assert all("validation_loss" in row for row in model.history_)
    assert distance(model, known.best()) < 0.15
    assert model.t_ == model.n_iter_ * -(-1200 // 32)


def test_too_few_epochs_are_warned_of():
    X, y = features(), KNOWN["linear"].y
    with pytest.warns(ConvergenceWarning, match="did not converge within max_iter=2 epochs"):
        KNOWN["linear"].ours(max_iter=2, solver="sgd").fit(X, y)


def test_a_fit_that_stalled_says_what_to_change_and_a_warm_start_begins_a_new_run():
    X, y = features(), KNOWN["linear"].y
    model = KNOWN["linear"].ours(max_iter=200, tol=1e-9, solver="sgd", learning_rate="constant", warm_start=True)
    for _ in range(2):
        with pytest.warns(ConvergenceWarning, match="more epochs do not help: raise tol, or change solver, eta0"):
            model.fit(X, y)
        assert model.outcome_.name == "STALLED"
        assert 0 < model.n_iter_ < 200
