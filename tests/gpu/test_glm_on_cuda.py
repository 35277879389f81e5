"""Law 8 on a real GPU, and that what was stopped goes on as if it had not been."""

from pathlib import Path

import pytest
import torch
from glm_agreement import compiled
from running import n_processes, run

from laconic.bench.glm.suite import GLMOptions, glm_rows

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
