"""Gradients to compare codecs on: of three small networks, random, or the user's own; the same in every run."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.abc import InspectLoader
from pathlib import Path

import torch
from torch import nn

from laconic.bench.protocol import one_thread
from laconic.bench.training import backward, digits
from laconic.data import load_digits, read_gradient

Batch = tuple[torch.Tensor, torch.Tensor]
BATCH_SIZE, IMAGE_STEPS = 64, 40
TEXT = ("argparse", "ast", "datetime", "difflib", "inspect", "logging", "pathlib", "statistics", "tarfile", "typing")
"""Modules of Python's own library whose sources the language model reads."""
WIDTH, HEADS, LAYERS, LENGTH, SEQUENCES, TEXT_STEPS = 128, 4, 2, 64, 8, 400
"""Hyperparameters of the language model and its training."""
ROWS, SPREAD = (512, 1024), 1.5


@dataclass(frozen=True, slots=True)
class Kind:
    """A gradient: its name, its origin and the function that makes it, (n,) float32."""

    name: str
    about: str
    make: Callable[[], torch.Tensor]


def kinds(files: Sequence[str]) -> list[Kind]:
    """The gradients in the files, or by default our own."""
    return [Kind(Path(file).name, file, partial(read_gradient, file)) for file in files] or list(KINDS)


@one_thread()
def trained(
    n_steps: int,
    network: Callable[[], nn.Module],
    batch: Callable[[], Batch],
    optimizer: Callable[..., torch.optim.Optimizer],
    seed: int = 0,
) -> torch.Tensor:
    """The gradient (n_parameters,) of one mini-batch, for a network that was trained on `n_steps` others.

    network, batch  may draw from torch's generator, which is seeded here

    Computed on one thread, so that its bits do not depend on the number of cores.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = network()
        trainer = optimizer(net.parameters())
        for step in range(n_steps + 1):
            net.zero_grad()
            backward(net, *batch())
            if step < n_steps:
                trainer.step()
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


def images() -> Batch:
    """A batch of handwritten digits (b, 1, 8, 8) and their labels."""
    pixels, labels = load_digits()
    rows = torch.randint(len(pixels), (BATCH_SIZE,))
    return pixels[rows].view(-1, 1, 8, 8), labels[rows]


def normalised() -> nn.Module:
    """A network of convolutions and batch normalisation, some 220,000 weights."""
    layers: list[nn.Module] = []
    for n_in, n_out, stride in ((1, 64, 1), (64, 128, 2), (128, 128, 1)):
        layers += [nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def image_network(network: Callable[[], nn.Module]) -> torch.Tensor:
    """The gradient of a network for digits."""
    return trained(IMAGE_STEPS, network, images, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9))


@cache
def text() -> torch.Tensor:
    """Python's own sources, as bytes (n,) int64."""
    loaders = {name: getattr(importlib.util.find_spec(name), "loader", None) for name in TEXT}
    sources = [one.get_source(name) or "" for name, one in loaders.items() if isinstance(one, InspectLoader)]
    return torch.frombuffer(bytearray("".join(sources).encode()), dtype=torch.uint8).long()


def sequences() -> Batch:
    """A batch of text (b, t), and the byte that follows each byte, (b t,)."""
    starts = torch.randint(len(text()) - LENGTH, (SEQUENCES, 1))
    pieces = text()[starts + torch.arange(LENGTH + 1)]
    return pieces[:, :-1], pieces[:, 1:].flatten()


class ByteModel(nn.Module):
    """A causal transformer that predicts the next byte, some 470,000 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.out = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256), nn.Flatten(0, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Bytes (b, t) to logits (b t, 256) of the next bytes."""
        values = self.bytes(x) + self.places.weight
        for layer in self.layers:
            values = layer(values, nn.Transformer.generate_square_subsequent_mask(LENGTH), is_causal=True)
        return self.out(values)  # type: ignore[no-any-return]


def language_model(n_steps: int) -> torch.Tensor:
    """The gradient of a byte-level language model after some steps of AdamW."""
    return trained(n_steps, ByteModel, sequences, lambda p: torch.optim.AdamW(p, lr=2e-3))


def normal_rows(seed: int = 0) -> torch.Tensor:
    """Independent normal values."""
    return torch.randn(ROWS, generator=torch.Generator().manual_seed(seed)).flatten()


def lognormal_rows() -> torch.Tensor:
    """Random signs and log-normal magnitudes."""
    return normal_rows(1).sign() * normal_rows(2).mul(SPREAD).exp()


KINDS = (
    Kind("digits CNN", f"convolutions, wide layers, {IMAGE_STEPS} steps", lambda: image_network(digits().network)),
    Kind("normalised CNN", f"convolutions, batch norm, {IMAGE_STEPS} steps", partial(image_network, normalised)),
    Kind("byte LM, start", "a transformer on Python's sources, no step yet", partial(language_model, 0)),
    Kind("byte LM, trained", f"the same after {TEXT_STEPS} steps", partial(language_model, TEXT_STEPS)),
    Kind("normal rows", "independent normal values", normal_rows),
    Kind("log-normal rows", f"random signs, magnitudes exp({SPREAD} z) with z normal", lognormal_rows),
)
