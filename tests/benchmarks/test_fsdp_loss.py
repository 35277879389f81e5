"""The suite `fsdp-loss`: runs are made in pieces, and only those that are missing."""

import json
from pathlib import Path

import pytest

from benchmarks.fsdp_loss import LossOptions, loss_rows

CODEC = "nuqsgd-4/512+differences-8"


def test_a_sweep_in_two_pieces(tmp_path, monkeypatch):
    asked = []

    def two_runs(function, arguments, *rest, **options):
        asked.append([(label, seed) for label, seed, _ in arguments["runs"]])
        for label, seed, path in arguments["runs"][:2]:
            loss = 2.0 + seed + 0.02 * (label == CODEC)
            Path(path).write_text(json.dumps({"loss": loss, "seconds": 0.1, "peak_bytes": None, "n": 5}))
        return [2]

    monkeypatch.setattr("laconic.bench.ranks.on_ranks", two_runs)
    options = LossOptions(ranks=2, seeds=1, codecs=[CODEC], out=tmp_path)
    assert [row.contender for row in loss_rows(options)] == ["FSDP2 fp32", "FSDP2 bf16"]
    rows = loss_rows(options)
    assert [len(runs) for runs in asked] == [3, 1]
    assert [round(row.loss_over_fp32, 6) for row in rows] == [1.0, 1.0, 1.01]
    assert loss_rows(options) == rows
    assert len(asked) == 2
    assert len(LossOptions(ranks=2, seeds=1, steps=7, codecs=[CODEC], out=tmp_path).missing) == 3


@pytest.mark.exhaustive
def test_simulated_ranks_train_as_real_ones(tmp_path):
    """Rounding is the same, and the loss, but for the order in which floats are summed."""
    common = {
        "ranks": 2,
        "size": 1000,
        "steps": 5,
        "seeds": 1,
        "codecs": [CODEC, "qsgdinf-4/512+bf16"],
        "out": tmp_path,
    }
    real = {row.contender: row.loss for row in loss_rows(LossOptions(**common))}
    simulated = {row.contender: row.loss for row in loss_rows(LossOptions(**common, processes=1))}
    assert simulated.keys() == real.keys() - {"FSDP2 bf16"}
    assert len(set(simulated.values())) == 3
    for contender, loss in simulated.items():
        assert loss == pytest.approx(real[contender], rel=1e-6)
