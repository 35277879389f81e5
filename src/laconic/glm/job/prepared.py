"""A table turned into a problem."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from laconic.data import BadTable, Table
from laconic.exchange import Communicator
from laconic.glm.families import family_named
from laconic.glm.job.device import check_device, device_for
from laconic.glm.job.scaling import Scaling
from laconic.glm.job.source import as_columns, load
from laconic.glm.job.target import choose_family, codes, distinct
from laconic.glm.job.task import Task
from laconic.glm.model import CLASSIFIERS, Label
from laconic.glm.placing import placed
from laconic.glm.precision import Precision
from laconic.glm.problem import Problem

SAMPLED_ROWS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """This rank's part of what is to be fitted, and what is needed to make a model of the solution.

    family         as a user knows it
    classes        what the numbers in y stand for, of a classifier
    scaling        of the columns, if they were scaled
    columns        (first, last) of this rank, and
    n_features     columns in all
    zero_based     as in `Table`
    checksum       of some of this rank's values; its sum over ranks does not depend on who has which columns
    """

    problem: Problem
    family: str
    classes: tuple[Label, ...] | None
    scaling: Scaling | None
    columns: tuple[int, int]
    n_features: int
    feature_names: tuple[str, ...] | None
    zero_based: bool | None
    checksum: int


def prepare(task: Task, comm: Communicator, precision: Precision) -> Prepared:
    """Read this rank's columns, check all there is to check, and put the problem where it is to be solved."""
    check_device(task.device, comm.size)
    table = load(task.data, comm, precision.data)
    if table.sample_weight is not None and not bool((table.sample_weight > 0).any()):
        raise BadTable(f"{task.data.path}: all weights are zero")
    found = checksum(table)
    family, classes, y = _targets(task, table, precision.carrier)
    table = replace(table, y=torch.zeros(1, dtype=torch.float64).expand(table.n_rows))  # y is kept once, not twice
    kind = family_named(family, len(classes or (0, 1)))
    scaling = Scaling.of(table.X, centre=task.intercept) if task.standardize else None
    X = table.X if scaling is None else scaling.apply(table.X, precision.data)
    device = device_for(task.device, task.data.path, is_sparse=table.is_sparse, n_ranks=comm.size)
    problem = Problem(as_columns(X, precision.data), kind, y, table.sample_weight, table.offset)
    problem = placed(problem, device)
    columns = (table.columns, table.n_features, table.feature_names, table.zero_based)
    return Prepared(problem, family, classes, scaling, *columns, found)


def _targets(task: Task, table: Table, dtype: torch.dtype) -> tuple[str, "tuple[Label, ...] | None", torch.Tensor]:
    """The family, its classes, and y as it wants it."""
    values = distinct(table.y, table.classes) if task.family in (None, *CLASSIFIERS) or table.classes else None
    family = choose_family(task.family, values)
    if family not in CLASSIFIERS or values is None:
        return family, None, table.y.to(dtype)
    return family, values, codes(table.y, table.classes, values, dtype)


def checksum(table: Table) -> int:
    """Of a few rows: Σ bits of the value · (column + 1) · (row + 1), modulo 2⁶⁴."""
    rows = np.unique(np.linspace(0, table.n_rows - 1, SAMPLED_ROWS).astype(np.int64))
    X: Any = table.X[torch.from_numpy(rows)] if isinstance(table.X, torch.Tensor) else table.X[rows].tocoo()
    if isinstance(X, torch.Tensor):
        values = X.float().numpy()
        i, j = np.indices(values.shape)
    else:
        values, (i, j) = X.data, X.coords
    bits = np.ascontiguousarray(values, np.float32).view(np.int32).astype(np.int64)
    return int((bits * (j + table.columns[0] + 1) * (rows[i] + 1)).sum())
