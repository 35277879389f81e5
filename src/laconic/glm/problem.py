"""What is fitted to: rows of a file or of arrays as a `Problem`, checked, stored and placed as a fit wants them."""

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch

from laconic.data import (
    BadTable,
    Source,
    Table,
    collect,
    column_cuts,
    column_weights,
    describe,
    read,
    scan_libsvm,
    stored,
    take_columns,
)
from laconic.data.files import NAMED
from laconic.data.read import check_source
from laconic.data.table import DTYPES
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm.columns import Columns, DenseColumns, MappedColumns, SparseColumns, as_columns, placed
from laconic.glm.families import FAMILIES, Family
from laconic.glm.options import FitOptions
from laconic.glm.precision import AUTO, Precision, is_auto, precision_for
from laconic.glm.rows import SparseRows
from laconic.glm.scaling import Scaling, scaling_for
from laconic.kernels.formats import FORMATS

Label = str | int | float
CHUNK = 1 << 16
"""Targets per chunk, so that no copy of all of them is made."""
ALONE = Communicator()
MANY = 1000
"""More classes than anyone means."""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """(1/m) Σ w_i φ(a_i·x + b + offset_i, y_i), over a rank's columns; all but the columns is the same on every rank.

    Targets, weights and offset are moved to where the columns' arithmetic is done.

    columns      A_p, this rank's block of the columns
    family       φ
    y            (m,) targets as the family takes them: class numbers, counts, amounts
    weights      (m,) not negative, or None for ones
    offset       (m,) or (m, C) added to the margins, or None
    rows         rows to train on (int64); None for all
    validation   rows held back for early stopping; None for none
    mean_weight  what weights are divided by
    classes      what the numbers in y stand for, where the family classifies
    first        number of this rank's first column among
    n_features   columns in all; by default this rank's are all
    scaling      of the columns, if they were scaled
    epoch_rows   rows of an epoch, where teams of ranks do not have as many each: the fewest; by default all
    n_train      rows to train on
    known_null   the null model, once it is known
    """

    columns: Columns
    family: Family
    y: torch.Tensor
    weights: torch.Tensor | None = None
    offset: torch.Tensor | None = None
    rows: np.ndarray | None = None
    validation: np.ndarray | None = None
    mean_weight: float = 1.0
    classes: tuple[Label, ...] | None = None
    first: int = 0
    n_features: int = -1
    scaling: Scaling | None = None
    epoch_rows: int | None = None
    n_train: int = field(init=False)
    known_null: list[torch.Tensor] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        m = self.columns.m
        object.__setattr__(self, "n_train", m if self.rows is None else len(self.rows))
        for name in ("y", "weights", "offset"):
            value = getattr(self, name)
            if value is not None and len(value) != m:
                raise ValueError(f"{name} has {len(value)} entries, but X has {m} rows")
            object.__setattr__(self, name, None if value is None else value.to(self.columns.device))
        if self.weights is not None and bool((self.weights < 0).any() | ~torch.isfinite(self.weights).all()):
            raise ValueError("weights must be finite and not negative")
        if self.offset is not None and not bool(torch.isfinite(self.offset).all()):
            raise ValueError("offset must be finite; exposures of 0 have no logarithm")
        for name, rows in (("rows", self.rows), ("validation", self.validation)):
            if rows is not None and len(rows) and not (int(rows.min()) >= 0 and int(rows.max()) < m):
                raise ValueError(f"{name} must lie between 0 and {m - 1}, but go from {rows.min()} to {rows.max()}")
        if self.validation is not None and not bool(self.weights_as(torch.float64)[self.validation].any()):
            raise ValueError("validation: the rows held back are none, or all of weight 0")
        self.family.check(self.y)
        if self.n_features < 0:
            object.__setattr__(self, "n_features", self.columns.n)

    @property
    def n_rows(self) -> int:
        """Rows of an epoch."""
        return self.n_train if self.epoch_rows is None else self.epoch_rows

    def cast(self, dtype: torch.dtype, epoch_rows: int | None = None) -> "Problem":
        """The same problem with targets, weights and offsets in the type that the arithmetic is done in."""
        new = copy(self)  # what was checked need not be checked again
        object.__setattr__(new, "y", self.y.to(dtype))
        object.__setattr__(new, "weights", None if self.weights is None else self.weights_as(dtype))
        object.__setattr__(new, "offset", None if self.offset is None else self.offset_as(dtype))
        object.__setattr__(new, "mean_weight", 1.0)
        object.__setattr__(new, "epoch_rows", epoch_rows)
        return new

    @property
    def null(self) -> torch.Tensor:
        """The null model of the rows to train on, (C,) float64: `Family.null`, computed once."""
        if not self.known_null:
            rows = slice(None) if self.rows is None else torch.from_numpy(self.rows)
            y, w = self.y[rows].double(), self.weights_as(torch.float64)[rows]
            offset = None if self.offset is None else self.offset_as(torch.float64)[rows]
            self.known_null.append(self.family.null(y, w, offset))
        return self.known_null[0]

    def weights_as(self, dtype: torch.dtype) -> torch.Tensor:
        """Weights (m,) over their mean, ones where none were given."""
        if self.weights is None:
            return torch.ones(1, dtype=dtype, device=self.y.device).expand(self.columns.m)
        return (self.weights if self.mean_weight == 1 else self.weights / self.mean_weight).to(dtype)

    def offset_as(self, dtype: torch.dtype) -> torch.Tensor:
        """Offsets (m, C), or (0, C) where none were given."""
        n_outputs = self.family.n_outputs
        if self.offset is None:
            return torch.zeros(0, n_outputs, dtype=dtype, device=self.y.device)
        return self.offset.to(dtype).reshape(self.columns.m, -1).expand(-1, n_outputs).contiguous()

    def taken(self, kept: np.ndarray) -> "Problem":
        """Of some of the rows to train on; those of a dense X are copied."""
        rows = kept if self.rows is None else self.rows[kept]
        if not isinstance(self.columns, DenseColumns):
            return replace(self, rows=rows)
        Y, index = self.columns.take(rows, self.columns.dtype).Y, torch.from_numpy(rows)
        own = {name: getattr(self, name) for name in ("y", "weights", "offset")}
        parts: dict[str, Any] = {name: None if t is None else t[index.to(t.device)] for name, t in own.items()}
        return replace(self, columns=DenseColumns(Y), rows=None, validation=None, **parts)

    def stored_as(self, precision: Precision) -> "Problem":
        """The problem with X stored as a recipe says."""
        return replace(self, columns=self.columns.stored(precision.format("data").storage))


