"""Files in place of matrices: `fit("train.parquet", "label")`."""

from typing import Any

import numpy as np
import torch

from laconic.data.partition import column_cuts
from laconic.data.read import describe, format_of, read, stream
from laconic.data.table import DTYPES, Table
from laconic.exchange import Communicator
from laconic.glm.auto_recipe import is_auto
from laconic.glm.precision import Precision, recipe

Roles = dict[str, Any]
"""Arguments of `read`: which columns of a file are target, weights and offset; of LIBSVM, how it counts them."""


def roles_of(y: Any, sample_weight: Any, offset: Any) -> Roles:
    """The names among what was given for y, weights and offset; arrays stand for themselves."""
    named = {"target": y, "sample_weight": sample_weight, "offset": offset}
    return {role: name for role, name in named.items() if isinstance(name, (str, int))}


def read_block(path: Any, roles: Roles, chosen: "str | Precision", comm: Communicator | None) -> Table:
    """This rank's block of the columns of a file, by about the same number of columns a rank; all for no `comm`.

    chosen  the recipe: a dense file is read in the format that it stores data in
    """
    dtype = None if is_auto(chosen) or recipe(chosen).data not in DTYPES else recipe(chosen).data
    if comm is None or comm.size == 1:
        return read(path, **roles, dtype=dtype)
    cuts = column_cuts(stream(path, **roles).n_features, comm.size)
    return read(path, **roles, dtype=dtype, columns=(cuts[comm.rank], cuts[comm.rank + 1]))


def read_again(path: Any, fitted: Roles, given: Roles, n_features: int, dtype: str) -> Table:
    """A file for a fitted model: columns that were target, weights or offset are no features here either.

    fitted  the roles of the fit; a column that this file lacks plays none
    given   what is named now, which comes first; target=False where no y is needed
    dtype   to read text in, "fp64" or "fp32": that of the coefficients
    """
    kind, base = format_of(path), base_for(path, fitted)
    fitted = {role: name for role, name in fitted.items() if role != "zero_based"}
    if kind in ("libsvm", "store") and given.get("target") is False:
        given = {role: name for role, name in given.items() if role != "target"}  # their y is always there
    if kind == "libsvm":
        return read(path, n_features=n_features, **base, **given)
    if kind not in ("csv", "parquet"):
        return read(path, **fitted | given)
    names = describe(path).columns or ()
    there = {role: name for role, name in fitted.items() if not isinstance(name, str) or name in names}
    roles = {"target": False} | there | given
    idle = tuple(name for name in there.values() if isinstance(name, str) and name not in roles.values())
    return read(path, **roles, exclude=idle, dtype=dtype)


def base_for(path: Any, fitted: Roles) -> Roles:
    """Where another file was LIBSVM before: this one counts its columns from the same number."""
    there = format_of(path) == "libsvm" and "zero_based" in fitted
    return {"zero_based": fitted["zero_based"]} if there else {}


def labels(table: Table) -> np.ndarray:
    """y of a table, as text where the file had text."""
    y = table.y.numpy()
    return y if table.classes is None else np.asarray(table.classes)[y]


def floats(values: torch.Tensor | None) -> np.ndarray | None:
    """A column of a table as an array."""
    return None if values is None else values.numpy()
