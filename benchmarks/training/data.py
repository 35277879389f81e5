"""What is trained on: text as bytes, by default Python's own standard library; images, by default digits."""

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.papers.nuqsgd.images import read_images
from laconic.data import load_digits
from laconic.errors import InvalidOption, Option

MOST_BYTES = 8_000_000
PIECE, EVERY = 4096, 20
"""Every 20th piece of so many bytes is kept for validation."""
NOT_READ = {"test", "tests", "idlelib", "lib2to3", "encodings", "site-packages", "dist-packages", "__pycache__"}
VALIDATED = 1024
"""Windows of text that a validation loss is the mean of."""
HELD_OUT = 5
"""Every fifth of the digits is kept for validation."""
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Bytes to train on and to validate with, on a device; an example is a window of context + 1 bytes.

    source  what the text is, with its size and the beginning of its SHA-256
    """

    train: torch.Tensor
    held_out: torch.Tensor
    context: int
    source: str

    @property
    def n_examples(self) -> int:
        """Windows to train on."""
        return len(self.train) - self.context

    def batch(self, i: torch.Tensor) -> Batch:
        """Bytes and the bytes that follow them (…, context) of the windows that begin at i."""
        return self._windows(self.train, i)

    def validation(self, size: int) -> Iterator[Batch]:
        """The same windows for everyone, `size` at a time; the first dimension has one element."""
        starts = torch.linspace(0, len(self.held_out) - self.context - 1, VALIDATED, dtype=torch.float64).long()
        for part in torch.split(starts.to(self.train.device), size):
            yield self._windows(self.held_out, part[None])

    def _windows(self, of: torch.Tensor, i: torch.Tensor) -> Batch:
        w = of[i[..., None] + torch.arange(self.context + 1, device=of.device)].long()
        return w[..., :-1], w[..., 1:]


def open_text(path: Path | None, context: int, device: torch.device) -> Text:
    """A file, or the first 8 MB of the standard library's sources."""
    if path is None:
        name, raw = f"standard library of Python {sysconfig.get_python_version()}", standard_library()
    else:
        name, raw = path.name, path.read_bytes()
    if len(raw) < EVERY * PIECE:
        raise InvalidOption(Option("text"), f" must have at least {EVERY * PIECE:,} bytes; {name} has {len(raw):,}")
    n = len(raw) // PIECE
    pieces = torch.frombuffer(bytearray(raw[: n * PIECE]), dtype=torch.uint8).view(n, PIECE)
    held = torch.arange(n) % EVERY == EVERY - 1
    said = f"{name}, {len(raw):,} bytes, SHA-256 {hashlib.sha256(raw).hexdigest()[:12]}"
    return Text(pieces[~held].flatten().to(device), pieces[held].flatten().to(device), context, said)


def standard_library() -> bytes:
    """Sources of this Python, without tests, folder by folder in the order of their names."""
    found: list[bytes] = []
    for folder, inner, files in os.walk(sysconfig.get_paths()["stdlib"]):
        inner[:] = sorted(set(inner) - NOT_READ)
        found += [(Path(folder) / name).read_bytes() for name in sorted(files) if name.endswith(".py")]
        if sum(map(len, found)) >= MOST_BYTES:
            break
    return b"".join(found)[:MOST_BYTES]


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """Images (n, channels, height, width) uint8 and labels (n,) to train on and to validate with, on a device."""

    x: torch.Tensor
    y: torch.Tensor
    x_held_out: torch.Tensor
    y_held_out: torch.Tensor
    source: str

    @property
    def n_examples(self) -> int:
        """Images to train on."""
        return len(self.y)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.x.shape[1:]
        return channels, height, width

    @property
    def n_classes(self) -> int:
        """How many labels there are."""
        return int(self.y.max()) + 1

    def batch(self, i: torch.Tensor) -> Batch:
        """Images (…, channels, height, width) between −1 and 1, and labels."""
        return self.x[i].float() / 127.5 - 1, self.y[i]

    def validation(self, size: int) -> Iterator[Batch]:
        """All that are held out, `size` at a time; the first dimension has one element."""
        for x, y in zip(*(torch.split(part, size) for part in (self.x_held_out, self.y_held_out)), strict=True):
            yield x[None].float() / 127.5 - 1, y[None]


def open_pictures(folder: Path | None, device: torch.device) -> Pictures:
    """CIFAR-10 or Fashion-MNIST out of a folder, whichever is there; or the digits that are bundled."""
    if folder is None:
        x, y = load_digits()
        x = (x.view(-1, 1, 8, 8) / x.max() * 255).to(torch.uint8)
        held = torch.arange(len(y)) % HELD_OUT == 0
        parts, name = (x[~held], y[~held], x[held], y[held]), "digits"
    else:
        has_cifar = any((folder / name).exists() for name in ("cifar10.npz", "cifar-10-batches-bin"))
        images = read_images("cifar10" if has_cifar else "fashion-mnist", folder)
        parts, name = (images.train.x, images.train.y, images.test.x, images.test.y), images.name
    digest = hashlib.sha256(parts[0].numpy().tobytes()).hexdigest()[:12]
    said = f"{name}, {len(parts[1]):,} images to train on, {len(parts[3]):,} held out, SHA-256 {digest}"
    x, y, x_held_out, y_held_out = (part.to(device) for part in parts)
    return Pictures(x, y, x_held_out, y_held_out, said)
