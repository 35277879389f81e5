"""Training data: text as bytes, by default Python's own standard library; images, by default digits.

Data are on the device. The examples of a round of training are drawn on the host, from its seed and number alone, so a
resumed run sees the same examples. One int64 encodes an example and its crop.
"""

import hashlib
import os
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import torch

from benchmarks.papers.nuqsgd.image_folder import SHORT_SIDE, SIZE, ImageFolder, require_pillow
from benchmarks.papers.nuqsgd.images import Images, ImageSet, read_images
from laconic.bench.training import generator_of
from laconic.data import load_digits
from laconic.errors import InvalidOption, Option
from laconic.kernels import Stream

MOST_BYTES = 8_000_000
PIECE, EVERY = 4096, 20
"""Every 20th piece of PIECE bytes is held out for validation."""
NOT_READ = {"test", "tests", "idlelib", "lib2to3", "encodings", "site-packages", "dist-packages", "__pycache__"}
VALIDATED = 1024
"""Windows of text over which a validation loss is averaged."""
HELD_OUT = 5
"""Every fifth digit is held out for validation."""
ROUND = 50
"""Steps of a round, for data whose round is not a pass."""
PADDING = 4
"""Pixels of the mean colour added around an image before a crop of its size."""
TRAIN_IMAGES, N_FOR_SCALE = 5000, 10_000
"""Training images over which a loss, and the colours' mean and deviation, are computed."""
IMAGENET_SCALE = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's colours, as is usual."""
Batch = tuple[torch.Tensor, torch.Tensor]
Evaluation = Mapping[str, Iterator[Batch]]
"""Batches of the held-out and of the training set, by name, with a first dimension of 1."""


class Data(Protocol):
    """Examples to train on and to evaluate with.

    resident  whether all are on the device, so that a CUDA graph can read them
    """

    resident: ClassVar[bool] = True

    @property
    def source(self) -> str:
        """Their name, number and the beginning of their SHA-256."""

    def round_steps(self, size: int) -> int:
        """Steps of a round with `size` examples per step."""

    def draw(self, steps: int, size: int, stream: Stream) -> torch.Tensor:
        """Examples (steps, size) int64 of a round, whose number is the stream's step."""

    def batch(self, i: torch.Tensor) -> Batch:
        """Inputs and outputs of the examples i (…)."""

    def evaluation(self, size: int) -> Evaluation:
        """Batches of `size` examples for evaluation, the same for every run."""


class WithReplacement:
    """Base of data whose examples are drawn with replacement."""

    resident: ClassVar[bool] = True
    n_examples: int

    def round_steps(self, size: int) -> int:
        return ROUND

    def draw(self, steps: int, size: int, stream: Stream) -> torch.Tensor:
        return torch.randint(self.n_examples, (steps, size), generator=generator_of(stream))


@dataclass(frozen=True, slots=True, eq=False)
class Text(WithReplacement):
    """Bytes to train on and to validate with, on a device; an example is a window of context + 1 bytes.

    source  name of the text, its size and the beginning of its SHA-256
    """

    train: torch.Tensor
    held_out: torch.Tensor
    context: int
    source: str

    @property
    def n_examples(self) -> int:  # type: ignore[override]
        """Windows to train on."""
        return len(self.train) - self.context

    def batch(self, i: torch.Tensor) -> Batch:
        """Bytes and the bytes that follow them (…, context) of the windows that begin at i."""
        return self._windows(self.train, i)

    def evaluation(self, size: int) -> Evaluation:
        starts = torch.linspace(0, len(self.held_out) - self.context - 1, VALIDATED, dtype=torch.float64).long()
        parts = torch.split(starts.to(self.train.device), size)
        return {"held out": (self._windows(self.held_out, part[None]) for part in parts)}

    def _windows(self, of: torch.Tensor, i: torch.Tensor) -> Batch:
        w = of[i[..., None] + torch.arange(self.context + 1, device=of.device)].long()
        return w[..., :-1], w[..., 1:]


def open_text(path: Path | None, context: int, device: torch.device) -> Text:
    """Text from a file, or the first 8 MB of the standard library's sources."""
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
    """Sources of Python's standard library without tests, folders in sorted order."""
    found: list[bytes] = []
    for folder, inner, files in os.walk(sysconfig.get_paths()["stdlib"]):
        inner[:] = sorted(set(inner) - NOT_READ)
        found += [(Path(folder) / name).read_bytes() for name in sorted(files) if name.endswith(".py")]
        if sum(map(len, found)) >= MOST_BYTES:
            break
    return b"".join(found)[:MOST_BYTES]


