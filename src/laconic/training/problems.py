"""Small problems to train on, made or bundled, the same on every rank; for benchmarks and the demo."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from laconic.data import load_digits

N_SAMPLES, N_FEATURES, N_CLASSES = 4096, 1024, 16
SEPARATION = 0.1
PROBLEMS = ("clusters", "digits")


@dataclass(frozen=True, slots=True)
class Problem:
    """Samples, a network for them, and a step size with which the loss falls by half or so in a few dozen steps.

    A loss that hardly moves, or one that vanishes, is the same for every way to average gradients.
    """

    x: torch.Tensor
    y: torch.Tensor
    network: Callable[[], torch.nn.Module]
    learning_rate: float


def problem(name: str, width: int) -> Problem:
    """A problem by name; `width` is that of the hidden layers of "clusters"."""
    if name == "clusters":
        return Problem(*clusters(), lambda: perceptron(width), learning_rate=0.1)
    if name == "digits":
        images, labels = load_digits()
        return Problem(images.view(-1, 1, 8, 8), labels, convolutional, learning_rate=0.05)
    raise ValueError(f"unknown problem {name!r}; choose one of {', '.join(PROBLEMS)}")


def clusters() -> tuple[torch.Tensor, torch.Tensor]:
    """Synthetic inputs (4096, 1024), normal around one of 16 centres, and which centre it was."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(N_CLASSES, N_FEATURES, generator=generator)
    y = torch.randint(N_CLASSES, (N_SAMPLES,), generator=generator)
    return torch.randn(N_SAMPLES, N_FEATURES, generator=generator) + SEPARATION * centres[y], y


def perceptron(width: int) -> torch.nn.Module:
    """Three linear layers; (1024 + width + 16) · width weights."""
    return torch.nn.Sequential(
        torch.nn.Linear(N_FEATURES, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, N_CLASSES),
    )


def convolutional() -> torch.nn.Module:
    """Two convolutions and two linear layers for images of 8 by 8, some 300,000 weights."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(64 * 16, 272),
        torch.nn.ReLU(),
        torch.nn.Linear(272, 10),
    )
