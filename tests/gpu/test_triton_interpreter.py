"""Law 5 under Triton's interpreter: the GPU kernels' own text, run on the CPU.

Triton decides at its import whether to interpret, so one process of its own runs all checks. Where there is a GPU, it
runs the kernels itself (`test_on_cuda.py`), and nothing depends on how well this Triton interprets.
"""

import importlib.util

import pytest
import torch
from agreement import interpreted, run

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU itself runs the kernels"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def outcomes():
    return run("cpu")


@pytest.mark.parametrize("name", interpreted())
def test_kernels_agree_with_the_reference(name, outcomes):
    assert outcomes.get(name, "its process ended before it") == "ok"
