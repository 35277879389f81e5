"""The papers' convolutions agree with torch's, on a GPU or under Triton's interpreter (chosen at its import)."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

CASES = [(1, 2, 4, 16, 16, 8), (2, 2, 4, 16, 32, 16), (1, 1, 2, 64, 64, 8), (1, 3, 16, 32, 16, 4)]
"""Seeds, workers, images of each, channels in and out, side of an image."""


def disagreements(seeds, workers, n, n_in, n_out, side):
    """Largest relative errors of a convolution, of the gradient of its images, and of the gradients of its weights."""
    from benchmarks.papers.nuqsgd.convolve import convolved, gradient

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype, generator = torch.bfloat16 if device == "cuda" else torch.float32, torch.Generator(device).manual_seed(0)
    shape = seeds * workers * n, n_in, side, side
    x = torch.randn(shape, generator=generator, device=device).to(dtype).contiguous(memory_format=torch.channels_last)
    w = torch.randn(seeds, n_out, n_in, 3, 3, generator=generator, device=device)
    dy = torch.randn(len(x), n_out, side, side, generator=generator, device=device).to(dtype)
    every = w.to(dtype).double().repeat_interleave(workers, 0).requires_grad_()
    images = x.double().requires_grad_()
    pairs = zip(images.chunk(seeds * workers), every, strict=True)
    y = torch.cat([torch.nn.functional.conv2d(*pair, padding=1) for pair in pairs])
    y.backward(dy.double())
    ours = convolved(x, w), convolved(dy, w, back=True), gradient(x, dy, seeds * workers)
    theirs = y, images.grad, every.grad
    return [float((a - b).norm() / b.norm()) for a, b in zip(ours, theirs, strict=True)]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_convolutions_and_their_gradients_agree_with_torch():
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    here = os.environ | interpreted | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run([sys.executable, __file__], env=here, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    most = 1e-6 if interpreted else 5e-3
    assert all(float(error) < most for error in found.stdout.split()), found.stdout


if __name__ == "__main__":
    for case in CASES:
        sys.stdout.write(" ".join(map(str, disagreements(*case))) + "\n")
