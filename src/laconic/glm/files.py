"""Files of tensors that are there whole or not at all, and that are not trusted when they are read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from laconic.atomic_write import atomic_write
from laconic.errors import CorruptPayload
from laconic.extras import require


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, or leave what was there and raise `NotWritten`."""
    with atomic_write(path, "wb", n_bytes=len(data)) as file:
        file.write(data)


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """One safetensors file."""
    require("safetensors.torch", for_="saving a model", extra="glm")
    from safetensors.torch import save

    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_whole(path, save(own, dict(metadata)))


def load_tensors(path: Path, what: str) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file; `CorruptPayload` where it is none.

    what  the file should be, for the message: "a model"
    """
    require("safetensors", for_="loading a model", extra="glm")
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CorruptPayload(f"there is no file {path}")
    try:
        opened: Any = safe_open(path, framework="pt")
        with opened as file:
            return {name: file.get_tensor(name).clone() for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CorruptPayload(f"{path} is not {what}: {error}") from error
