"""`python -m benchmarks kernels`: refused in one line without a GPU; with one, at a size that takes no time."""

import json
from dataclasses import replace

import pytest
import torch

from benchmarks.goals import goals_of_rows
from benchmarks.kernels import KernelOptions, KernelRow
from benchmarks.kernels_contenders import CODE, COPY, DECODE, DECODE_SUM, ENCODE, PACK, SUM
from laconic.bench.protocol import Spread
from laconic.measure.environment import Environment

pytest.importorskip("typer", reason="needs the command line's libraries")

from benchmarks.__main__ import main


def test_refused_without_a_gpu(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for command, said in {
        (): "needs a CUDA GPU",
        ("--device", "cpu"): "--device must be a CUDA GPU",
    }.items():
        assert main(["kernels", *command]) == 2
        out, err = capsys.readouterr()
        assert not out
        assert said in err
        assert len(err.splitlines()) == 1


def row(contender, operation, n_payloads, ratio):
    spread = Spread(ratio, ratio, ratio)
    return KernelRow(contender, "", operation, n_payloads, "float32", 8, spread, 36, 1.0, spread, spread)


def test_goals():
    rows = [
        row("copy_ fp32", COPY, 0, 1.0),
        row("nuqsgd-4", PACK, 0, 0.97),
        row("nuqsgd-4", SUM, 8, 0.70),
        row("sign", SUM, 8, 0.96),
        row("rotated-4", SUM, 8, 0.75),
        replace(row("rans on nuqsgd-4", ENCODE, 0, 0.1), billions=160.0),
    ]
    verdicts = [o["verdict"] for o in goals_of_rows("kernels", rows)["goals"]]
    assert verdicts == ["floor", "missed", "floor", "floor", "aim"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_json(capsys):
    options = KernelOptions(size=100_000, bucket_size=1024, repeats=2, schemes=["sign", "rotated", "dithered", "rans"])
    command = ["--size", "100000", "--bucket-size", "1024", "--repeats", "2", "--schemes", "sign,rotated,dithered,rans"]
    assert main(["kernels", *command, "--commit", "abc", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["suite"] == "kernels"
    assert len(document["rows"]) == options.n_parts
    assert {r["operation"] for r in document["rows"]} == {COPY, PACK, SUM, CODE, DECODE_SUM, ENCODE, DECODE}
    assert all(r["environment"]["gpu"] and r["seconds"]["median"] > 0 for r in document["rows"])
    assert {r["environment"]["commit"] for r in document["rows"]} == {"abc"}


def test_a_commit_that_is_given_is_written_down():
    assert Environment.here("abc").commit == "abc"
    assert Environment.here().commit != "abc"
