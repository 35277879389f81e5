"""Law 5 under Triton's interpreter: the GPU kernels' own text, run on the CPU.

Triton decides at its import whether to interpret, so one process of its own runs all checks. Where there is a GPU, it
runs the kernels itself (`test_on_cuda.py`), and nothing depends on how well this Triton interprets.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from agreement import checks

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU itself runs the kernels"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def outcomes():
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("agreement.py"))],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert run.returncode == 0, run.stderr
    return dict(line.split("\t", 1) for line in run.stdout.splitlines())


@pytest.mark.parametrize("name", checks())
def test_kernels_agree_with_the_reference(name, outcomes):
    assert outcomes[name] == "ok"
