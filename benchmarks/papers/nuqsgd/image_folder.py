"""Folders of image files, one per class, as in ImageNet; images are decoded on demand."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from laconic.data.errors import BadTable, MalformedFile

SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".ppm")
SIZE, SHORT_SIDE = 224, 256
N_THREADS = 8


@dataclass(frozen=True, slots=True)
class ImageFolder:
    """Images root/CLASS/FILE: classes are the sorted folder names, labels their indices.

    paths    the files, class by class
    labels   one per file
    classes  names of the folders
    """

    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    @classmethod
    def open(cls, root: "Path | str", classes: Sequence[str] | None = None) -> "ImageFolder":
        """List a folder. `classes`, if given, are those of another folder, whose labels are used."""
        root = Path(root)
        if not root.is_dir():
            raise BadTable(f"there is no folder {root}; expected one with a folder of images for each class")
        found = tuple(sorted(path.name for path in root.iterdir() if path.is_dir()))
        known = tuple(classes) if classes is not None else found
        strange = [name for name in found if name not in known]
        if strange:
            raise BadTable(f"{root} has the class {strange[0]!r}, which there are no images of to train on")
        pairs = [
            (path, number)
            for number, name in enumerate(known)
            for path in sorted((root / name).glob("*"))
            if path.suffix.lower() in SUFFIXES
        ]
        if not pairs:
            raise BadTable(f"{root} has no images; expected {root.name}/CLASS/FILE with one of {', '.join(SUFFIXES)}")
        return cls(tuple(path for path, _ in pairs), tuple(number for _, number in pairs), known)

    def __len__(self) -> int:
        return len(self.paths)

    def thinned(self, most: int) -> "ImageFolder":
        """At most `most` images, evenly spaced: files are ordered by class, so the first would be of one class."""
        step = -(-len(self) // most)
        return ImageFolder(self.paths[::step], self.labels[::step], self.classes)

    def load(
        self, rows: Sequence[int], size: int = SIZE, short_side: int = SHORT_SIDE
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Images (n, 3, size, size) uint8 and labels (n,): shorter side scaled to `short_side`, then centre crop."""
        Image = require_pillow()
        with ThreadPoolExecutor(N_THREADS) as threads:
            images = list(threads.map(lambda row: _decode(Image, self.paths[row], size, short_side), rows))
        return torch.stack(images), torch.tensor([self.labels[row] for row in rows])


def require_pillow() -> Any:
    """Pillow's `Image`, or an error that says how to get it."""
    try:
        from PIL import Image
    except ImportError as error:
        raise BadTable("image files need Pillow; install it with: pip install 'laconic[benchmarks]'") from error
    return Image


def _decode(Image: Any, path: Path, size: int, short_side: int) -> torch.Tensor:
    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise MalformedFile(path, f"cannot be decoded as an image: {error}") from error
    scale = short_side / min(image.size)
    width, height = (max(size, round(scale * side)) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    cut = image.resize((width, height)).crop((left, top, left + size, top + size))
    pixels = torch.frombuffer(bytearray(cut.tobytes()), dtype=torch.uint8)
    return pixels.view(size, size, 3).permute(2, 0, 1).contiguous()
