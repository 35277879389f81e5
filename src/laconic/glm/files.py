"""Files of tensors that are there whole or not at all, and that are not trusted when they are read."""

import contextlib
import errno
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from laconic.data.store import sync_folder
from laconic.errors import CorruptPayload, LaconicError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class NotSaved(LaconicError, OSError):
    """A file that could not be written; what was there before is there still."""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file:

    1. a temporary file beside it takes the bytes and is flushed to the disk;
    2. it is renamed to `path`, and the folder is flushed.

    A crash before the rename leaves `path` as it was. An error also leaves no temporary file; a kill -9 may leave
    `.NAME.*.tmp`.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise not_saved(path, error, len(data)) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def not_saved(path: Path, error: OSError, n_bytes: int | None = None) -> NotSaved:
    """What to tell about a file that could not be written."""
    if error.errno in FULL:
        size = "" if n_bytes is None else f" for the {n_bytes:,} bytes"
        return NotSaved(f"no room{size} of {path} ({error.strerror}); free some or write elsewhere")
    return NotSaved(f"cannot write {path}: {error.strerror or error}")


def check_writable(path: Path) -> None:
    """`NotSaved` where a file could not be written: to be asked before the work, not after it."""
    if path.is_dir():
        raise NotSaved(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise NotSaved(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise NotSaved(f"cannot write {path}: the folder may not be written to")


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
