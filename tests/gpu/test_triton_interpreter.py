"""Law 5 under Triton's interpreter: the GPU kernels' own text, run on the CPU.

Triton decides at its import whether to interpret, so this file is also a script, which runs all checks in a process of
its own. Where there is a GPU, it runs the kernels itself (`test_on_cuda.py`), and nothing depends on how well this
Triton interprets.
"""

import importlib.util
import re
from pathlib import Path

import pytest
import torch
from agreement import interpreted
from compiling import compiled
from glm_agreement import interpreted as interpreted_glm
from running import main, run

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU itself runs the kernels"),
    pytest.mark.timeout(900),
]


SLOW = [
    r"(nasty|feedback|codec with feedback) NUQSGD.* p=0.7",  # `fused` and `sums` have them, too
    r"(fused|sums) QSGD(Inf)?\(bits=[3567].* \(75, 32\)",  # NUQSGD has every width
    r"(blocks|iterations) (gaussian|poisson|one-vs-rest) weights offset",  # other families have each kernel
    r"codec with feedback QSGD\(",  # `feedback` has its kernel, the other schemes the codec
    r"dithered (511|600) ",  # 1, 520 and 1100 values have every kind of cell
    r"(11|17) models at once",  # 2 and 3 models have a part of a tile, too
    r"slots with feedback in buckets",  # `slots` and `feedback` have each
    r"blocks, many parts",
]


def checks(table):
    """The names of a table, those that take long as exhaustive."""
    slow = re.compile("|".join(SLOW))
    return [pytest.param(name, marks=[pytest.mark.exhaustive] if slow.match(name) else []) for name in table]


@pytest.fixture(scope="module")
def outcomes(request):
    """What this file as a script says of the checks that are to be run."""
    wanted = [item.callspec.params["name"] for item in request.session.items if item.path == request.path]
    return run(__file__, "cpu", names=wanted)


@pytest.mark.parametrize("name", checks(interpreted()))
def test_kernels_agree_with_the_reference(name, outcomes):
    assert outcomes.get(name, "its process ended before it") == "ok"


@pytest.mark.parametrize("name", checks(interpreted_glm()))
def test_fused_solvers_give_the_iterates_of_sgd(name, outcomes):
    assert outcomes.get(name, "its process ended before it") == "ok"


@pytest.fixture(scope="module")
def said_by_the_compiler():
    return run(Path(__file__).with_name("compiling.py"), "cuda")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", compiled())
def test_kernels_compile_for_a_gpu_that_is_not_here(name, said_by_the_compiler):
    assert said_by_the_compiler.get(name, "its process ended before it") == "ok"


if __name__ == "__main__":
    main({"cpu": lambda: interpreted() | interpreted_glm()})
