"""Rows as a fit takes them: this rank's columns, and targets, weights and offsets of all rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from laconic.data import BadTable, Table
from laconic.errors import InvalidOption, Option
from laconic.glm.columns import Columns, DenseColumns, SparseColumns
from laconic.glm.families import FAMILIES, Family, family_named
from laconic.glm.model import Label
from laconic.glm.options import FitOptions
from laconic.kernels.formats import FORMATS, format_named

CHUNK = 1 << 16
"""Targets per chunk, so that no copy of all of them is made."""
MANY = 1000
"""More classes than anyone means."""


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """What a rank brings to a fit; all but X and `columns` is the same on every rank.

    X           (m, n_p) tensor, SciPy matrix in CSR form, or `Columns`: this rank's block of the columns
    y           (m,) as the family takes it: class numbers, counts, amounts
    weights     (m,) not negative, or None for ones; only their proportions count
    offset      (m,) or (m, C) added to the margins, or None
    classes     what the numbers in y stand for, where the family classifies
    columns     (first, last) of this rank, among
    n_features  columns in all
    train       rows to train on (int64); None for all
    validation  rows held back; None for none
    """

    X: Any
    y: torch.Tensor
    family: Family
    weights: torch.Tensor | None
    offset: torch.Tensor | None
    classes: tuple[Label, ...] | None
    columns: tuple[int, int]
    n_features: int
    train: np.ndarray | None = None
    validation: np.ndarray | None = None

    @classmethod
    def of_table(cls, table: Table, options: FitOptions) -> "Data":
        """From a file's table; the family is the one asked for, or found from the targets."""
        asked = options.family
        classifies = asked is None or FAMILIES[asked].classifies
        values = distinct(table.y, table.classes) if classifies or table.classes else None
        name = choose_family(asked, values)
        family, classes, y = family_named(name, len(values or (0, 1)), options.family_options), None, table.y
        if family.classifies and values is not None:
            classes, y = values, codes(table.y, table.classes, values)
        return cls(table.X, y, family, table.sample_weight, table.offset, classes, table.columns, table.n_features)


def as_columns(X: Any, data_format: str) -> Columns:
    """X as it is where the wanted format holds every value of its own; otherwise rounded to that, in one copy."""
    if isinstance(X, Columns):
        return X
    wanted = format_named(data_format)
    if not isinstance(X, torch.Tensor):
        return SparseColumns.of(X, wanted.storage)
    own = next(f for f in FORMATS.values() if f.dtype == X.dtype)
    if wanted.holds(own) and (X.shape[1] <= 1 or X.stride(1) == 1):
        return DenseColumns(X)
    storage = X.dtype if wanted.holds(own) else wanted.storage
    return DenseColumns(X.to(storage, copy=True, memory_format=torch.contiguous_format))


def type_of(X: Any) -> torch.dtype:
    """The number type of a tensor or of a SciPy matrix."""
    if isinstance(X, torch.Tensor):
        return X.dtype
    return torch.float64 if X.dtype == np.float64 else torch.float32


def mean_one(weights: torch.Tensor | None, train: np.ndarray | None) -> torch.Tensor | None:
    """Weights divided by their mean over the rows trained on: what counts is how they compare.

    Then a row of weight 2 is a row given twice, and alpha means the same whatever the weights' scale.
    """
    if weights is None:
        return None
    mean = float(weights.mean() if train is None else weights[torch.from_numpy(train)].mean())
    if mean == 0:
        raise InvalidOption(
            Option("sample_weight"), " is zero in every row to train on; at least one weight must be positive"
        )
    return weights / mean


def choose_family(asked: str | None, values: "tuple[Label, ...] | None") -> str:
    """The family that was asked for; logistic where y has two values; raises `BadTable`, with what to type, for none.

    values  distinct values of y in order; None where there are too many to be classes

    >>> choose_family(None, (-1, 1)), choose_family("poisson", None)
    ('logistic', 'poisson')
    """
    n = None if values is None else len(values)
    text = values is not None and isinstance(values[0], str)
    count = f"more than {MANY}" if n is None else n
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
        place = {label: j for j, label in enumerate(classes)}
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
