"""Every kernel once, on tiny tensors: for NVIDIA's compute-sanitizer, under which a launch takes long.

    for tool in memcheck racecheck; do
        PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool $tool --error-exitcode 9 \\
            python3 -m pytest -m sanitize tests/gpu
    done

Without torch's cache every tensor is an allocation of its own, so that a read past its end is seen.
"""

import pytest
import torch
from agreement import (
    codec_feedback,
    coded,
    dithered,
    feedback,
    fused,
    large_buckets,
    rotations,
    scaling,
    slots,
    steps,
    sums,
)
from glm_agreement import interpreted as glm_checks

from laconic import NUQSGD, QSGD, Dithered, QSGDInf, Sign

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.sanitize,
    pytest.mark.timeout(600),
]

CASES = {
    "held, fused": (fused, NUQSGD(bits=4), 75, 32, torch.float32),
    "held, of three widths": (fused, QSGD(bits=7), 75, 32, torch.bfloat16),
    "held, a table of levels": (fused, NUQSGD(bits=3, p=0.7), 75, 32, torch.float32),
    "held, cells of levels": (fused, NUQSGD(bits=4, p=0.7), 1100, 1024, torch.float32),
    "held, summed": (sums, NUQSGD(bits=4), 75, 32, 2),
    "loose, fused": (fused, QSGDInf(bits=3), 23, 10, torch.float32),
    "loose, summed": (sums, QSGDInf(bits=3), 23, 10, 2),
    "held, with feedback": (feedback, Sign(), 43, 32),
    "loose, with feedback": (feedback, Sign(), 12, 10),
    "shared by programs": (large_buckets, Sign()),
    "a codec": (codec_feedback, NUQSGD(bits=4), 43, 32),
    "one step each": (steps, NUQSGD(bits=4), 23, 10, torch.float32),
    "scaling": (scaling, 101),
    "dithered": (dithered, 1030, 0.25, 1),
    "dithered, raw values": (dithered, 700, 1e-5, 3),
    "rans": (coded, 300, 256),
    "slots": (slots, Dithered(error=0.1), 600),
    "rotated, held": (rotations, 4, 1600, 512, 2),
    "rotated, loose": (rotations, 3, 25, 10, 2),
}


SOLVERS = [
    "blocks bernoulli weights offset",
    "blocks multinomial",
    "blocks, many parts",
    "blocks C",
    "iterations poisson",
]


@pytest.mark.parametrize("name", SOLVERS)
def test_tiny_fits(name):
    check, *arguments = glm_checks()[name]
    check("cuda", *arguments)


@pytest.mark.parametrize("name", CASES)
def test_tiny(name):
    check, *arguments = CASES[name]
    check("cuda", *arguments)
