"""Files of tensors that are there whole or not at all, and that are not trusted when they are read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from laconic.errors import CorruptPayload, LaconicError
from laconic.replacing import obstacle, replacing, why_not


class NotSaved(LaconicError, OSError):
    """A file that could not be written; what was there before is there still."""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, or leave what was there and raise `NotSaved`."""
    try:
        with replacing(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise not_saved(path, error, len(data)) from error


def not_saved(path: Path, error: OSError, n_bytes: int | None = None) -> NotSaved:
    """A file that could not be written, and why."""
    return NotSaved(why_not(path, error, n_bytes))


def check_writable(path: Path) -> None:
    """`NotSaved` where a file could not be written: to be asked before the work, not after it."""
    error = obstacle(path)
    if error is not None:
        raise not_saved(path, error)


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """One safetensors file."""
    from safetensors.torch import save

    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_whole(path, save(own, dict(metadata)))


def load_tensors(path: Path, what: str) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file; `CorruptPayload` where it is none.

    what  the file should be, for the message: "a model"
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CorruptPayload(f"there is no file {path}")
    try:
        opened: Any = safe_open(path, framework="pt")
        with opened as file:
            return {name: file.get_tensor(name).clone() for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CorruptPayload(f"{path} is not {what}: {error}") from error
