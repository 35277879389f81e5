"""Rows for the suite `glm`: a synthetic problem of a published shape, or a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from laconic.bench.suite import check_names
from laconic.data import SHAPES, BadTable, column_cuts, make
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm import Bernoulli, Columns, DenseColumns, Problem, SparseColumns
from laconic.glm.data import Data
from laconic.glm.families import FAMILIES, family_named
from laconic.glm.fit import prepare
from laconic.glm.options import FitOptions
from laconic.glm.source import Source
from laconic.glm.source import load as load_table


@dataclass(frozen=True, slots=True)
class Given:
    """Where rows come from, as JSON values.

    name         of the problem: one of `data.SHAPES`, or of a file whatever it is to be called
    scale        part of the rows of a synthetic problem
    source       the file; None for a synthetic problem
    family       of a file's target; None to choose
    positive     the class that counts as 1, where a file's target has more than two
    standardize  scale a file's columns to mean 0 and variance 1
    """

    name: str
    scale: float = 1.0
    source: Source | None = None
    family: str | None = None
    positive: str | None = None
    standardize: bool = False

    def __post_init__(self) -> None:
        if self.family is not None:
            check_names([self.family], tuple(FAMILIES), "family")
        if self.source is None:
            check_names([self.name], tuple(SHAPES), "problem")
            if not 0 < self.scale <= 1:
                raise InvalidOption(
                    Option("scale"), f" is the part of the rows to keep, above 0 and at most 1; got {self.scale:g}"
                )
        elif self.positive is not None and self.family not in (None, "logistic"):
            raise InvalidOption(Option("positive"), " is for ", Option("family", "logistic"), f", not {self.family}")

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Given":
        """The inverse of `dataclasses.asdict`."""
        source = values["source"]
        return cls(**{**values, "source": None if source is None else Source(**source)})


def load(given: Given, comm: Communicator) -> tuple[Problem, int]:
    """This rank's columns of the rows in float32, and how many columns there are on all ranks.

    >>> problem, n_features = load(Given("susy", scale=1e-5), Communicator())
    >>> problem.columns.m, n_features, problem.family.name
    (50, 18, 'bernoulli')
    """
    if given.source is not None:
        return _from_file(given, given.source, comm)
    n = SHAPES[given.name].n_features
    cuts = column_cuts(n, comm.size)
    made = make(given.name, given.scale, columns=(cuts[comm.rank], cuts[comm.rank + 1]))
    return Problem(DenseColumns(made.table.X), family_named(made.family), made.table.y.float()), n


def stored(columns: Columns, dtype: torch.dtype) -> Columns:
    """The same columns, their values kept as `dtype`."""
    if isinstance(columns, SparseColumns):
        values, indices, begins = columns.matrix
        return SparseColumns(values.to(dtype), indices, begins, columns.n)
    if isinstance(columns, DenseColumns):
        return DenseColumns(columns.X.to(dtype))
    raise TypeError(f"expected dense or sparse columns, got {type(columns).__name__}")


@dataclass(slots=True)
class Copies:
    """A problem with its columns in each type that recipes store them in, made once.

    >>> susy = Copies(load(Given("susy", scale=1e-5), Communicator())[0])
    >>> susy.stored_as(torch.bfloat16).columns is susy.stored_as(torch.bfloat16).columns
    True
    """

    problem: Problem
    made: dict[torch.dtype, Columns] = field(default_factory=dict)

    def stored_as(self, dtype: torch.dtype) -> Problem:
        """The same problem; its rows in float32 are those that were given."""
        if dtype not in self.made:
            given = self.problem.columns
            self.made[dtype] = given if dtype == torch.float32 else stored(given, dtype)
        return replace(self.problem, columns=self.made[dtype])


def _from_file(given: Given, source: Source, comm: Communicator) -> tuple[Problem, int]:
    family = given.family if given.positive is None else "multinomial"
    options = FitOptions(family=family, standardize=given.standardize, recipe="fp32")
    found = prepare(options, Data.of_table(load_table(source, comm, "fp32"), options), comm)
    if given.positive is None:
        return found.problem, found.n_features
    names = [str(label) for label in found.classes or ()]
    if given.positive not in names:
        raise BadTable(f"{source.path}: no class is {given.positive!r}; there are {', '.join(names[:8])}")
    y = (found.problem.y == names.index(given.positive)).float()
    return replace(found.problem, family=Bernoulli(), y=y), found.n_features
