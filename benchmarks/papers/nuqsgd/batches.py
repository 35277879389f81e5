"""Batches of images on a device, cropped and flipped at random, the same for every contender."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.papers.nuqsgd.image_folder import SHORT_SIDE, SIZE, ImageFolder, require_pillow
from benchmarks.papers.nuqsgd.images import Images, ImageSet, read_images
from laconic.bench.training import generator_of
from laconic.kernels import Stream

PADDING = 4
"""Black pixels around a small image before a part of its size is cut out."""
EVALUATED = 1000
"""Images per forward pass of an evaluation."""
N_FOR_SCALE = 10_000
IMAGENET = "imagenet"
IMAGENET_SCALE = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's colours, as is usual."""
Batch = tuple[torch.Tensor, torch.Tensor]


def cropped(x: torch.Tensor, size: tuple[int, int], padding: int, generator: torch.Generator) -> torch.Tensor:
    """A part of `size` of each padded image (b, c, h, w), from a random place, mirrored half of the time.

    The generator is the CPU's: the same numbers whatever device the images are on.

    >>> cropped(torch.ones(2, 3, 8, 8), (8, 8), 0, torch.Generator()).shape
    torch.Size([2, 3, 8, 8])
    """
    x = torch.nn.functional.pad(x, (padding,) * 4)
    b, c = x.shape[:2]
    (h, w), (spare_h, spare_w) = size, (x.shape[2] - size[0], x.shape[3] - size[1])
    top = torch.randint(spare_h + 1, (b, 1), generator=generator)
    left = torch.randint(spare_w + 1, (b, 1), generator=generator)
    mirrored = torch.randint(2, (b, 1), generator=generator).bool()
    columns = torch.where(mirrored, torch.arange(w - 1, -1, -1), torch.arange(w))
    iy, ix = ((start + i).to(x.device) for start, i in ((top, torch.arange(h)), (left, columns)))
    image, colour = torch.arange(b, device=x.device), torch.arange(c, device=x.device)
    return x[image[:, None, None, None], colour[None, :, None, None], iy[:, None, :, None], ix[:, None, None, :]]


class ImageBatches(ABC):
    """Batches of images to train on, and to evaluate with.

    name, source, n_train, n_classes, shape  as in `ImageSet`
    """

    name: str
    source: str
    n_train: int
    n_classes: int
    shape: tuple[int, int, int]

    @property
    def about(self) -> dict[str, Any]:
        """Fields of a row about the images."""
        return {"source": self.source, "n_train": self.n_train}

    @abstractmethod
    def batch(self, rows: torch.Tensor, generator: torch.Generator) -> Batch:
        """Training images of these rows, changed at random, as the network takes them."""

    @abstractmethod
    def evaluation(self, part: str, most: int) -> Iterator[Batch]:
        """The first `most` images of "train" or "test" as they are."""


class InMemory(ImageBatches):
    """A set that fits on the device, kept there as bytes."""

    def __init__(self, images: ImageSet, device: torch.device) -> None:
        self.name, self.source, self.n_classes, self.shape = images.name, images.source, images.n_classes, images.shape
        self.n_train = len(images.train)
        self.parts = {part: self._to(getattr(images, part), device) for part in ("train", "test")}
        some = images.train.x[:N_FOR_SCALE].float()
        self.mean = some.mean((0, 2, 3), keepdim=True).to(device)
        self.scale = some.std((0, 2, 3), keepdim=True).clamp(min=1.0).to(device)

    @staticmethod
    def _to(images: Images, device: torch.device) -> Images:
        return Images(images.x.to(device), images.y.to(device))

    def batch(self, rows: torch.Tensor, generator: torch.Generator) -> Batch:
        train = self.parts["train"]
        rows = rows.to(train.x.device)
        x = (train.x[rows].float() - self.mean) / self.scale
        return cropped(x, self.shape[1:], PADDING, generator), train.y[rows]

    def evaluation(self, part: str, most: int) -> Iterator[Batch]:
        images = self.parts[part].head(most)
        for first in range(0, len(images), EVALUATED):
            x, y = images.x[first : first + EVALUATED], images.y[first : first + EVALUATED]
            yield (x.float() - self.mean) / self.scale, y


class InFolders(ImageBatches):
    """ImageNet as it is kept: DIR/train/CLASS/FILE and DIR/val/CLASS/FILE, decoded for every batch."""

    def __init__(self, folder: Path, device: torch.device, most: int | None = None) -> None:
        require_pillow()
        train = ImageFolder.open(folder / "train")
        test = ImageFolder.open(folder / "val", train.classes)
        train, test = (part if most is None else part.thinned(most) for part in (train, test))
        self.parts = {"train": train, "test": test}
        self.name, self.source, self.shape = IMAGENET, "train/*/*, val/*/*", (3, SIZE, SIZE)
        self.n_train, self.n_classes, self.device = len(train), len(train.classes), device
        self.mean, self.scale = (torch.tensor(v, device=device).view(1, 3, 1, 1) * 255 for v in IMAGENET_SCALE)

    def batch(self, rows: torch.Tensor, generator: torch.Generator) -> Batch:
        x, y = self.parts["train"].load(rows.tolist(), SHORT_SIDE, SHORT_SIDE)
        x = (x.to(self.device).float() - self.mean) / self.scale
        return cropped(x, (SIZE, SIZE), 0, generator), y.to(self.device)

    def evaluation(self, part: str, most: int) -> Iterator[Batch]:
        images = self.parts[part].thinned(most)
        for first in range(0, len(images), EVALUATED):
            x, y = images.load(range(len(images))[first : first + EVALUATED], SIZE, SHORT_SIDE)
            yield (x.to(self.device).float() - self.mean) / self.scale, y.to(self.device)


def open_batches(name: str, folder: "str | None", device: torch.device, most: int | None = None) -> ImageBatches:
    """A data set by name, at most so many images of each part; see `data.read_images`.

    "imagenet" is a folder of folders of image files.
    """
    if name != IMAGENET:
        images = read_images(name, folder)
        return InMemory(images if most is None else images.head(most), device)
    if folder is None:
        raise ValueError("imagenet is read from files; give the folder that has train/ and val/ with --data DIR")
    return InFolders(Path(folder), device, most)


def rows_of(n: int, iteration: int, size: int, seed: int) -> torch.Tensor:
    """The rows (size,) of one iteration: the next of an order drawn anew every epoch; what is left over is skipped.

    >>> torch.cat([rows_of(10, t, 5, 0) for t in (0, 1)]).sort().values.tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    an_epoch = n // size
    epoch, turn = divmod(iteration, an_epoch)
    return _order(n, epoch, seed)[turn * size : (turn + 1) * size]


@lru_cache(maxsize=2)
def _order(n: int, epoch: int, seed: int) -> torch.Tensor:
    return torch.randperm(n, generator=generator_of(Stream(seed, step=epoch, tensor="order")))
