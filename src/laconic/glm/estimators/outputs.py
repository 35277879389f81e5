"""Margins of new rows, and answers in the type that the question came in."""

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from laconic.glm.columns import DenseColumns
from laconic.glm.estimators.inputs import Matrix, as_numpy, check_matrix, check_offset, check_width, is_path


def margins(estimator: Any, X: Any, offset: Any = None) -> torch.Tensor:
    """X coefᵀ + intercept + offset, (m, C), where X lies: float64 for a float64 X, otherwise float32."""
    check_is_fitted(estimator)
    if is_path(X):
        X, offset = _file(estimator, X, offset)
    else:
        X = check_matrix(estimator, X, reset=False)
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


def _file(estimator: Any, path: Any, offset: Any) -> tuple[Any, Any]:
    from laconic.glm.estimators import files

    table = files.read_again(path, estimator._roles, estimator.n_features_in_)
    if table.n_features != estimator.n_features_in_:
        raise ValueError(f"{path} has {table.n_features} features, the model has {estimator.n_features_in_}")
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and table.feature_names is not None and tuple(names) != table.feature_names:
        raise ValueError(f"{path} has features {table.feature_names}, the model was fitted to {tuple(names)}")
    return table.X, files.floats(table.offset) if offset is None else offset


def like(X: Any, result: torch.Tensor) -> Any:
    """A tensor if X is one, otherwise a NumPy array."""
    return result if isinstance(X, torch.Tensor) else result.numpy()


def target_of(estimator: Any, X: Any, y: Any) -> Any:
    """y as given, or where X is a file and y is not given, the file's own."""
    if not is_path(X) or (y is not None and not isinstance(y, str)):
        return as_numpy(y)
    from laconic.glm.estimators import files

    roles = {**estimator._roles, **({} if y is None else {"target": y})}
    return files.labels(files.read_again(X, roles, estimator.n_features_in_))


def offset_of(estimator: Any, X: Any, offset: Any) -> np.ndarray | None:
    """The offsets (m,) that `margins` adds."""
    if is_path(X) and offset is None:
        from laconic.glm.estimators import files

        return files.floats(files.read_again(X, estimator._roles, estimator.n_features_in_).offset)
    given = None if offset is None else np.asarray(as_numpy(offset), dtype=np.float64)
    return None if given is None else given.reshape(-1)
