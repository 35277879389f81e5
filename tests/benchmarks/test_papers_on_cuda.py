"""Both suites on a GPU, at sizes that take no time."""

import pytest
import torch

from benchmarks.papers.ca_sgd import CASGDOptions, ca_sgd_rows, given_problems
from benchmarks.papers.nuqsgd.options import NUQSGDOptions
from benchmarks.papers.nuqsgd.suite import nuqsgd_rows

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")


def test_curves_of_glms():
    problems = given_problems(["susy", "synth", "poisson-synth"], 0.01, None)
    rows = ca_sgd_rows(CASGDOptions(problems, s=(8,), batch_size=32, iterations=64, points=3, device="cuda"))
    assert [row.contender for row in rows[:4]] == [
        "graphed fp32 SGD", "ca_sgd fp32 s=8", "ca_sgd C s=8", "ca_sgd D s=8",
    ]  # fmt: skip
    for row in rows:
        assert len(row.curve) == 3
        assert row.curve[-1]["loss"] < row.curve[0]["loss"]
        assert abs(row.largest_gap) < (1e-4 if row.recipe == "fp32" else 0.02)


def test_networks_train_alike_from_graphs_and_on_the_cpu():
    tiny = {"model": "resnet-8", "images": 64, "workers": 2, "batch_size": 8, "iterations": 4, "points": 3}
    here, there = (nuqsgd_rows(NUQSGDOptions(**tiny, device=device)) for device in ("cpu", "cuda"))
    for ours, theirs in zip(here, there, strict=True):
        assert theirs.contender == ours.contender
        assert theirs.bytes_sent == ours.bytes_sent
        assert theirs.curve[0]["loss"] == pytest.approx(ours.curve[0]["loss"], rel=1e-3)
        assert theirs.loss == pytest.approx(ours.loss, rel=0.05)
        if not ours.baseline:
            assert theirs.variance_at_fp32 == pytest.approx(ours.variance_at_fp32, rel=0.1)
            assert theirs.bits_by_coder == pytest.approx(ours.bits_by_coder, rel=0.05)
