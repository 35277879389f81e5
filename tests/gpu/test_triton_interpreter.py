"""Law 5 under Triton's interpreter: the GPU kernels' own text, run on the CPU.

Triton decides at its import whether to interpret, so one process of its own runs all checks. Where there is a GPU, it
runs the kernels itself (`test_on_cuda.py`), and nothing depends on how well this Triton interprets.
"""

import importlib.util
from pathlib import Path

import pytest
import torch
from agreement import interpreted
from glm_agreement import interpreted as interpreted_glm
from running import run

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU itself runs the kernels"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def outcomes():
    return run(Path(__file__).with_name("agreement.py"), "cpu")


@pytest.fixture(scope="module")
def glm_outcomes():
    return run(Path(__file__).with_name("glm_agreement.py"), "cpu")


@pytest.mark.parametrize("name", interpreted())
def test_kernels_agree_with_the_reference(name, outcomes):
    assert outcomes.get(name, "its process ended before it") == "ok"


@pytest.mark.parametrize("name", interpreted_glm())
def test_fused_solvers_give_the_iterates_of_sgd(name, glm_outcomes):
    assert glm_outcomes.get(name, "its process ended before it") == "ok"