@dataclass(frozen=True, slots=True, eq=False)
class Pictures(WithReplacement):
    """Images (n, channels, height, width) uint8 and labels (n,) to train on and to validate with, on a device."""

    x: torch.Tensor
    y: torch.Tensor
    x_held_out: torch.Tensor
    y_held_out: torch.Tensor
    source: str

    @property
    def n_examples(self) -> int:  # type: ignore[override]
        """Images to train on."""
        return len(self.y)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.x.shape[1:]
        return channels, height, width

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1

    def batch(self, i: torch.Tensor) -> Batch:
        """Images (…, channels, height, width) between −1 and 1, and labels."""
        return self.x[i].float() / 127.5 - 1, self.y[i]

    def evaluation(self, size: int) -> Evaluation:
        parts = zip(*(torch.split(part, size) for part in (self.x_held_out, self.y_held_out)), strict=True)
        return {"held out": ((x[None].float() / 127.5 - 1, y[None]) for x, y in parts)}


def open_pictures(folder: Path | None, device: torch.device) -> Pictures:
    """CIFAR-10 or Fashion-MNIST from a folder, whichever it has; without a folder, the bundled digits."""
    if folder is None:
        x, y = load_digits()
        x = (x.view(-1, 1, 8, 8) / x.max() * 255).to(torch.uint8)
        held = torch.arange(len(y)) % HELD_OUT == 0
        parts, name = (x[~held], y[~held], x[held], y[held]), "digits"
    else:
        images = images_in(folder)
        parts, name = (images.train.x, images.train.y, images.test.x, images.test.y), images.name
    x, y, x_held_out, y_held_out = (part.to(device) for part in parts)
    return Pictures(x, y, x_held_out, y_held_out, _said(name, parts[0], len(parts[3])))


def images_in(folder: Path | None) -> ImageSet:
    """CIFAR-10 or Fashion-MNIST, whichever the folder has; without a folder, synthetic images."""
    if folder is None:
        return read_images("synthetic", None)
    is_fashion = (folder / "fashion_mnist.npz").exists() or any(folder.glob("*-ubyte*"))
    return read_images("fashion-mnist" if is_fashion else "cifar10", folder)


def _said(name: str, x: torch.Tensor, n_held_out: int) -> str:
    digest = hashlib.sha256(x.numpy().tobytes()).hexdigest()[:12]
    return f"{name}, {len(x):,} images to train on, {n_held_out:,} held out, SHA-256 {digest}"


