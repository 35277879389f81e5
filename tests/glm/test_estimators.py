"""The estimators keep scikit-learn's contract."""

import pickle

import numpy as np
import pyarrow
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.metrics import make_scorer, max_error
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    LeaveOneOut,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from laconic import CASGDClassifier, CASGDClassifierCV, CASGDRegressor, CASGDRegressorCV
from laconic.glm import Precision

from .estimator_problems import KNOWN, M, features

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning"),
]

CHECKED = [
    CASGDClassifier(),
    CASGDRegressor(),
    CASGDRegressor("poisson"),
    CASGDRegressor("gamma", max_iter=20),
    CASGDRegressor("tweedie", max_iter=20),
    CASGDClassifier(solver="ca_sgd", s=4, max_iter=20),
    CASGDClassifierCV(alphas=(1e-3, 1.0), cv=2, max_iter=8),
    CASGDRegressorCV(alphas=(1e-3, 1.0), cv=2, max_iter=8),
]


@parametrize_with_checks(CHECKED)
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


def quick(name, **parameters):
    return KNOWN[name].ours(max_iter=5, tol=None, **parameters)


@pytest.mark.parametrize("name", KNOWN)
def test_a_clone_and_a_pickle_are_the_same_model(name):
    X, y = features(), KNOWN[name].y
    model = quick(name, recipe=Precision(data="bf16"), s=2).fit(X, y)
    copy, anew = pickle.loads(pickle.dumps(model)), clone(model).fit(X, y)  # noqa: S301
    for other in (copy, anew):
        assert other.get_params() == model.get_params()
        np.testing.assert_array_equal(other.coef_, model.coef_)
        np.testing.assert_array_equal(other.predict(X), model.predict(X))
    copy.partial_fit(X, y)
    assert copy.t_ == model.t_ * 6 / 5


