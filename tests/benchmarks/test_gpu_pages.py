"""What the suites for GPUs show, from rows made by hand: no GPU is needed to print a table."""

from types import SimpleNamespace

import pytest
from rich.console import Console

from benchmarks.glm import device_tables
from benchmarks.glm.device import DeviceRow
from benchmarks.goals.glm_device import device_outcomes
from benchmarks.kernels import tables as kernels_tables
from benchmarks.kernels.contenders import PACK
from benchmarks.kernels.goals import kernel_outcomes
from benchmarks.kernels.row import KernelRow
from laconic.bench import Spread
from laconic.measure.environment import GPUEnvironment

HERE = GPUEnvironment("NVIDIA H200", "13.0", "3.12.3", "2.11.0", "3.6.0", "1.0", "a" * 40, "2026-01-01T00:00:00+00:00")
HALF = Spread(0.5, 0.4, 0.6)
KERNEL = KernelRow("nuqsgd-4", "", PACK, 0, "float32", 8, HALF, 36, 1.0, HALF, HALF)
FIT = DeviceRow(
    "higgs", "bernoulli", 100, 28, 32, "sgd C", "sgd", "C", 1, "fused", 8, HALF, 100.0, 90.0, 0.9, 25.0, None, 1e-4,
    0.5, 0.002,
)  # fmt: skip
PAGES = {
    "kernels": (
        kernels_tables.page(
            [KERNEL], kernel_outcomes([KERNEL]), SimpleNamespace(size=8, bucket_size=4, repeats=2), HERE
        ),
        ["8 values, buckets of 4", "quantize + pack", "0.400–0.600", "0.9", "no"],
    ),
    "glm": (
        device_tables.page(
            [FIT], device_outcomes([FIT]), SimpleNamespace(problems=["higgs"], batch_size=32, repeats=7), HERE
        ),
        ["higgs: 100 × 28, bernoulli", "0.200", "Where we lose", "is slower than SGD in a CUDA graph"],
    ),
}


@pytest.mark.parametrize(("page", "words"), PAGES.values(), ids=PAGES)
def test_pages(page, words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    console = Console(highlight=False)
    for shown in page:
        console.print(shown)
    out = capsys.readouterr().out
    assert "NVIDIA H200; CUDA 13.0, python 3.12.3, torch 2.11.0, triton 3.6.0" in out
    for word in [*words, "Goals"]:
        assert word in out