class Crops:
    """Images padded, randomly cropped and mirrored half of the time; a round is a pass over all in a new order.

    An example is 2 · (its first pixel among those of all padded images) + (1 if it is mirrored).
    """

    resident: ClassVar[bool] = True

    def __init__(self, images: ImageSet, device: torch.device) -> None:
        self.name, self.n_classes, self.shape = images.name, images.n_classes, images.shape
        self.source = _said(images.name, images.train.x, len(images.test))
        some = images.train.x[:N_FOR_SCALE].float()
        self.mean, self.scale = (f.to(device) for f in (some.mean((0, 2, 3)), some.std((0, 2, 3)).clamp(min=1.0)))
        self.test, self.some_train = (
            _with_colours_last(part, device) for part in (images.test, images.train.head(TRAIN_IMAGES))
        )
        _, height, width = images.shape
        self.height, self.width = height + 2 * PADDING, width + 2 * PADDING
        padded = some.mean((0, 2, 3)).round().byte().expand(len(images.train), self.height, self.width, -1).clone()
        padded[:, PADDING : PADDING + height, PADDING : PADDING + width] = images.train.x.permute(0, 2, 3, 1)
        self.pixels, self.y = padded.view(-1, images.shape[0]).to(device), images.train.y.to(device)
        rows, columns = (torch.arange(side, device=device) for side in (height, width))
        self.down, self.along = rows[:, None] * self.width, columns

    def round_steps(self, size: int) -> int:
        """Steps of a pass; an incomplete last batch is skipped."""
        return len(self.y) // size

    def draw(self, steps: int, size: int, stream: Stream) -> torch.Tensor:
        generator = generator_of(stream)
        rows = torch.randperm(len(self.y), generator=generator)[: steps * size].view(steps, size)
        top, left = (torch.randint(2 * PADDING + 1, rows.shape, generator=generator) for _ in range(2))
        mirrored = torch.randint(2, rows.shape, generator=generator)
        return 2 * ((rows * self.height + top) * self.width + left) + mirrored

    def batch(self, i: torch.Tensor) -> Batch:
        """Images (…, channels, height, width) of mean 0 and variance 1, channels last in memory; and labels."""
        first, mirrored = (i // 2)[..., None, None], (i % 2)[..., None, None]
        along = torch.where(mirrored > 0, self.along.flip(0), self.along)
        x = self._scaled(self.pixels[first + self.down + along])
        return x, self.y[i // (2 * self.height * self.width)]

    def evaluation(self, size: int) -> Evaluation:
        """The test set and the first training images, not cropped."""
        return {"held out": self._plain(self.test, size), "train": self._plain(self.some_train, size)}

    def _plain(self, images: Images, size: int) -> Iterator[Batch]:
        for x, y in zip(*(torch.split(part, size) for part in (images.x, images.y)), strict=True):
            yield self._scaled(x)[None], y[None]

    def _scaled(self, x: torch.Tensor) -> torch.Tensor:
        """(…, height, width, channels) bytes to (…, channels, height, width)."""
        return ((x.float() - self.mean) / self.scale).movedim(-1, -3)


def _with_colours_last(images: Images, device: torch.device) -> Images:
    return Images(images.x.permute(0, 2, 3, 1).contiguous().to(device), images.y.to(device))


class Folders:
    """ImageNet on disk: DIR/train/CLASS/FILE and DIR/val/CLASS/FILE, decoded for every batch; a round is a pass.

    An example is 2 · row + (1 if it is mirrored); a square of 224 pixels is cropped from one of 256, at a place that
    depends on the example's number.
    """

    resident: ClassVar[bool] = False

    def __init__(self, folder: Path, device: torch.device, most: int | None = None) -> None:
        require_pillow()
        train = ImageFolder.open(folder / "train")
        test = ImageFolder.open(folder / "val", train.classes)
        self.train, self.test = (part if most is None else part.thinned(most) for part in (train, test))
        self.n_classes, self.shape, self.device = len(train.classes), (3, SIZE, SIZE), device
        self.source = f"imagenet, {len(self.train):,} images to train on, {len(self.test):,} held out"
        self.mean, self.scale = (torch.tensor(v, device=device).view(3, 1, 1) * 255 for v in IMAGENET_SCALE)

    def round_steps(self, size: int) -> int:
        return len(self.train) // size

    def draw(self, steps: int, size: int, stream: Stream) -> torch.Tensor:
        generator = generator_of(stream)
        rows = torch.randperm(len(self.train), generator=generator)[: steps * size].view(steps, size)
        spare = (SHORT_SIDE - SIZE + 1) ** 2
        return 2 * (rows * spare + torch.randint(spare, rows.shape, generator=generator)) + torch.randint(
            2, rows.shape, generator=generator
        )

    def batch(self, i: torch.Tensor) -> Batch:
        """Images (…, 3, 224, 224) and labels."""
        one = SHORT_SIDE - SIZE + 1
        codes = i.flatten().tolist()
        x, y = self.train.load([code // (2 * one * one) for code in codes], SHORT_SIDE, SHORT_SIDE)
        cut = []
        for image, code in zip(x, codes, strict=True):
            top, left = divmod(code // 2 % (one * one), one)
            part = image[:, top : top + SIZE, left : left + SIZE]
            cut.append(part.flip(2) if code % 2 else part)
        return self._scaled(torch.stack(cut)).view(*i.shape, *self.shape), y.view(i.shape).to(self.device)

    def evaluation(self, size: int) -> Evaluation:
        some = self.train.thinned(TRAIN_IMAGES)
        return {"held out": self._plain(self.test, size), "train": self._plain(some, size)}

    def _plain(self, images: ImageFolder, size: int) -> Iterator[Batch]:
        for first in range(0, len(images), size):
            x, y = images.load(range(len(images))[first : first + size], SIZE, SHORT_SIDE)
            yield self._scaled(x)[None], y[None].to(self.device)

    def _scaled(self, x: torch.Tensor) -> torch.Tensor:
        return (x.to(self.device).float() - self.mean) / self.scale
