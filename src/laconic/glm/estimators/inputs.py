"""What users pass, checked as scikit-learn does: matrices, targets, weights, offsets; or a file that holds them."""

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from sklearn.utils.validation import _check_sample_weight, assert_all_finite, column_or_1d, validate_data

from laconic.data import Source, Table, column_cuts, column_weights, describe, take_columns
from laconic.data.arrow import has_categories, is_frame, read_frame
from laconic.data.files import NAMED, as_source, format_of
from laconic.data.table import as_floats, check_finite
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm.columns import Columns, DenseColumns, MappedColumns, as_columns
from laconic.glm.model import inputs_of
from laconic.glm.options import FitOptions
from laconic.glm.precision import is_auto
from laconic.glm.problem import load
from laconic.glm.ranks import gather_array, repartition

Matrix = Any
"""(m, n): a tensor, or a SciPy matrix in CSR form; floating-point numbers, all finite."""
Given = tuple[Any, Any, Any, Any]
"""X, y, sample_weight and offset, as the user passed them."""
ROWS = ("replicated", "partitioned")

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

    def facts(self) -> dict[str, Any]:
        """What ranks compare, as JSON values."""
        kind = "dense" if isinstance(self.X, torch.Tensor | DenseColumns) else "sparse"
        facts: dict[str, Any] = {"n_features_in_": self.n_features}
        facts["X"] = f"{kind} {type_of(self.X)}"
        for name, values in (("y", self.y), ("sample_weight", self.sample_weight), ("offset", self.offset)):
            facts[f"{name} is None"], facts[name] = values is None, _digest(values)
        return facts


def read_inputs(
    estimator: Any, data: Given, rows: str, comm: Communicator, options: FitOptions, *, reset: bool, numeric: bool
) -> Inputs:
    """This rank's data, checked.

    reset    set number and names of the features on the estimator, instead of comparing with those there
    numeric  whether y must be numbers
    """
    if rows not in ROWS:
        raise ValueError(f"rows must be one of {', '.join(map(repr, ROWS))}, got {rows!r}")
    X, y, sample_weight, offset = data
    columns, n = None, None
    if is_path(X):
        table = _read_file(estimator, data, comm if rows == "replicated" else Communicator(), options, reset=reset)
        for note in table.notes:
            warnings.warn(note, stacklevel=5)
        X, columns, n = table.X, table.columns, table.n_features
        if table.mapped is not None and (rows == "replicated" or comm.whole.size == 1):
            X = MappedColumns(X, table.mapped)
        if y is None or is_name(y):
            y = table.y if table.classes is None else np.asarray(table.classes)[table.y.numpy()]
        sample_weight = table.sample_weight if sample_weight is None or is_name(sample_weight) else sample_weight
        offset = table.offset if offset is None or is_name(offset) else offset
    else:
        refuse_names(y=y, sample_weight=sample_weight, offset=offset)
        least = 0 if rows == "partitioned" and comm.size > 1 else 1
        wide = is_auto(options.recipe) or options.recipe == "fp64"
        X = check_matrix(estimator, X, reset=reset, wide=wide, least_rows=least)
    m, width = X.shape
    y = check_target(estimator, y, m, numeric=numeric)
    weights = check_weights(sample_weight, m)
    return Inputs(X, y, weights, check_offset(offset, m), columns, width if n is None else n)


