"""NumPy files: X.npy with y.npy beside it, or one .npz with both."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.data.errors import BadTable, MalformedFile, missing
from laconic.data.errors import Path as AnyPath
from laconic.data.files import SMALL_BYTES, Limits, Source
from laconic.data.table import Table, as_floats, as_target, check_finite, column_block, no_target, to_dtype
from laconic.errors import Option

Array = np.ndarray


def read_npy(
    source: Source, *, columns: tuple[int, int] | None = None, dtype: "str | torch.dtype | None" = None
) -> Table:
    """Read `X.npy` (mapped, not copied, where it is row-major and of the wanted dtype) or an `.npz`.

    The target is by default the file named like X with its last `X` replaced by `y` (`train_X.npy`: `train_y.npy`), in
    an .npz the array `y`; without one y is NaN. A mapped X is copy-on-write: writing into it changes neither the file
    nor what other processes see.

    dtype  None keeps float32 and float64 and converts anything else to float32

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "X.npy")
    >>> np.save(path, np.eye(3)); np.save(path.with_name("y.npy"), np.arange(3))
    >>> read_npy(Source(str(path)), columns=(1, 3)).X.tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    path, target = Path(source.path), source.target
    names = {"sample_weight": source.sample_weight, "offset": source.offset or source.exposure}
    for name, value in {"target": target or None, **names}.items():
        if not (value is None or isinstance(value, str)):
            raise BadTable(f"{path}: ", Option(name), f" must be the name of a file or an array, not {value!r}")
    if path.suffix.lower() == ".npz":
        names |= {} if target is False else {"y": str(target or "y")}
        arrays = _npz(path, source.limits, {"X": "X", **names})
    else:
        names |= {} if target is False else {"y": str(target or _beside(path))}
        others = {key: None if name is None else _npy(path.parent / str(name)) for key, name in names.items()}
        arrays = {"X": _npy(path), **others}
    X = _matrix(path, arrays["X"], dtype)
    n = X.shape[1]
    first, last = column_block(columns, n)
    X = X[:, first:last]
    check_finite(X, first_column=first)
    y = as_target(_numbers(path, arrays["y"])) if "y" in arrays else no_target(len(X))
    weight, offset, part = arrays["sample_weight"], arrays["offset"], "exposure" if source.exposure else "offset"
    if weight is not None:
        weight = as_floats(_numbers(path, weight), "sample_weight", part="sample_weight")
    if offset is not None:
        offset = as_floats(_numbers(path, offset), str(source.exposure or "offset"), part=part)
    return Table(X, y, weight, offset, columns=(first, last), n_features=n)


def shape(path: Path) -> tuple[int, int, str]:
    """Rows, columns and dtype of the X in a .npy file."""
    X = _npy(path)
    return X.shape[0], X.shape[1] if X.ndim > 1 else 1, str(X.dtype)


def _beside(path: Path) -> str:
    before, x, after = path.name.removesuffix(path.suffix).rpartition("X")
    if not x:
        where = f"{path}: where is y? Name the file X.npy and the other y.npy, or give "
        raise BadTable(where, Option("target", "labels.npy"))
    return f"{before}y{after}{path.suffix}"


def _npy(path: Path) -> Array:
    """Map an array copy-on-write; a header that promises more than the file holds is refused, not allocated."""
    try:
        return np.lib.format.open_memmap(path, mode="c")
    except FileNotFoundError:
        raise
    except Exception as error:  # damaged headers raise a dozen kinds of errors
        raise MalformedFile(path, f"not an .npy file of plain numbers: {error}") from error


def _npz(path: Path, limits: Limits, names: dict[str, Any]) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    if path.exists() and not zipfile.is_zipfile(path):
        raise MalformedFile(path, "not an .npz file of plain numbers: it is no zip file")
    try:
        with zipfile.ZipFile(path) as members:
            for one in members.infolist():
                if one.file_size > SMALL_BYTES:
                    ratio = one.file_size // max(1, one.compress_size)
                    limits.check("unpacked_ratio", ratio, path, f"{one.filename} unpacks to more times its size")
        with path.open("rb") as bytes_of, np.load(bytes_of, allow_pickle=False) as file:
            for key, name in names.items():
                wanted = name or (key if key in file.files else None)
                if wanted is not None and wanted not in file.files:
                    raise BadTable(missing(wanted, file.files, str(path)).replace("column", "array"))
                arrays[key] = None if wanted is None else file[wanted]
                if isinstance(arrays[key], bytes):
                    raise MalformedFile(path, f"{wanted} is not an .npy file")
    except (BadTable, MalformedFile, FileNotFoundError):
        raise
    except Exception as error:
        raise MalformedFile(path, f"not an .npz file of plain numbers: {error}") from error
    return arrays


def _matrix(path: Path, X: Array, dtype: "str | torch.dtype | None") -> torch.Tensor:
    if X.ndim != 2:
        raise BadTable(f"{path}: X must have two dimensions, rows and columns; it has shape {X.shape}")
    X = _numbers(path, X)
    if X.dtype not in (np.float32, np.float64) or not X.dtype.isnative:
        X = X.astype(np.float64 if X.dtype == np.float64 else np.float32)
    tensor = torch.from_numpy(np.ascontiguousarray(X))
    return tensor if dtype is None else tensor.to(to_dtype(dtype))


def _numbers(path: Path, array: Array) -> Array:
    if array.dtype.kind not in "biuf":
        raise BadTable(f"{path}: expected numbers, found an array of {array.dtype}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def read_gradient(path: AnyPath) -> torch.Tensor:
    """A gradient saved by `np.save`: floats of any shape, flattened to (n,) float32.

    Raises `MalformedFile` if the file is missing or not such an array, `BadTable` if its values cannot be sent.
    """
    try:
        found = _npy(Path(path))
    except FileNotFoundError as error:
        raise MalformedFile(path, "there is no such file") from error
    if found.dtype.kind != "f":
        hint = "save it by np.save(path, gradient.float().cpu().numpy())"
        raise BadTable(f"{path}: a gradient is an array of floats, this is one of {found.dtype}; {hint}")
    v = torch.from_numpy(found.astype(np.float32).reshape(-1))
    n_finite = int(v.isfinite().sum())
    if n_finite < v.numel():
        raise BadTable(f"{path}: {v.numel() - n_finite} of {v.numel()} values are not finite numbers of float32")
    if not bool(v.any()):
        raise BadTable(f"{path}: none of {v.numel()} values is other than zero, so that errors have no measure")
    return v
