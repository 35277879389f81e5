"""A rank's data: read, checked, and cut by columns."""

import hashlib
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from laconic.data.partition import column_cuts, column_weights, take_columns
from laconic.exchange import Communicator
from laconic.glm.auto_recipe import is_auto
from laconic.glm.columns import Columns
from laconic.glm.estimators.inputs import (
    Given,
    Inputs,
    Matrix,
    check_matrix,
    check_offset,
    check_target,
    check_weights,
    is_path,
    refuse_names,
    to_columns,
)
from laconic.glm.estimators.training_set import join_rows
from laconic.glm.repartition import repartition

Facts = dict[str, Any]
"""JSON values by name, which ranks compare."""
ROWS = ("replicated", "partitioned")
UNCOMPARED = ("random_state", "verbose", "callbacks", "warm_start")
"""Parameters that need not be the same on every rank."""


def may_differ(rows: str) -> frozenset[str]:
    """Facts that ranks need not agree on; the seed is rank 0's."""
    own = ("n_rows", "y", "sample_weight", "offset") if rows == "partitioned" else ()
    return frozenset({"seed", *own})


def read_inputs(
    estimator: Any, data: Given, rows: str, comm: Communicator, *, reset: bool, numeric: bool
) -> tuple[Inputs, Facts]:
    """This rank's data, checked, and what to compare with the other ranks.

    reset    set number and names of the features on the estimator, instead of comparing with those there
    numeric  whether y must be numbers
    """
    if rows not in ROWS:
        raise ValueError(f"rows must be one of {', '.join(map(repr, ROWS))}, got {rows!r}")
    X, y, sample_weight, offset = data
    columns = None
    if is_path(X):
        among = comm if rows == "replicated" else None
        (X, y, sample_weight, offset), columns = _read_file(estimator, data, among, reset)
        n = estimator.n_features_in_
    else:
        refuse_names(y=y, sample_weight=sample_weight, offset=offset)
        least = 0 if rows == "partitioned" and comm.size > 1 else 1
        wide = is_auto(estimator.recipe) or estimator.recipe == "fp64"
        X = check_matrix(estimator, X, reset=reset, wide=wide, least_rows=least)
        n = X.shape[1]
        estimator._roles = {} if reset else estimator._roles
    m = X.shape[0]
    y = check_target(estimator, y, m, numeric=numeric)
    inputs = Inputs(X, y, check_weights(sample_weight, m), check_offset(offset, m), columns, n)
    return inputs, _facts(estimator, inputs, rows)


def _facts(estimator: Any, inputs: Inputs, rows: str) -> Facts:
    params = estimator.get_params(deep=False)
    facts: Facts = {name: repr(value) for name, value in params.items() if name not in UNCOMPARED}
    facts |= {"rows": rows, "n_features_in_": inputs.n_features, "n_rows": len(inputs.y), "X": _kind(inputs.X)}
    for name, values in (("y", inputs.y), ("sample_weight", inputs.sample_weight), ("offset", inputs.offset)):
        facts[f"{name} is None"], facts[name] = values is None, _digest(values)
    facts["seed"] = int(check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max))
    return facts


def _read_file(estimator: Any, data: Given, comm: Communicator | None, reset: bool) -> tuple[Given, tuple[int, int]]:
    """A file's columns, this rank's block of them where there is `comm`; arrays that were given take precedence."""
    from laconic.glm.estimators import files  # pyarrow is loaded where it is first needed

    path, y, sample_weight, offset = data
    roles = files.roles_of(y, sample_weight, offset)
    base = {} if reset else files.base_for(path, estimator._roles)
    table = files.read_block(path, roles | base, estimator.recipe, comm)
    if reset:
        base = {} if table.zero_based is None else {"zero_based": table.zero_based}
        estimator._roles, estimator.n_features_in_ = roles | base, table.n_features
        if table.feature_names is not None:
            estimator.feature_names_in_ = np.asarray(table.feature_names, dtype=object)
        elif hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    elif table.n_features != estimator.n_features_in_:
        raise ValueError(f"{path} has {table.n_features} features, the model has {estimator.n_features_in_}")
    y = files.labels(table) if y is None or "target" in roles else y
    if sample_weight is None or "sample_weight" in roles:
        sample_weight = files.floats(table.sample_weight)
    if offset is None or "offset" in roles:
        offset = files.floats(table.offset)
    return (table.X, y, sample_weight, offset), table.columns


def cut_columns(
    local: Inputs, row_counts: list[int], rows: str, dtype: torch.dtype, comm: Communicator
) -> tuple[list[int], Columns, Inputs]:
    """Where columns are cut, this rank's block of them stored in `dtype`, and everything else of all rows.

    row_counts  rows that each rank was given
    """
    X, rank = local.X, comm.rank
    if rows == "partitioned" and comm.size > 1:
        cuts = column_cuts(_weights_over_ranks(X, comm), comm.size)
        blocks = [to_columns(take_columns(X, a, b), dtype) for a, b in pairwise(cuts)]
        return cuts, repartition(blocks, row_counts, comm), join_rows(local, comm)
    if comm.size == 1 or (local.columns is not None and X.shape[1] < local.n_features):
        return column_cuts(local.n_features, comm.size), to_columns(X, dtype), local
    cuts = column_cuts(local.n_features if is_dense(X) else column_weights(X), comm.size)
    return cuts, to_columns(take_columns(X, cuts[rank], cuts[rank + 1]), dtype), local


def _weights_over_ranks(X: Matrix, comm: Communicator) -> int | np.ndarray:
    """Columns, or of sparse rows the entries in each of them on all ranks."""
    if is_dense(X):
        return int(X.shape[1])
    weights = torch.from_numpy(column_weights(X).astype(np.int64))
    comm.all_reduce(weights)()
    return weights.numpy()


def _digest(array: np.ndarray | None) -> str | None:
    """A short name for the contents of an array of numbers or text."""
    if array is None:
        return None
    plain = array.astype(str) if array.dtype == object else array
    return hashlib.blake2b(np.ascontiguousarray(plain).tobytes(), digest_size=8).hexdigest()


def is_dense(X: Matrix) -> bool:
    """Whether X is an array or a tensor."""
    return isinstance(X, (np.ndarray, torch.Tensor))


def type_of(X: Matrix) -> torch.dtype:
    """The number type of a matrix."""
    if isinstance(X, torch.Tensor):
        return X.dtype
    return torch.float64 if X.dtype == np.float64 else torch.float32


def _kind(X: Matrix) -> str:
    return f"{'dense' if is_dense(X) else 'sparse'} {type_of(X)}"
