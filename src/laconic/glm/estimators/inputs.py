"""What users pass, made into what the solvers take: matrices, targets, weights, offsets."""

import os
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import _check_sample_weight, assert_all_finite, column_or_1d, validate_data

from laconic.data.table import check_finite
from laconic.glm.columns import Columns, DenseColumns, SparseColumns

Matrix = Any
"""(m, n): a NumPy array, a SciPy matrix in CSR form, or a tensor; floating-point numbers, all finite."""
Given = tuple[Any, Any, Any, Any]
"""X, y, sample_weight and offset, as the user passed them."""

_FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Inputs:
    """A rank's data, checked.

    X              the matrix, or of a file this rank's block of its columns
    y              (m,) as given
    sample_weight  (m,) float64, or None
    offset         (m,) or (m, C) float64, or None
    columns        (first, last) that X holds, where it does not hold all; None where it does
    n_features     columns of the whole matrix
    """

    X: Matrix
    y: np.ndarray
    sample_weight: np.ndarray | None
    offset: np.ndarray | None
    columns: tuple[int, int] | None
    n_features: int


def is_path(X: Any) -> bool:
    """Whether X names a file."""
    return isinstance(X, (str, os.PathLike))


def refuse_names(**given: Any) -> None:
    """Only files have columns that can be named."""
    for name, value in given.items():
        if isinstance(value, str):
            raise TypeError(f"{name}={value!r} names a column, and X is no file; pass the values, or a path as X")


def check_matrix(estimator: Any, X: Any, *, reset: bool, wide: bool = True, least_rows: int = 1) -> Matrix:
    """X as a matrix; its number of columns and their names are set on the estimator, or compared with those there.

    reset  set them
    wide   whether integers become float64; float32 otherwise
    """
    if isinstance(X, torch.Tensor):
        return _check_tensor(estimator, X, reset=reset, least_rows=least_rows)
    kinds = [np.float64, np.float32] if wide else [np.float32, np.float64]
    X = validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=kinds, ensure_min_samples=least_rows)
    if not isinstance(X, np.ndarray) and not X.has_canonical_format:
        X = X.copy()  # the caller's matrix stays as it is
        X.sum_duplicates()
    return X


def _check_tensor(estimator: Any, X: torch.Tensor, *, reset: bool, least_rows: int) -> torch.Tensor:
    if X.dim() != 2:
        raise ValueError(f"Expected 2D array, got shape {tuple(X.shape)}: X must have rows and columns")
    if X.layout != torch.strided:
        raise ValueError(f"X is a tensor of layout {X.layout}; pass sparse data as a SciPy matrix in CSR form")
    if X.device.type not in ("cpu", "cuda"):
        raise ValueError(f"X is on {X.device}; the estimators take tensors of the CPU or of a CUDA GPU: pass X.cpu()")
    if X.is_complex():
        raise ValueError("Complex data not supported: X must hold real numbers")
    if X.shape[0] < least_rows:
        raise ValueError(f"Found array with 0 sample(s) (shape={tuple(X.shape)}) while a minimum of 1 is required.")
    if X.shape[1] == 0:
        raise ValueError(f"Found array with 0 feature(s) (shape={tuple(X.shape)}) while a minimum of 1 is required.")
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    X = X.detach()
    if not X.is_floating_point():
        X = X.double()
    if X.dtype not in _FLOATS:
        raise ValueError(f"X is a tensor of {X.dtype}; pass X.float(), or one of {', '.join(map(str, _FLOATS))}")
    check_finite(X)
    return X


def check_target(estimator: Any, y: Any, n_rows: int, *, numeric: bool) -> np.ndarray:
    """y as a vector: float64 where it must be numeric, otherwise labels of any kind."""
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    y = column_or_1d(as_numpy(y), warn=True)
    if numeric:
        y = np.asarray(y, dtype=np.float64)
    if n_rows:
        assert_all_finite(y, input_name="y")
    return check_length("y", y, n_rows)


def check_weights(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """Weights as float64, not negative and not all zero; None for None."""
    if sample_weight is None:
        return None
    if not n_rows:
        return check_length("sample_weight", np.asarray(as_numpy(sample_weight), dtype=np.float64), 0)
    rows = np.empty((n_rows, 0))
    w: np.ndarray = _check_sample_weight(as_numpy(sample_weight), rows, dtype=np.float64)
    if (w < 0).any():
        row = int((w < 0).argmax())
        raise ValueError(f"sample_weight is {w[row]:g} in row {row}; a weight cannot be negative")
    if not w.any():
        raise ValueError("sample_weight is zero in every row; at least one weight must be positive")
    return w


def check_offset(offset: Any, n_rows: int) -> np.ndarray | None:
    """Offsets as float64, (m,), or (m, C) for C outputs; None for None."""
    if offset is None:
        return None
    offset = np.asarray(as_numpy(offset), dtype=np.float64)
    if offset.ndim not in (1, 2):
        raise ValueError(f"offset must have shape ({n_rows},), got {offset.shape}")
    finite = np.isfinite(offset) if offset.ndim == 1 else np.isfinite(offset).all(1)
    if not finite.all():
        row = int((~finite).argmax())
        raise ValueError(f"offset is {offset[row]} in row {row}; log(exposure) needs exposures that are positive")
    return check_length("offset", offset, n_rows)


def check_width(offset: np.ndarray | None, n_outputs: int) -> None:
    """Offsets must be one a row, or one a row and output."""
    if offset is not None and offset.ndim == 2 and offset.shape[1] not in (1, n_outputs):
        raise ValueError(f"offset must have one column for each of {n_outputs} outputs, got {offset.shape[1]}")


def check_length(name: str, values: np.ndarray, n_rows: int) -> np.ndarray:
    """`values`, if there is one for each row."""
    if len(values) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows, {name} has {len(values)}"
        )
    return values


def as_numpy(values: Any) -> Any:
    """A tensor as a NumPy array; anything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values


def to_columns(X: Matrix, dtype: torch.dtype) -> Columns:
    """A matrix, or a block of its columns, stored in `dtype`; copied only where its type is another."""
    if isinstance(X, np.ndarray):
        return DenseColumns(_row_major(as_tensor(X), dtype))
    if isinstance(X, torch.Tensor):
        return DenseColumns(_row_major(X, dtype))
    return SparseColumns.of(X, dtype)


def as_tensor(X: np.ndarray) -> torch.Tensor:
    """A view of an array, which may be read-only: nothing here writes to it."""
    if any(step < 0 or step % X.itemsize for step in X.strides) or not X.dtype.isnative:
        X = np.ascontiguousarray(X, dtype=X.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(X)


def _row_major(X: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if X.dtype != dtype or (X.shape[1] > 1 and X.stride(1) != 1):
        return X.to(dtype, copy=True, memory_format=torch.contiguous_format)
    return X
