"""The analysis over ranks: what it emulates is what ranks do, and all of them find the same recipe."""

import numpy as np
import torch

from glm.tables import Case, N, vectors
from laconic import CASGDClassifier
from laconic.exchange import Communicator
from laconic.glm import Precision, begin, recipe, solve
from laconic.glm.analysis import take_sample
from laconic.glm.analysis.choice import auto_precision
from laconic.glm.analysis.iteration import outer_iteration

CUTS = [0, 3, N]
CASES = [Case("bernoulli", batch_size=4, intercept=True), Case("poisson", batch_size=4, alpha=0.1)]
WIRES = [Precision(gram_wire="bf16"), recipe("D"), Precision(gram_wire="fp16", margin="bf16")]


def one_block(group, case, precision):
    comm = Communicator.over(group)
    columns = slice(CUTS[comm.rank], CUTS[comm.rank + 1])
    problem = case.problem(precision.format("data").storage, columns=columns)
    settings = case.options("ca_sgd", 5, recipe=precision, max_iter=1, tol=None)
    return vectors(solve(problem, settings, comm=comm, callbacks=[lambda progress: True]).state)["x"]


def found(group, case, tolerance):
    comm = Communicator.over(group)
    problem = case.problem(torch.float32, columns=slice(CUTS[comm.rank], CUTS[comm.rank + 1]))
    answer = auto_precision(problem, case.options("ca_sgd", 5, torch.float32), tolerance, comm, strict=True)
    return answer.precision, answer.explained


def test_the_wire_of_an_analysis_is_that_of_two_ranks(pool):
    for case in CASES:
        for precision in WIRES:
            parts = pool.run(one_block, 2, case=case, precision=precision)
            settings = case.options("ca_sgd", 5, recipe=precision)
            sample = take_sample(case.problem(), settings, begin(case.problem(), settings), n_ranks=2)
            expected = outer_iteration(sample, precision)
            joined = torch.cat([parts[0][:, :-1], parts[1]], 1).double()
            assert float((joined - expected).norm()) <= 1e-5 * float(expected.norm()), (case, precision)


def test_ranks_find_one_recipe(pool):
    for case in CASES:
        for tolerance in (0.1, 1e-3, 1e-9):
            answers = pool.run(found, 2, case=case, tolerance=tolerance)
            assert answers[0] == answers[1]
            assert answers[0][1].startswith(f"tolerance {tolerance:g}: ")
        loose, tight = (pool.run(found, 2, case=case, tolerance=t)[0][0] for t in (0.3, 1e-9))
        assert loose.data in ("bf16", "fp16")
        assert tight == recipe("fp64")


def estimated(group, X, y):
    comm = Communicator.over(group)
    model = CASGDClassifier(recipe="auto:0.1", s=4, batch_size=8, max_iter=2, tol=None, random_state=0)
    model.fit(X, y, comm=comm)
    model.partial_fit(X, y, comm=comm)
    return model.recipe_, model.recipe_explained_, model.coef_


def test_an_estimator_on_ranks_finds_one_recipe_and_keeps_it(pool):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 7)).astype(np.float32)
    answers = pool.run(estimated, 2, X=X, y=(X[:, 0] + rng.logistic(size=300) > 0).astype(int))
    (first, why, coef), (second, also, other) = answers
    assert first == second
    assert why == also
    assert first.gram_wire in ("bf16", "fp16")
    assert np.array_equal(coef, other)
