"""`laconic fit --device`: where it computes, and one clear line where it cannot."""

import json

import numpy as np
import pytest
import torch

from laconic.cli import main
from laconic.glm.model import Model

HAS_GPU = torch.cuda.is_available()
M, N = 400, 6
RNG = np.random.default_rng(0)
X = RNG.standard_normal((M, N)).astype(np.float32)
Y = (X @ np.arange(-2, N - 2) + RNG.standard_normal(M) > 0).astype(int)
FIT = ["fit", "X.npy", "-o", "m.safetensors", "--max-iter", "4", "--json", "-q"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    np.save("y.npy", Y)
    (tmp_path / "rows.svm").write_text("1 1:2\n0 2:1\n")
    return tmp_path


def report(capsys, *options):
    assert main([*FIT, *options]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


WRONG = {
    "unknown": (["--device", "tpu"], True, "unknown --device tpu; choose cpu, cuda"),
    "no GPU": (["--device", "cuda"], False, "--device cuda, but there is no CUDA GPU here; leave --device out"),
    "ranks without": (["--device", "cuda", "--ranks", "2"], False, "--device cuda, but there is no CUDA GPU here"),
    "ranks on one": (["--device", "cuda:1", "--ranks", "2"], True, "--device cuda:1 is one GPU, and there are 2 ranks"),
    "too many": (["--device", "cuda", "--ranks", "99"], True, "99 ranks have"),
    "sparse": (
        ["--device", "cuda"],
        True,
        "--device cuda needs a dense X, and this one is sparse",
    ),
}


@pytest.mark.parametrize(("options", "gpu", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line(options, gpu, said, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    data = "rows.svm" if "sparse" in said else "X.npy"
    assert main(["fit", data, "-o", "m.safetensors", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"laconic: {said}")


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_without_a_gpu_all_is_as_it_was(device, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    usual = report(capsys)
    coef = Model.load("m.safetensors").coef
    assert report(capsys, "--device", device)["ran"] == usual["ran"] == "newton, Cholesky, fp32"
    assert torch.equal(Model.load("m.safetensors").coef, coef)


@pytest.mark.skipif(not HAS_GPU, reason="no CUDA GPU here")
@pytest.mark.parametrize("device", ["cuda", "auto"])
@pytest.mark.parametrize("options", [[], ["--standardize", "--batch-size", "64"], ["--recipe", "C"]], ids=str)
def test_a_gpu_fits_the_same_model(device, options, capsys):
    usual = report(capsys, *options, "--solver", "sgd")
    coef = Model.load("m.safetensors").coef
    found = report(capsys, *options, "--eta0", str(usual["settings"]["eta0"]), "--device", device, "--test", "X.npy")
    assert "cuda" in found["ran"]
    assert torch.allclose(Model.load("m.safetensors").coef, coef, rtol=2e-2 if "C" in options else 1e-3, atol=1e-3)
    assert found["test_metrics"] == pytest.approx(found["metrics"], rel=1e-2)


@pytest.mark.skipif(not HAS_GPU, reason="no CUDA GPU here")
def test_newton_s_method_on_a_gpu_ends_where_it_does_on_the_cpu(capsys):
    usual = report(capsys)
    coef = Model.load("m.safetensors").coef
    found = report(capsys, "--device", "cuda")
    assert (usual["ran"], found["ran"]) == ("newton, Cholesky, fp32", "newton, Cholesky, cuda:0, fp32")
    assert torch.allclose(Model.load("m.safetensors").coef, coef, rtol=1e-2, atol=1e-2)


@pytest.mark.skipif(not HAS_GPU, reason="no CUDA GPU here")
def test_a_fit_on_a_gpu_goes_on(capsys):
    device = ["--device", "cuda", "--solver", "sgd"]
    options = [*device, "--checkpoint-every", "0", "--checkpoint", "kept"]
    report(capsys, *device)
    whole = Model.load("m.safetensors").coef
    report(capsys, *options, "--max-iter", "2")
    assert report(capsys, *options, "--resume")["epochs"] == 4
    assert torch.equal(Model.load("m.safetensors").coef, whole)


@pytest.mark.skipif(not HAS_GPU, reason="no CUDA GPU here")
@pytest.mark.parametrize("recipe", ["fp32", "C"])
def test_ranks_on_gpus_fit_the_same_model(recipe, capsys):
    usual = report(capsys, "--solver", "sgd")
    coef, eta0 = Model.load("m.safetensors").coef, str(usual["settings"]["eta0"])
    options = ["--recipe", recipe, "--eta0", eta0, "--device", "cuda", "--ranks", "2", "--share-gpu"]
    found = report(capsys, *options)
    assert found["ranks"] == 2
    assert "cuda" in found["ran"]
    assert torch.allclose(Model.load("m.safetensors").coef, coef, rtol=2e-2 if recipe == "C" else 1e-3, atol=1e-3)
