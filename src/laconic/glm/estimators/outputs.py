"""Margins of new rows, and answers in the type that the question came in."""

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from laconic.glm.columns import DenseColumns
from laconic.glm.estimators.inputs import Given, Matrix, check_matrix, check_offset, check_width, is_path, refuse_names


def margins(estimator: Any, X: Any, offset: Any = None) -> torch.Tensor:
    """Of rows as the user has them; see `margins_of`."""
    X, _, _, offset = rows_of(estimator, (X, None, None, offset), target=False)
    return margins_of(estimator, X, offset)


def rows_of(estimator: Any, data: Given, *, target: bool = True) -> Given:
    """X checked, y, weights and offset: as given, or of a file the columns that are named.

    In a file, y and offset that are not given are the columns that `fit` took; weights are only what is asked for.

    target  whether y is needed
    """
    check_is_fitted(estimator)
    X, y, sample_weight, offset = data
    if is_path(X):
        return _file(estimator, data, target=target)
    refuse_names(y=y, sample_weight=sample_weight, offset=offset)
    return check_matrix(estimator, X, reset=False), y, sample_weight, offset


def margins_of(estimator: Any, X: Matrix, offset: Any) -> torch.Tensor:
    """X coefᵀ + intercept + offset, (m, C), where X lies: float64 for a float64 X, otherwise float32."""
    z = _product(X, np.atleast_2d(estimator.coef_))
    z = z + torch.from_numpy(estimator.intercept_).to(z)
    offset = check_offset(offset, len(z))
    check_width(offset, z.shape[1])
    if offset is not None:
        z = z + torch.from_numpy(offset).reshape(len(z), -1).to(z)
    return z


def _product(X: Matrix, coef: np.ndarray) -> torch.Tensor:
    if not isinstance(X, torch.Tensor):
        return torch.from_numpy(X @ coef.astype(X.dtype).T)
    weights = torch.from_numpy(coef).to(X.device)
    if X.dtype in (torch.float32, torch.float64):
        return X @ weights.to(X.dtype).T
    return DenseColumns(X).margins(weights.float())


def _file(estimator: Any, data: Given, *, target: bool) -> Given:
    from laconic.glm.estimators import files

    path, y, sample_weight, offset = data
    fitted, given = estimator._roles, files.roles_of(y, sample_weight, offset)
    if not target or (y is not None and "target" not in given):
        given["target"] = False
    elif y is None and "target" in fitted:
        given["target"] = fitted["target"]
    dtype = "fp64" if estimator.coef_.dtype == np.float64 else "fp32"
    table = files.read_again(path, fitted, given, estimator.n_features_in_, dtype)
    if table.n_features != estimator.n_features_in_:
        raise ValueError(f"{path} has {table.n_features} features, the model has {estimator.n_features_in_}")
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and table.feature_names is not None and tuple(names) != table.feature_names:
        raise ValueError(f"{path} has features {table.feature_names}, the model was fitted to {tuple(names)}")
    y = y if given.get("target") is False else files.labels(table)
    sample_weight = files.floats(table.sample_weight) if "sample_weight" in given else sample_weight
    offset = files.floats(table.offset) if offset is None or "offset" in given else offset
    return table.X, y, sample_weight, offset


def like(X: Any, result: torch.Tensor) -> Any:
    """A tensor if X is one, otherwise a NumPy array."""
    return result if isinstance(X, torch.Tensor) else result.numpy()
