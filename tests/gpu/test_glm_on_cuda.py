"""Law 8 on a real GPU, and that what was stopped goes on as if it had not been."""

from pathlib import Path

import numpy as np
import pytest
import torch
from glm_agreement import compiled
from running import n_processes, run

from laconic import CASGDClassifier
from laconic.bench.glm.suite import GLMOptions, glm_rows
from laconic.glm.rows import HalfRows

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def outcomes():
    return run(Path(__file__).with_name("glm_agreement.py"), "cuda", n_processes())


@pytest.mark.parametrize("name", compiled())
def test_fused_solvers_give_the_iterates_of_sgd(name, outcomes):
    assert outcomes.get(name, "its process ended before it") == "ok"


@pytest.mark.parametrize("problem", ["susy", "epsilon"])
def test_the_suite_glm_on_this_gpu(problem):
    """Fused SGD, and plain torch where a batch is too wide for it; glm_rows checks the iterates."""
    options = GLMOptions(
        problem=[problem], scale=0.01, device="cuda", iterations=512, repeats=2, s=(8, 32), batch_size=32
    )
    rows = glm_rows(options)
    assert len(rows) == 8
    assert all(row.seconds.median > 0 and row.loss_gap < 0.05 for row in rows)


@pytest.mark.parametrize("k", [1, 4096, 20_001])
def test_products_of_rows_in_bfloat16_have_the_digits_of_float32(k):
    g = torch.Generator("cuda").manual_seed(k)
    Y, x, p = (torch.randn(shape, generator=g, device="cuda") for shape in ((k, 515), (7, 515), (7, k)))
    rows = HalfRows(Y.bfloat16())
    exact = rows.dense().double()
    for found, wanted, sizes in (
        (rows.margins(x), exact @ x.double().T, exact.abs() @ x.double().abs().T),
        (rows.combine(p), p.double() @ exact, p.double().abs() @ exact.abs()),
    ):
        assert found.dtype == torch.float32
        assert ((found - wanted).abs() <= 2e-6 * sizes).all()


def test_outliers_hide_nothing_on_a_gpu_either(monkeypatch):
    monkeypatch.setattr("laconic.glm.solvers.objective.PRODUCTS", 0)  # by conjugate gradients
    rng = np.random.default_rng(29)
    X = rng.standard_normal((800, 40))
    for _ in range(3):
        X[rng.integers(800), rng.integers(40)] *= 10.0 ** rng.integers(3, 8)
    Z = np.clip((X - X.mean(0)) / X.std(0), -5, 5)
    y, values = (Z @ rng.standard_normal((40, 4)) / 3 + rng.gumbel(size=(800, 4))).argmax(1), []
    for device in ("cpu", "cuda"):
        model = CASGDClassifier(random_state=0).fit(torch.from_numpy(X).to(device), y)
        assert model.converged_
        z = X @ np.asarray(model.coef_).T + np.asarray(model.intercept_)
        loss = np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1) - z[np.arange(800), y]
        values.append(loss.mean() + 0.5e-4 * np.square(np.asarray(model.coef_)).sum())
    assert values[1] == pytest.approx(values[0], rel=1e-4)
