"""Both suites on a GPU, at sizes that take no time."""

import pytest
import torch

from benchmarks.papers.ca_sgd import CASGDOptions, ca_sgd_rows, given_problems
from benchmarks.training.run import Job, Training
from laconic.kernels import Stream

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
    pytest.mark.filterwarnings("default"),  # torch.compile warns of its own imports and choices
]


def test_curves_of_glms():
    problems = given_problems(["susy", "synth", "poisson-synth"], 0.01, None)
    rows = ca_sgd_rows(CASGDOptions(problems, s=(8,), batch_size=32, iterations=64, points=3, device="cuda"))
    assert [row.contender for row in rows[:4]] == [
        "sgd fp32", "ca_sgd fp32 s=8", "ca_sgd C s=8", "ca_sgd D s=8",
    ]  # fmt: skip
    for row in rows:
        assert len(row.curve) == 3
        assert row.curve[-1]["loss"] < row.curve[0]["loss"]
        assert abs(row.largest_gap) < (1e-4 if row.recipe == "fp32" else 0.02)


@pytest.mark.parametrize("seeds", [1, 2], ids=["one seed", "two"])
def test_gradients_are_alike_from_a_graph_and_on_the_cpu(seeds):
    here, there = (
        Training(Job("resnet-8", "fp32", 2, seeds, None, 8, device=d, epochs=1, images=64)) for d in ("cpu", "cuda")
    )
    examples = here.data.draw(1, 16 * seeds, Stream(0)).view(-1, 8)
    for _ in range(2):
        ours, theirs = here.gradients.of(examples), there.gradients.of(examples.cuda()).cpu()
        assert (ours - theirs).norm() < 1e-3 * ours.norm()
    statistics = {name: b for name, b in here.gradients.buffers.items() if "num" not in name}
    for name, buffer in statistics.items():
        torch.testing.assert_close(there.gradients.buffers[name].cpu(), buffer, rtol=1e-3, atol=1e-3)