def make_problem(
    options: FitOptions,
    X: Any,
    family: Family,
    y: torch.Tensor,
    weights: torch.Tensor | None,
    *,
    comm: Communicator = ALONE,
    part: bool = False,
    **more: Any,
) -> Problem:
    """The problem of a fit: columns scaled if they are to be, stored as the recipe begins with, where the device is.

    X        (m, n_p) tensor, SciPy matrix in CSR form, or `Columns`: this rank's block of the columns, and all rows;
             `Columns` of one of several teams of ranks have the rows of that team, and are not scaled
    comm     the ranks, or this rank's team of them; all call this
    part     these are a part of the rows there will be: their weights are taken as they are, and columns are scaled
             only if that is asked for. Otherwise only the weights' proportions count, so that a row of weight 2 is a
             row given twice, and alpha means the same for any scale
    more     further fields of `Problem`
    """
    columns, teams, mean, scaling = as_columns(X), comm.peers.size, 1.0, None
    data_format = precision_for(options.recipe, columns.dtype).data
    if weights is not None and not part:
        rows = more.get("rows")
        mean = float(weights.mean() if rows is None else weights[torch.from_numpy(rows)].mean())
        if mean == 0:
            what = " is zero in every row to train on; at least one weight must be positive"
            raise InvalidOption(Option("sample_weight"), what)
    whole = teams == 1 or not isinstance(X, Columns)
    if whole and (options.standardize is True or not part):
        scaling = scaling_for(columns, options, comm, more.get("first", 0), more.get("n_features", columns.n), weights)
    if scaling is not None:
        columns = scaling.apply(columns, FORMATS[data_format].storage)
    if teams > 1:
        columns = _every(columns, comm.peers.rank, teams) if whole else columns
        y, weights, more = _rows_of_team(comm.peers, y, weights, more)
    columns = as_columns(columns, data_format)
    columns = columns if options.device is None else placed(columns, options.device, comm.size)
    return Problem(columns, family, y, weights, mean_weight=mean, scaling=scaling, **more)


