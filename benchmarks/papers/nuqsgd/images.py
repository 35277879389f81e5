"""Images with labels: CIFAR-10, Fashion-MNIST, or synthetic. Nothing is downloaded or unpickled.

Of the versions of CIFAR-10, the binary one (`cifar-10-batches-bin/*.bin`) is read: the one for Python consists of
pickles, which can run any code. Either set may also be an .npz of four plain arrays.
"""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from laconic.data.errors import BadTable, MalformedFile
from laconic.data.files import open_bytes

CIFAR_IMAGE = (3, 32, 32)
CIFAR_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
IDX_BYTES = 0x08
"""The third byte of an IDX file of unsigned bytes."""
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
SYNTHETIC = "synthetic"
DATASETS = ("cifar10", "fashion-mnist", SYNTHETIC)


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """x (n, channels, height, width) uint8 and y (n,) int64."""

    x: torch.Tensor
    y: torch.Tensor

    def __len__(self) -> int:
        return len(self.y)

    def head(self, n: int) -> "Images":
        """The first n."""
        return Images(self.x[:n], self.y[:n])


@dataclass(frozen=True, slots=True, eq=False)
class ImageSet:
    """Training and test images.

    source  names of the files, without their folder, or "synthetic"
    """

    name: str
    train: Images
    test: Images
    n_classes: int
    source: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.train.x.shape[1:]
        return channels, height, width

    def head(self, n: int) -> "ImageSet":
        """The first n of each part."""
        return ImageSet(self.name, self.train.head(n), self.test.head(n), self.n_classes, self.source)


def read_images(name: str, folder: "Path | str | None") -> ImageSet:
    """CIFAR-10 or Fashion-MNIST from a folder with the usual files, or a synthetic set.

    cifar10        cifar10.npz, cifar-10-batches-bin/*.bin, or those files themselves; part1.npz, part2.npz … are
                   cifar10.npz in pieces
    fashion-mnist  fashion_mnist.npz, or train-images-idx3-ubyte and the other three, also with .gz
    synthetic      needs no folder
    """
    if name not in DATASETS:
        raise ValueError(f"unknown data set {name!r}; choose one of {', '.join(DATASETS)}")
    if name == SYNTHETIC:
        return synthetic_images()
    if folder is None:
        raise ValueError(f"{name} is read from files; give their folder with --data DIR, or take --dataset synthetic")
    folder = Path(folder)
    packed = folder / f"{name.replace('-', '_')}.npz"
    parts = [packed] if packed.is_file() else sorted(folder.glob("part*.npz"))
    if parts:
        train, test = (_joined(part) for part in zip(*map(_from_npz, parts), strict=True))
        return _checked(name, train, test, source=packed.name)
    return _cifar10(folder) if name == "cifar10" else _fashion_mnist(folder)


def synthetic_images(
    n_train: int = 2048,
    n_test: int = 512,
    shape: tuple[int, int, int] = (3, 32, 32),
    n_classes: int = 10,
    seed: int = 0,
) -> ImageSet:
    """Noisy images of one smooth pattern per class, which a network learns in a few dozen steps.

    >>> images = synthetic_images(64, 16)
    >>> images.shape, len(images.train), images.train.x.dtype
    ((3, 32, 32), 64, torch.uint8)
    """
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(n_classes, shape[0], 4, 4, generator=generator)
    patterns = torch.nn.functional.interpolate(coarse, shape[1:], mode="bilinear", align_corners=False)

    def draw(n: int) -> Images:
        y = torch.randint(n_classes, (n,), generator=generator)
        x = 128 + 32 * patterns[y] + 32 * torch.randn(n, *shape, generator=generator)
        return Images(x.clamp(0, 255).to(torch.uint8), y)

    return ImageSet(SYNTHETIC, draw(n_train), draw(n_test), n_classes, SYNTHETIC)


