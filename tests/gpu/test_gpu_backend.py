"""Which backend runs, and what is said when it cannot."""

import importlib.util

import pytest
import torch

from laconic import NUQSGD, BackendUnavailable, Codec
from laconic.kernels import backend, select

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")


@needs_triton
def test_by_name_on_the_cpu_is_refused(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(BackendUnavailable, match="needs tensors on a CUDA GPU, these are on cpu; use 'auto'"):
        select("gpu", CPU)
    with pytest.raises(BackendUnavailable, match="CUDA GPU"):
        Codec(NUQSGD(bits=4), backend="gpu").encode(torch.ones(3))


def test_without_triton(monkeypatch):
    monkeypatch.setattr(backend, "_has_triton", lambda: False)
    assert select("auto", CUDA).__name__ == "laconic.kernels.reference"
    with pytest.raises(BackendUnavailable, match="needs Triton"):
        select("gpu", CUDA)


@needs_triton
def test_auto_on_a_gpu_is_triton():
    assert select("auto", CUDA).__name__ == "laconic.kernels.gpu"


@needs_triton
def test_it_has_every_kernel():
    kernels = select("gpu", CUDA)
    wanted = [name for name in vars(backend.Backend) if not name.startswith("_")]
    assert [name for name in wanted if not callable(getattr(kernels, name, None))] == []
    of_reference = [name for name in wanted if "reference" in getattr(kernels, name).__module__]
    assert of_reference == ["scale_by_root", "total"]  # of an optimizer's metric: torch, one operation per array
    assert isinstance(kernels, backend.DeviceBackend)
    assert not isinstance(select("reference", CPU), backend.DeviceBackend)
