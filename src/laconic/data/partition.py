"""Partition columns among ranks into contiguous blocks of about equal size."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from laconic.data.table import column_block


def column_cuts(columns: "int | Sequence[float] | np.ndarray", n_ranks: int) -> list[int]:
    """Boundaries `cuts` of the blocks: rank p owns columns cuts[p] to cuts[p + 1] - 1, possibly none.

    columns  their number, all of the same weight (a dense X); or the weight of each (`column_weights(X)` for a sparse
             one). A block weighs at most one column more than its share.

    >>> column_cuts(10, 3), column_cuts(2, 4)
    ([0, 3, 6, 10], [0, 0, 1, 1, 2])
    >>> column_cuts([5, 1, 1, 1, 2], 2)
    [0, 1, 5]
    """
    if n_ranks < 1:
        raise ValueError(f"columns must go to at least one rank, got n_ranks={n_ranks}")
    if isinstance(columns, int):
        if columns < 0:
            raise ValueError(f"there cannot be {columns} columns")
        return [p * columns // n_ranks for p in range(n_ranks + 1)]
    weights = np.asarray(columns, np.float64)
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("column weights must be a vector of finite numbers that are not negative")
    before = np.concatenate([[0.0], np.cumsum(weights)])
    if before[-1] == 0:
        return column_cuts(len(weights), n_ranks)
    shares = before[-1] * np.arange(1, n_ranks) / n_ranks
    after = np.searchsorted(before, shares)
    nearer = before[after] - shares > shares - before[after - 1]
    return [0, *(after - nearer).tolist(), len(weights)]


def column_weights(X: Any) -> np.ndarray:
    """Stored values per column: the number of rows for a dense X, non-zeros for a sparse one."""
    if isinstance(X, (torch.Tensor, np.ndarray)):
        return np.full(X.shape[1], X.shape[0], np.int64)
    return np.bincount(X.tocsr().indices, minlength=X.shape[1])


def take_columns(X: Any, first: int, last: int) -> Any:
    """Columns first to last - 1: a view for a dense X, a copy for a sparse one.

    >>> take_columns(torch.arange(6).view(2, 3), 1, 3)
    tensor([[1, 2],
            [4, 5]])
    """
    first, last = column_block((first, last), X.shape[1])
    return X[:, first:last]
