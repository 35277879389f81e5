"""What the suites for GPUs print, from rows made by hand: no GPU is needed to print a table."""

import pytest

from benchmarks.glm.device import DeviceRow
from benchmarks.glm.stages import StageRow
from benchmarks.goals import GOALS, goals_of_rows
from benchmarks.kernels import KernelRow
from benchmarks.kernels_contenders import PACK
from laconic.bench.protocol import Spread
from laconic.bench.suite import Suite, document, run_document
from laconic.measure.environment import Environment
from laconic.report import show, terminal

HERE = Environment(
    "x86", 8, 8, "Linux x86_64", "NVIDIA H200", 1, "13.0", "3.12.3", "2.11.0", "3.6.0", "0.66", "2.4", "1.0", "a" * 40,
    "2026-01-01T00:00:00+00:00",
)  # fmt: skip
HALF = Spread(0.5, 0.4, 0.6)
KERNEL = KernelRow("nuqsgd-4", "", PACK, 0, "float32", 8, HALF, 36, 1.0, HALF, HALF)
FIT = DeviceRow(
    "higgs", "bernoulli", 100, 28, 32, "sgd C", "sgd", "C", 1, "fused", 8, HALF, 100.0, 90.0, 0.9, 25.0, None, 1e-4,
    0.5, 0.002,
)  # fmt: skip
STAGE = StageRow("wide", 32_768, 32, 8, "recurrence", Spread.of([6e-6]), 2**20, 10**9, 8, 5e-7, 2**42)
SUITES = {
    "kernels": (KERNEL, ["quantize + pack", "0.500", "✗ missed", "Goals"]),
    "glm-device": (
        FIT,
        ["higgs: 100 × 28, bernoulli", "0.200 %", "Where we lose", "slower than SGD in a CUDA graph", "Goals"],
    ),
    "glm-stages": (STAGE, ["32,768 columns, blocks of 8 batches of 32", "0.238", "1.01", "4.00", "1.50"]),
}


@pytest.mark.parametrize(("suite", "row", "words"), [(suite, *more) for suite, more in SUITES.items()], ids=SUITES)
def test_tables(suite, row, words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    show(terminal(suite, document(suite, [row], HERE, **(goals_of_rows(suite, [row]) if suite in GOALS else {}))))
    out = capsys.readouterr().out
    assert "gpu: NVIDIA H200; n gpus: 1; cuda: 13.0; python: 3.12.3" in " ".join(out.split())
    for word in words:
        assert word in out


def test_an_interrupted_run_keeps_its_rows():
    def rows(options, progress):
        yield KERNEL
        raise KeyboardInterrupt

    found = run_document(Suite("kernels", KernelRow, rows, ""), KERNEL, print)
    assert found["interrupted"]
    assert [row["contender"] for row in found["rows"]] == ["nuqsgd-4"]
