"""`recipe="auto"`: what it is, that it says why, and that it stays."""

import numpy as np
import pytest

from laconic import CASGDClassifier, CASGDRegressor
from laconic.glm import Precision, recipe
from laconic.glm import resolve as chooser
from laconic.glm.analysis import choice

RNG = np.random.default_rng(0)
X = RNG.standard_normal((600, 8))
Z = X @ RNG.standard_normal(8)
Y = (Z + RNG.logistic(size=600) > 0).astype(int)


def fitted(given=X, kind=CASGDClassifier, y=Y, **options):
    return kind(**{"max_iter": 3, "tol": None, "random_state": 0} | options).fit(given, y)


@pytest.mark.parametrize(
    ("given", "chosen", "name", "said"),
    [
        (X, "auto", "fp64", "fp64: X is float64"),
        (X.astype(np.float32), "auto", "fp32", "in one process shorter formats save no messages"),
        (X, "C", "C", "C: as asked for"),
        (X, Precision(data="fp16"), "fp32 data=fp16", "as asked for"),
    ],
    ids=str,
)
def test_the_recipe_is_told(given, chosen, name, said):
    model = fitted(given, recipe=chosen)
    assert model.recipe_.short_name() == name
    assert said in model.recipe_explained_
    assert model.ran_.endswith(name)


@pytest.mark.parametrize("kind", [CASGDClassifier, CASGDRegressor])
def test_a_tolerance_is_met_by_a_cheaper_recipe_or_none(kind):
    y = Y if kind is CASGDClassifier else Z
    loose, tight = (fitted(kind=kind, y=y, recipe=f"auto:{t}", solver="ca_sgd", s=8) for t in ("0.2", "1e-9"))
    assert loose.recipe_.data in ("bf16", "fp16")
    assert loose.recipe_explained_.startswith("tolerance 0.2: ")
    assert "of fp32's bytes" in loose.recipe_explained_
    assert tight.recipe_ == recipe("fp64")
    assert np.linalg.norm(loose.coef_ - tight.coef_) < 0.05 * np.linalg.norm(tight.coef_)
    assert np.linalg.norm(loose.coef_ - tight.coef_) > 0


def test_sparse_columns_are_stored_as_the_recipe_says():
    import scipy.sparse

    model = fitted(scipy.sparse.csr_matrix(X), recipe="auto:0.2", solver="ca_sgd", s=8)
    assert model.recipe_.data in ("bf16", "fp16")


def test_going_on_keeps_the_recipe():
    model = CASGDClassifier(recipe="auto:0.2", solver="ca_sgd", s=4, random_state=0)
    model.partial_fit(X, Y, classes=[0, 1])
    first = model.recipe_
    model.partial_fit(100 * X, Y)
    assert model.recipe_ is first
    model.set_params(recipe="fp32").partial_fit(X, Y)
    assert model.recipe_ == recipe("fp32")


@pytest.mark.parametrize("wrong", ["auto:", "auto:2", "auto:low", "auto:0", "auto:nan"])
def test_tolerances_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match="after 'auto:' comes the largest error of an outer iteration"):
        fitted(recipe=wrong)


def test_a_tolerance_that_cannot_be_met_is_an_error():
    with pytest.raises(ValueError, match="tolerance 1e-18 cannot be met: fp64 itself may err by"):
        fitted(recipe="auto:1e-18", solver="ca_sgd", s=4)


def test_a_fit_that_diverges_at_once_says_that_nothing_was_looked_for():
    model = CASGDRegressor("poisson", recipe="auto:0.1", eta0=1e4, solver="ca_sgd", s=4, max_iter=1, tol=None)
    with pytest.raises(ArithmeticError, match="lower eta0"):
        model.fit(X, Y)
    assert "no recipe was looked for" in model.recipe_explained_


def test_large_matrices_on_ranks_are_looked_at(monkeypatch):
    """The rule by itself: float32, CA-SGD, several ranks, and enough values."""
    seen = []

    class Ranks:
        size, rank = 2, 0
        whole = property(lambda self: self)

        def all_reduce(self, tensor):
            tensor *= 2
            return lambda: None

    monkeypatch.setattr(
        choice, "auto_precision", lambda *given, strict: seen.append(given[2]) or chooser.ChosenRecipe(None, "")
    )
    import torch

    from laconic.glm import Bernoulli, DenseColumns, FitOptions, Problem

    problem = Problem(DenseColumns(torch.zeros(10, 4)), Bernoulli(), torch.zeros(10))
    usual = FitOptions(solver="ca_sgd", recipe="fp32")
    assert "too small" in chooser.find_recipe("auto", problem, usual, Ranks()).explained
    monkeypatch.setattr(chooser, "WORTH_IT", 40)
    chooser.find_recipe("auto", problem, usual, Ranks())
    assert seen == [choice.TOLERANCE]
    assert (
        "one process"
        in chooser.find_recipe("auto", problem, FitOptions(solver="sgd", recipe="fp32"), Ranks()).explained
    )