def _joined(parts: Sequence[Images]) -> Images:
    return Images(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


def _cifar10(folder: Path) -> ImageSet:
    inner = folder / "cifar-10-batches-bin"
    root = inner if inner.is_dir() else folder
    if not (root / CIFAR_BATCHES[0]).is_file():
        pickled = (folder / "cifar-10-batches-py").is_dir()
        why = "the pickled version there is not read, for pickles run code; " if pickled else ""
        raise BadTable(
            f"{folder} has neither cifar10.npz nor cifar-10-batches-bin/data_batch_1.bin; {why}"
            "get the binary version, cifar-10-binary.tar.gz, and unpack it there"
        )
    train = _joined([_cifar_batch(root / name) for name in CIFAR_BATCHES])
    return _checked("cifar10", train, _cifar_batch(root / "test_batch.bin"), source="data_batch_*.bin")


def _cifar_batch(path: Path) -> Images:
    """Records of one byte of label and 3072 of pixels, colour by colour."""
    raw, size = np.frombuffer(_bytes(path), np.uint8), 1 + int(np.prod(CIFAR_IMAGE))
    if not len(raw) or len(raw) % size:
        raise MalformedFile(path, f"expected records of {size} bytes, found {len(raw)} bytes")
    rows = torch.from_numpy(raw.reshape(-1, size).copy())
    return Images(rows[:, 1:].reshape(-1, *CIFAR_IMAGE), rows[:, 0].long())


def _fashion_mnist(folder: Path) -> ImageSet:
    train, test = (
        Images(
            torch.from_numpy(_idx(folder, f"{part}-images-idx3-ubyte", 3))[:, None],
            torch.from_numpy(_idx(folder, f"{part}-labels-idx1-ubyte", 1)).long(),
        )
        for part in ("train", "t10k")
    )
    return _checked("fashion-mnist", train, test, source="*-ubyte")


def _idx(folder: Path, name: str, n_dims: int) -> np.ndarray:
    """An IDX file of bytes: 0, 0, type, number of dimensions, the dimensions (big-endian), the values."""
    path = next((p for p in (folder / f"{name}.gz", folder / name) if p.is_file()), None)
    if path is None:
        raise BadTable(f"{folder} has neither fashion_mnist.npz nor {name}.gz")
    raw, start = _bytes(path), 4 + 4 * n_dims
    if len(raw) < start or raw[:4] != bytes([0, 0, IDX_BYTES, n_dims]):
        raise MalformedFile(path, f"expected an IDX file of bytes in {n_dims} dimensions, found {raw[:4].hex(' ')}")
    shape = np.frombuffer(raw, ">u4", n_dims, 4).astype(np.int64)
    if len(raw) - start != int(np.prod(shape)):
        raise MalformedFile(path, f"its header says {' × '.join(map(str, shape))}, and {len(raw) - start} bytes follow")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()


def _from_npz(path: Path) -> tuple[Images, Images]:
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in ARRAYS if name not in file]
            if missing:
                raise MalformedFile(path, f"expected arrays {', '.join(ARRAYS)}; {missing[0]} is missing")
            x_train, y_train, x_test, y_test = (file[name] for name in ARRAYS)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, MalformedFile):
            raise
        raise MalformedFile(path, f"not an .npz file of plain arrays: {error}") from error
    for name, x in (("x_train", x_train), ("x_test", x_test)):
        if x.dtype != np.uint8 or x.ndim != 4:
            raise MalformedFile(path, f"{name} must be bytes (n, channels, height, width), got {x.dtype} {x.shape}")
    for name, y in (("y_train", y_train), ("y_test", y_test)):
        if y.dtype.kind not in "iu" or y.ndim != 1:
            raise MalformedFile(path, f"{name} must be whole numbers (n,), got {y.dtype} {y.shape}")
    pairs = ((x_train, y_train), (x_test, y_test))
    train, test = (Images(torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))) for x, y in pairs)
    return train, test


def _checked(name: str, train: Images, test: Images, *, source: str) -> ImageSet:
    for what, images in (("train", train), ("test", test)):
        if len(images.x) != len(images.y) or not len(images):
            raise BadTable(f"{source}: {len(images.x)} {what} images and {len(images.y)} labels; expected as many")
    if train.x.shape[1:] != test.x.shape[1:]:
        raise BadTable(f"{source}: images of {tuple(train.x.shape[1:])} to train on, {tuple(test.x.shape[1:])} to test")
    labels = torch.cat([train.y, test.y])
    if int(labels.min()) < 0 or int(labels.max()) >= 1000:
        raise BadTable(f"{source}: labels go from {int(labels.min())} to {int(labels.max())}; expected 0, 1, 2, …")
    return ImageSet(name, train, test, int(labels.max()) + 1, source)


def _bytes(path: Path) -> bytes:
    try:
        with open_bytes(path) as file:
            return file.read()
    except FileNotFoundError as error:
        raise BadTable(f"{path.parent} has no {path.name}") from error
