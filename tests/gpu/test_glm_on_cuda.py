"""Law 8 on a real GPU, and that what was stopped goes on as if it had not been."""

from pathlib import Path

import pytest
import torch
from glm_agreement import compiled
from running import n_processes, run

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