def _every(columns: Columns, first: int, step: int) -> Columns:
    """Every R-th row of some columns."""
    if isinstance(columns, DenseColumns):
        return DenseColumns(columns.X[first::step].contiguous())
    rows = columns.take(np.arange(first, columns.m, step), columns.dtype)
    return SparseColumns(*cast(SparseRows, rows).matrix, columns.n)


def _rows_of_team(
    peers: Communicator, y: torch.Tensor, weights: torch.Tensor | None, more: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor | None, dict[str, Any]]:
    """Every R-th row, from the number of the team on, of all that has rows; row numbers as they are among these."""
    team, teams, offset = peers.rank, peers.size, more.get("offset")
    for name in ("rows", "validation"):
        numbers = more.get(name)
        used = np.arange(len(y)) if numbers is None and name == "rows" else numbers
        if used is not None and not np.bincount(used % teams, minlength=teams).all():
            what = " do not have a row each to train on, and to hold back; lower "
            raise InvalidOption(Option("teams", teams), what, Option("teams"))
        more = more if numbers is None else more | {name: numbers[numbers % teams == team] // teams}
    more = more if offset is None else more | {"offset": offset[team::teams]}
    return y[team::teams], None if weights is None else weights[team::teams], more


def load(source: Source, comm: Communicator, options: FitOptions) -> Table:
    """This rank's columns of the file, if something can be fitted to them.

    Text and Parquet are read as the recipe has it; files with a type of their own keep that. X stays mapped where
    memory may not hold it, but for a GPU and for several teams of ranks, which have copies of their rows.
    """
    looked_for = is_auto(options.recipe) and options.recipe != AUTO  # a recipe, on the data as it is
    dtype = precision_for(options.recipe, torch.float64 if looked_for else torch.float32).data
    kind, dtype, table = check_source(source, once=comm.whole.size == 1), dtype if dtype in DTYPES else "fp32", None
    if kind in NAMED:
        rows = stored(source, dtype)
        if isinstance(rows, Source):
            source, kind = rows, "store"
        elif comm.size == 1:
            table = collect(rows)
    if table is None:
        columns = None if comm.size == 1 else _columns(source, kind, comm)
        table = read(source, columns=columns, dtype=dtype if kind in NAMED or source.dense else None)
        if comm.size > 1 and table.is_sparse and kind != "libsvm":
            cuts = column_cuts(column_weights(table.X), comm.size)
            first, last = cuts[comm.rank], cuts[comm.rank + 1]
            table = replace(table, X=take_columns(table.X, first, last), columns=(first, last))
    if table.mapped is not None:
        on_gpu = options.device not in (None, "cpu") and torch.cuda.is_available()
        small = table.X.numel() * table.X.element_size() <= source.limits.memory_bytes
        table = replace(table, mapped=None) if small or on_gpu or comm.peers.size > 1 else table
    m, n = len(table.y), table.n_features
    if m == 0 or n == 0:
        raise BadTable(f"{source.path} has {m} rows and {n} features; nothing can be fitted")
    if source.target is not False and bool(table.y[:1].isnan().all()):
        raise BadTable(f"{source.path} has no target; convert it again with one")
    return table


def _columns(source: Source, kind: str, comm: Communicator) -> tuple[int, int] | None:
    """The columns of one of several ranks; None where all of them have to be read."""
    if kind == "libsvm":
        scan = scan_libsvm(source, count_columns=True)
        n = scan.n_features if source.n_features is None else source.n_features
        counts = scan.column_counts
        if source.dense or counts is None:
            cuts = column_cuts(n, comm.size)
        else:
            cuts = [*column_cuts(counts, comm.size)[:-1], n]
    elif kind == "store" and describe(source.path).is_sparse:
        return None
    else:
        cuts = column_cuts(read(source, columns=(0, 0)).n_features, comm.size)
    return cuts[comm.rank], cuts[comm.rank + 1]


def problem_of(table: Table, options: FitOptions, comm: Communicator = ALONE) -> Problem:
    """The problem of a file's table, with the family asked for, or found from the targets. All ranks call this."""
    asked = options.family
    if table.classes is not None and len(table.classes) > MANY:
        what = f"y is text with {len(table.classes):,} different values, such as {table.classes[0]!r}: at most {MANY} "
        raise BadTable(f"{what}can be classes, and numbers are written with a point, as 1.5")
    classifies = asked is None or FAMILIES[asked].classifies
    values = distinct(table.y, table.classes) if classifies or table.classes else None
    kind = FAMILIES[choose_family(asked, values)]
    family = kind.of(len(values or (0, 1)), options.of_family)
    classes = values if family.classifies else None
    y = table.y if classes is None else codes(table.y, table.classes, classes)
    more: dict[str, Any] = {"first": table.columns[0], "n_features": table.n_features}
    more |= {"offset": table.offset, "classes": classes}
    X = table.X if table.mapped is None else MappedColumns(table.X, table.mapped)
    return make_problem(options, X, family, y, table.sample_weight, comm=comm, **more)


def choose_family(asked: str | None, values: "tuple[Label, ...] | None") -> str:
    """The family that was asked for; logistic where y has two values; raises `BadTable`, with what to type, for none.

    values  distinct values of y in order; None where there are too many to be classes

    >>> choose_family(None, (-1, 1)), choose_family("poisson", None)
    ('logistic', 'poisson')
    """
    n = None if values is None else len(values)
    text = values is not None and isinstance(values[0], str)
    count = f"more than {MANY}" if n is None else n
    if asked is None and text and n == 1:
        raise BadTable(f"y has 1 distinct value, {_some(values or ())}: there is nothing to tell apart")
    if asked is None:
        if n == 2 or text:
            return "logistic" if n == 2 else "multinomial"
        numeric = ", ".join(name for name, family in FAMILIES.items() if not family.classifies)
        what = f"y has {count} distinct value{'' if n == 1 else 's'}: give "
        raise BadTable(what, Option("family", ...), f", one of {numeric} (numbers) or multinomial (classes)")
    if not FAMILIES[asked].classifies:
        if values is not None and text:
            raise BadTable(f"{asked}: y is text ({_some(values)}), not numbers")
        return asked
    if values is None or len(values) < 2:
        raise BadTable(f"{asked}: y has {count} distinct value{'' if n == 1 else 's'}, which are no classes")
    if asked == "logistic" and n != 2:
        what = f"logistic: y has {n} classes ({_some(values)}); use "
        raise BadTable(what, Option("family", "multinomial"))
    return asked


def distinct(y: torch.Tensor, classes: "tuple[str, ...] | None") -> "tuple[Label, ...] | None":
    """The values of y in order, or None where they are more than `MANY`; codes of text are that text."""
    if classes is not None:
        return tuple(classes)
    found: set[Label] = set()
    for first in range(0, len(y), CHUNK):
        found.update(torch.unique(y[first : first + CHUNK]).tolist())
        if len(found) > MANY:
            return None
    return tuple(sorted(found))


def codes(
    y: torch.Tensor,
    labels: "tuple[str, ...] | None",
    classes: tuple[Label, ...],
    first_row: int = 0,
    *,
    strict: bool = True,
) -> torch.Tensor:
    """Each label's number among the classes (float32).

    labels     what the codes in y stand for, where the file has text
    first_row  the number of y[0] in the file, counted from 0
    strict     raise `BadTable` for a label that is no class; otherwise its number is −1

    >>> codes(torch.tensor([1, -1, 1]), None, (-1, 1))
    tensor([1., 0., 1.])
    """
    if labels is not None:
        place = {str(label): j for j, label in enumerate(classes)}
        unknown = [label for label in labels if label not in place]
        if unknown and strict:
            raise BadTable(f"label {unknown[0]!r} is not one of the model's classes: {_some(classes)}")
        return torch.tensor([place.get(label, -1) for label in labels], dtype=torch.float32)[y.long()]
    if isinstance(classes[0], str):
        raise BadTable(f"labels are numbers, and the model's classes are text: {_some(classes)}")
    known = torch.tensor(classes, dtype=torch.float64)
    result = torch.empty(len(y), dtype=torch.float32)
    for first in range(0, len(y), CHUNK):
        part = y[first : first + CHUNK].double()
        found = torch.searchsorted(known, part).clamp(max=len(known) - 1)
        wrong = known[found] != part
        if strict and bool(wrong.any()):
            row = int(wrong.int().argmax())
            raise BadTable(
                f"label {part[row].item():g} in row {first_row + first + row + 1} is not one of the model's classes: "
                f"{_some(classes)}"
            )
        result[first : first + CHUNK] = torch.where(wrong, -1, found).float()
    return result


def _some(values: tuple[Label, ...]) -> str:
    return ", ".join(map(str, values[:8])) + (", ..." if len(values) > 8 else "")