def test_grid_search_and_pipeline():
    X, y = features() * 100 + 50, KNOWN["binary"].y
    model = make_pipeline(StandardScaler(), quick("binary"))
    search = GridSearchCV(model, {"casgdclassifier__alpha": [1e-4, 10.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"casgdclassifier__alpha": 1e-4}
    assert search.score(X, y) > 0.7
    assert cross_val_score(quick("linear"), features(), KNOWN["linear"].y, cv=3).min() > 0.6


def matrices():
    X = features()
    yield "numpy", X
    yield "numpy float32", X.astype(np.float32)
    yield "column-major", np.asfortranarray(X)
    yield "backwards", X[::-1, ::-1][::-1, ::-1]
    yield "list", X.tolist()
    yield "csr", scipy.sparse.csr_array(X)
    yield "csc", scipy.sparse.csc_matrix(X)
    yield "coo", scipy.sparse.coo_array(X)
    yield "torch", torch.from_numpy(X)
    yield "torch float32", torch.from_numpy(X).float()
    yield "torch column slice", torch.from_numpy(np.hstack([X, X]))[:, : X.shape[1]]
    yield "arrow", pyarrow.table({f"x{j}": column for j, column in enumerate(X.T)})


@pytest.mark.parametrize("name", ["multinomial", "poisson"])
@pytest.mark.parametrize(("kind", "X"), list(matrices()), ids=[kind for kind, _ in matrices()])
def test_every_kind_of_matrix_gives_the_same_model(name, kind, X):
    y = KNOWN[name].y
    usual = quick(name).fit(features(), y)
    model = quick(name).fit(X, y)
    exact = 1e-4 if "float32" in kind else 1e-10
    np.testing.assert_allclose(model.coef_, usual.coef_, rtol=exact, atol=exact)
    assert isinstance(model.coef_, np.ndarray)
    assert model.coef_.dtype == (np.float32 if "float32" in kind else np.float64)
    assert model.n_features_in_ == 6
    assert hasattr(model, "feature_names_in_") == (kind == "arrow")
    methods = ["predict", "predict_proba", "predict_log_proba", "decision_function"]
    for method in [m for m in methods if hasattr(model, m)]:
        answer = getattr(model, method)(X)
        text = isinstance(y[0], str) and method == "predict"
        assert isinstance(answer, torch.Tensor if kind.startswith("torch") and not text else np.ndarray)
        assert len(answer) == len(y)


def test_numeric_labels_of_tensors_are_tensors():
    X, y = torch.from_numpy(features()), torch.from_numpy(KNOWN["binary"].y) * 2 - 1
    model = quick("binary").fit(X, y, sample_weight=torch.ones(len(y)))
    predicted = model.predict(X)
    assert predicted.dtype == torch.int64
    assert set(predicted.tolist()) == {-1, 1}
    assert model.score(X, y) == pytest.approx(float((predicted == y).float().mean()))


def test_what_was_fitted_is_told():
    model = quick("multinomial").fit(features(), KNOWN["multinomial"].y)
    assert model.coef_.shape == (4, 6)
    assert model.intercept_.shape == (4,)
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog"]
    assert (model.n_iter_, model.t_, model.s_) == (5, 5 * 47, 1)
    assert [row["epoch"] for row in model.history_] == [0, 1, 2, 3, 4]
    assert model.ran_ == "sgd, compiled, fp64"
    assert not model.converged_
    assert model.outcome_.name == "MAX_ITER"
    binary = quick("binary", solver="ca_sgd", s=8, recipe="C", eta0=0.5).fit(features(), KNOWN["binary"].y)
    assert binary.coef_.shape == (1, 6)
    assert (binary.s_, binary.eta0_) == (8, 0.5)
    assert binary.ran_ == "ca_sgd s=8, compiled recurrence, C"
    linear = quick("linear").fit(features(), KNOWN["linear"].y)
    assert linear.coef_.shape == (6,)
    assert linear.intercept_.shape == (1,)


def test_probabilities():
    X = features()
    for name in ("binary", "multinomial"):
        model = quick(name).fit(X, KNOWN[name].y)
        np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
        np.testing.assert_array_equal(model.classes_[model.predict_proba(X).argmax(1)], model.predict(X))
    far = model.predict_log_proba(1e6 * X)
    assert np.isfinite(far).all()


def test_verbose_prints_a_line_an_epoch(capsys):
    quick("binary", verbose=1, early_stopping=True).fit(features(), KNOWN["binary"].y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("epoch 1 of 5: loss ")
    assert "validation" in lines[4]
    KNOWN["binary"].ours(verbose=1, solver="newton").fit(features(), KNOWN["binary"].y)
    assert ", gap " in capsys.readouterr().out


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("solver", ["newton", "sgd", "ca_sgd"])
def test_one_vs_rest_is_a_binary_model_of_each_class(solver, sparse):
    X, y = features(), KNOWN["multinomial"].y
    X = scipy.sparse.csr_matrix(X) if sparse else X
    steps = {"random_state": 0, "alpha": 0.01}
    steps |= {} if solver == "newton" else {"eta0": 0.1, "max_iter": 3, "tol": None, "learning_rate": "constant"}
    model = CASGDClassifier(solver=solver, multi_class="ovr", **steps).fit(X, y)
    alone = [CASGDClassifier(solver=solver, **steps).fit(X, y == label) for label in model.classes_]
    np.testing.assert_allclose(model.coef_, np.concatenate([one.coef_ for one in alone]), atol=1e-6)
    p = np.stack([one.predict_proba(X)[:, 1] for one in alone], 1)
    np.testing.assert_allclose(model.predict_proba(X), p / p.sum(1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), atol=1e-12)
    with pytest.raises(ValueError, match="unknown multi_class='both'"):
        CASGDClassifier(multi_class="both").fit(X, y)


def test_a_search_finds_the_penalty_of_single_fits():
    X, y = features(), KNOWN["binary"].y
    folds, alphas = StratifiedKFold(3), [1e-3, 0.3, 0.01]
    for scoring in (None, "neg_log_loss"):
        found = CASGDClassifierCV(alphas=alphas, cv=folds, scoring=scoring, random_state=0).fit(X, y)
        one_by_one = [cross_val_score(CASGDClassifier(alpha=a), X, y, cv=folds, scoring=scoring) for a in alphas]
        np.testing.assert_allclose(found.scores_.T, one_by_one, atol=1e-6)
        assert found.alpha_ == alphas[np.mean(one_by_one, 1).argmax()]
        assert found.best_score_ == found.scores_.mean(0).max()
        best = CASGDClassifier(alpha=found.alpha_).fit(X, y)
        np.testing.assert_allclose(found.coef_, best.coef_, atol=1e-7)
    assert not hasattr(found, "partial_fit")
    for wrong in ([], "x", [None, "y"]):
        with pytest.raises(ValueError, match="alphas must be a list of penalties"):
            CASGDRegressorCV(alphas=wrong).fit(X, y)
    with pytest.raises(ValueError, match=r"alphas must be a number from 0 to inf; got -1\.0"):
        CASGDRegressorCV(alphas=[1, -1]).fit(X, y)
    splitter, groups = GroupKFold(3), np.arange(len(y)) % 5
    with pytest.raises(ValueError, match=r"cv: GroupKFold\(.*\) needs groups; give its splits, such as cv=list\("):
        CASGDClassifierCV(alphas=alphas, cv=splitter).fit(X, y)
    splits = list(splitter.split(X, y, groups))
    found = CASGDClassifierCV(alphas=alphas, cv=splits, random_state=0).fit(X, y)
    one_by_one = [cross_val_score(CASGDClassifier(alpha=a), X, y, cv=splits) for a in alphas]
    np.testing.assert_allclose(found.scores_.T, one_by_one, atol=1e-6)


@pytest.mark.parametrize("kind", ["numbers", "masks"])
def test_folds_train_on_the_rows_of_their_splits(kind):
    """A part of the rows before those that are judged, as of a time series."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 20))
    y, alphas = X @ rng.standard_normal(20) + 3 * rng.standard_normal(120), [1e-4, 0.1, 1.0]
    splits = list(TimeSeriesSplit(4).split(X))
    alone = [cross_val_score(CASGDRegressor(alpha=alpha), X, y, cv=splits) for alpha in alphas]
    if kind == "masks":
        splits = [tuple(np.isin(np.arange(120), part) for part in split) for split in splits]
    found = CASGDRegressorCV(alphas=alphas, cv=splits).fit(X, y)
    np.testing.assert_allclose(found.scores_, np.transpose(alone), rtol=1e-6)


def test_of_equal_scores_the_lower_loss_decides():
    """A row alone has no variance to explain: its score is 0."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5))
    y = X @ np.arange(1.0, 6.0) + rng.standard_normal(60)
    for alphas in ([100.0, 1.0, 1e-3], [1e-3, 1.0, 100.0]):
        assert CASGDRegressorCV(alphas=alphas, cv=LeaveOneOut()).fit(X, y).alpha_ == 1e-3


SPARSE = ("coo_matrix", "coo_array", "csc_matrix", "bsr_matrix")


@pytest.mark.parametrize("kind", SPARSE)
def test_scoring_knows_weights_and_rows_of_any_matrix(kind):
    X, y, w = features(), KNOWN["binary"].y, np.random.default_rng(0).integers(0, 3, len(features()))
    matrix, options = getattr(scipy.sparse, kind)(X), {"alphas": [1e-3, 0.3], "cv": 3, "random_state": 0}
    expected = CASGDClassifierCV(**options).fit(X, y, sample_weight=w).scores_
    found = CASGDClassifierCV(**options, scoring="accuracy").fit(matrix, y, sample_weight=w).scores_
    np.testing.assert_allclose(found, expected)


SCORING = {
    "a function without weights": (
        lambda model, X, y: 1.0,
        {"sample_weight": np.ones(M)},
        "scoring takes no sample_weight",
    ),
    "a metric without weights": (
        make_scorer(max_error),
        {"sample_weight": np.ones(M)},
        "scoring takes no sample_weight",
    ),
    "several": ({"a": "r2"}, {}, "scoring must be a name or a function, got {'a': 'r2'}; leave it out"),
    "an offset": ("r2", {"offset": np.zeros(M)}, "scoring knows no offset"),
}


@pytest.mark.parametrize("name", SCORING)
def test_scoring_that_cannot_judge_these_rows(name):
    scoring, given, message = SCORING[name]
    with pytest.raises(ValueError, match=message):
        CASGDRegressorCV(alphas=[1.0], scoring=scoring).fit(features(), KNOWN["linear"].y, **given)
