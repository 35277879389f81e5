"""Small problems to train networks on, made or bundled, the same on every rank."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from laconic.data import load_digits

N_SAMPLES, N_FEATURES, N_CLASSES = 4096, 1024, 16
SEPARATION = 0.1
PROBLEMS = ("clusters", "digits")
MOMENTUM = 0.9


@dataclass(frozen=True, slots=True)
class Problem:
    """Samples, a network for them, and a step size with which the loss falls by half or so in a few dozen steps.

    A loss that hardly moves, or one that vanishes, is the same for every way to train.
    """

    x: torch.Tensor
    y: torch.Tensor
    network: Callable[[], torch.nn.Module]
    learning_rate: float

    def new_network(self, seed: int = 0) -> torch.nn.Module:
        """With the same initial weights for every way to train, and on every rank."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.network()

    def new_optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.SGD:
        """SGD with momentum."""
        return torch.optim.SGD(parameters, lr=self.learning_rate, momentum=MOMENTUM)

    def loss(self, net: torch.nn.Module, share: slice = slice(None)) -> float:
        """Of a network as it is, on a share of the samples."""
        with torch.no_grad():
            return float(torch.nn.functional.cross_entropy(net(self.x[share]), self.y[share]))


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


def perceptron_width(size: int) -> int:
    """Of the hidden layers, a multiple of 16, so that there are at least `size` weights.

    >>> perceptron_width(2**22)
    1600
    """
    fixed = N_FEATURES + N_CLASSES
    return int(-(-((fixed**2 + 4 * size) ** 0.5 - fixed) // 32) * 16)


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