def _read_file(estimator: Any, data: Given, comm: Communicator, options: FitOptions, *, reset: bool) -> Table:
    """This rank's columns of a file; sets or compares what the estimator knows of its columns."""
    y, source = data[1], source_of(*data)
    path = source.path
    if not reset and format_of(source) == "libsvm":
        zero_based = estimator._inputs.get("zero_based")
        source = replace(source, zero_based=zero_based, n_features=estimator.n_features_in_)
    elif not reset:
        source = replace(source, one_hot=estimator._inputs.get("one_hot") or source.one_hot)
    source = replace(source, target=False) if y is not None and not is_name(y) else source
    table = load(source, comm, options)
    if not reset:
        if table.n_features != estimator.n_features_in_:
            raise ValueError(f"{path} has {table.n_features} features, the model has {estimator.n_features_in_}")
        known = list(getattr(estimator, "feature_names_in_", ()))
        if known and table.feature_names is not None and list(table.feature_names) != known:
            at, (theirs, ours) = next(
                (j, both) for j, both in enumerate(zip(table.feature_names, known, strict=True)) if both[0] != both[1]
            )
            what = f"feature {at + 1} of {path} is {theirs!r} where the model has {ours!r}"
            raise ValueError(f"{what}: give the columns their names and order of the first fit")
        return table
    estimator._inputs, estimator.n_features_in_ = inputs_of(source, table), table.n_features
    if table.feature_names is not None:
        estimator.feature_names_in_ = np.asarray(table.feature_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return table


def source_of(path: Any, y: Any, sample_weight: Any, offset: Any) -> Source:
    """The file, and the names or numbers among what was given for y, weights and offset."""
    source = as_source(path, {})
    columns = describe(source).columns or () if format_of(source) in NAMED else ()
    given = {"target": y, "sample_weight": sample_weight, "offset": offset}
    if isinstance(offset, Exposure):
        given |= {"offset": None, "exposure": offset.column}
    named: dict[str, Any] = {name: value for name, value in given.items() if is_name(value)}
    for name, value in named.items():
        named[name] = columns[value] if isinstance(value, int) and columns else str(value)
    return replace(source, **named)


def distribute(
    local: Inputs, row_counts: Sequence[int], rows: str, data_format: str, comm: Communicator
) -> tuple[Any, int, Inputs]:
    """This rank's block of the columns, the number of its first, and everything else of all rows.

    Rows that come from other ranks are those of this rank's team only: every R-th of R teams.

    row_counts   rows that each rank was given
    data_format  to store rows in that are sent to other ranks
    """
    X, rank = local.X, comm.rank
    dense = isinstance(X, torch.Tensor)
    if rows == "partitioned" and comm.whole.size > 1:
        whole, teams = comm.whole, comm.peers.size
        weights = torch.from_numpy(column_weights(X).astype(np.int64))
        if not dense:  # entries in each column of all ranks' rows
            whole.all_reduce(weights)()
        cuts = column_cuts(int(X.shape[1]) if dense else weights.numpy(), comm.size)
        firsts = np.cumsum([0, *row_counts])
        shares = [X[(t - firsts[whole.rank]) % teams :: teams] if teams > 1 else X for t in range(teams)]
        blocks = [as_columns(take_columns(share, a, b), data_format) for share in shares for a, b in pairwise(cuts)]
        own = [len(range((comm.peers.rank - a) % teams, b - a, teams)) for a, b in pairwise(firsts.tolist())]
        return repartition(blocks, own, whole), cuts[rank], _join_rows(local, whole)
    if local.columns is not None:
        return X, local.columns[0], local
    cuts = column_cuts(local.n_features if dense or comm.size == 1 else column_weights(X), comm.size)
    return X if comm.size == 1 else take_columns(X, cuts[rank], cuts[rank + 1]), cuts[rank], local


def _join_rows(local: Inputs, comm: Communicator) -> Inputs:
    """Targets, weights and offsets of all ranks' rows, in the order of ranks, on every rank."""

    def joined(values: np.ndarray | None) -> Any:
        if values is None:
            return None
        filled = [part for part in gather_array(values, comm) if len(part)]
        if not filled:
            raise ValueError("Found array with 0 sample(s): no rank has any row")
        return np.concatenate(filled)

    y = local.y
    if y.dtype == object:  # Python objects do not go over the wire
        if not all(isinstance(label, str) for label in y):
            raise TypeError('labels must be numbers or text to be gathered from all ranks (rows="partitioned")')
        y = y.astype(str)
    return replace(local, y=joined(y), sample_weight=joined(local.sample_weight), offset=joined(local.offset))


def type_of(X: Any) -> torch.dtype:
    """The number type of a tensor, of `Columns` or of a SciPy matrix."""
    if isinstance(X, torch.Tensor | Columns):
        return X.dtype
    return torch.float64 if X.dtype == np.float64 else torch.float32


def _digest(array: np.ndarray | None) -> str | None:
    """A short name for the contents of an array of numbers or text."""
    if array is None:
        return None
    plain = array.astype(str) if array.dtype == object else array
    return hashlib.blake2b(np.ascontiguousarray(plain).tobytes(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Exposure:
    """A column of a file, by name or number, whose logarithm is the offset."""

    column: str | int


def as_margin(offset: Any, exposure: Any) -> Any:
    """The offset, or the logarithm of the exposure: of values, or of a column of a file."""
    if exposure is None:
        return offset
    if offset is not None:
        raise InvalidOption("give ", Option("offset"), " or ", Option("exposure"), ", not both: one is the other's log")
    if is_name(exposure):
        return Exposure(exposure)
    return as_floats(np.asarray(as_numpy(exposure), dtype=np.float64), "exposure", part="exposure").numpy()


def is_name(given: Any) -> bool:
    """Whether something stands for a column of a file: its name or number."""
    return isinstance(given, (str, int, Exposure))


def is_path(X: Any) -> bool:
    """Whether X names a file."""
    return isinstance(X, (str, os.PathLike, Source))


def refuse_names(**given: Any) -> None:
    """Only files have columns that can be named."""
    for name, value in given.items():
        if isinstance(value, (str, Exposure)):
            raise TypeError(f"{name}={value!r} names a column, and X is no file; pass the values, or a path as X")


def check_matrix(estimator: Any, X: Any, *, reset: bool, wide: bool = True, least_rows: int = 1) -> Matrix:
    """X as a matrix; its number of columns and their names are set on the estimator, or compared with those there.

    reset  set them
    wide   whether integers become float64; float32 otherwise
    """
    one_hot = {} if reset else estimator._inputs.get("one_hot", {})
    if is_frame(X) and (one_hot or has_categories(X)):
        return _check_frame(estimator, X, one_hot, reset=reset, wide=wide)
    if reset:
        estimator._inputs = {}
    if isinstance(X, torch.Tensor):
        return _check_tensor(estimator, X, reset=reset, least_rows=least_rows)
    if reset and _is_plain(X):  # the same checks, without those of what else X could be
        estimator.n_features_in_ = X.shape[1]
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
        return as_tensor(X)
    kinds = [np.float64, np.float32] if wide else [np.float32, np.float64]
    X = validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=kinds, ensure_min_samples=least_rows)
    if isinstance(X, np.ndarray):
        return as_tensor(X)
    if not X.has_canonical_format:
        X = X.copy()  # the caller's matrix stays as it is
        X.sum_duplicates()
    return X


def _is_plain(X: Any) -> bool:
    """Whether X is an array of finite numbers that are stored as they are computed with, and has rows and columns."""
    if type(X) is not np.ndarray or X.dtype not in (np.float64, np.float32) or X.ndim != 2 or not X.size:
        return False
    with np.errstate(all="ignore"):
        return bool(np.isfinite(X.sum()))


def _check_frame(
    estimator: Any, X: Any, one_hot: Mapping[str, Sequence[str]], *, reset: bool, wide: bool
) -> torch.Tensor:
    """X of a data frame with columns of categories: one column for each, the same as when the model was fitted."""
    names = None if reset else getattr(estimator, "feature_names_in_", None)
    table = read_frame(X, one_hot, names, "fp64" if wide else "fp32")
    if reset:
        own = {column: list(known) for column, known in table.one_hot.items()}
        estimator._inputs, estimator.n_features_in_ = {"one_hot": own}, table.n_features
        estimator.feature_names_in_ = np.asarray(table.feature_names, dtype=object)
    elif table.n_features != estimator.n_features_in_:
        raise ValueError(f"X has {table.n_features} features, the model has {estimator.n_features_in_}")
    return cast(torch.Tensor, table.X)


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
    y = as_numpy(y)
    y = y if type(y) is np.ndarray and y.ndim == 1 else column_or_1d(y, warn=True)
    if numeric:
        y = np.asarray(y, dtype=np.float64)
    if n_rows and not (y.dtype == np.float64 and np.isfinite(y).all()):
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
        raise ValueError(f"sample_weight is {w[row]:g} in row {row + 1}; a weight cannot be negative")
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
        raise ValueError(f"offset is {offset[row]} in row {row + 1}; log(exposure) needs exposures that are positive")
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


def as_tensor(X: np.ndarray) -> torch.Tensor:
    """A view of an array, which may be read-only: nothing here writes to it."""
    if any(step < 0 or step % X.itemsize for step in X.strides) or not X.dtype.isnative:
        X = np.ascontiguousarray(X, dtype=X.dtype.newbyteorder("="))
    if X.flags.writeable:
        return torch.from_numpy(X)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(X)
