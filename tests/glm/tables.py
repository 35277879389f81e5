"""The tables the laws run over: small problems of every family, and every choice a solver offers.

`CASES` is a covering array: any two choices of different kinds meet in at least one case.
"""

import copy
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
import pytest
import scipy.sparse
import torch

from laconic.glm import (
    Columns,
    DenseColumns,
    Family,
    FitOptions,
    Problem,
    Progress,
    Solution,
    SparseColumns,
    State,
    solve,
)
from laconic.glm.families import ALL

M, N = 90, 6
"""Rows and columns of every problem."""
EPOCHS = 3

ALL_FAMILIES: dict[str, Family] = {
    family.name + "".join(f"{value:g}" for value in vars(family).values()): family
    for kind in ALL
    for family in kind.examples()
}
"""The registry's families, by name and parameter: gaussian, multinomial3, tweedie1.5."""
FAMILIES = {name: family for name, family in ALL_FAMILIES.items() if family.kernel_code is not None}
"""Those that compiled kernels know."""

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
"""Law 8: how far the iterates may lie apart, relatively."""
RECIPE = {torch.float64: "fp64", torch.float32: "fp32"}

CHOICES: dict[str, tuple] = {
    "family": tuple(FAMILIES),
    "schedule": ("constant", "invscaling", "cosine", "adaptive"),
    "layout": ("dense", "sparse", "strided"),
    "batch_size": (4, 1, 32),  # 90 rows: 4 and 32 leave a short last batch
    "order": ("shuffle", "cyclic", "replacement"),
    "average": (None, 0, 10),
    "momentum": (0.0, 0.9),
    "alpha": (0.0, 0.1),
    "weighted": (False, True),
    "offset": (False, True),
    "intercept": (True, False),
    "gradient": ("mean", "sum"),
}


@dataclass(frozen=True)
class Case:
    """One problem and one way to solve it."""

    family: str = "bernoulli"
    schedule: str = "constant"
    layout: str = "dense"
    batch_size: int = 4
    order: str = "shuffle"
    average: int | None = None
    momentum: float = 0.0
    alpha: float = 0.1
    weighted: bool = False
    offset: bool = False
    intercept: bool = True
    gradient: str = "mean"
    l1_ratio: float = 0.0

    def __str__(self) -> str:
        used = [name for name in ("weighted", "offset") if getattr(self, name)]
        used += [] if self.intercept else ["no intercept"]
        used += [f"momentum {self.momentum}"] if self.momentum else []
        used += [] if self.average is None else [f"average {self.average}"]
        words = (self.family, self.schedule, self.layout, f"b {self.batch_size}", self.order, self.gradient)
        return ", ".join([*words, f"alpha {self.alpha}", *used])

    def problem(self, dtype: torch.dtype = torch.float64, columns: slice = slice(None), **changes) -> Problem:
        """The problem, with its matrix stored as `dtype`, over some of the columns."""
        data = arrays(self.family)
        return Problem(
            **{
                "columns": stored(data["X"][:, columns], self.layout, dtype),
                "family": ALL_FAMILIES[self.family],
                "y": data["y"],
                "weights": data["weights"] if self.weighted else None,
                "offset": data["offset"] if self.offset else None,
            }
            | changes
        )

    def options(self, solver: str = "sgd", s: int = 16, dtype: torch.dtype = torch.float64, **changes) -> FitOptions:
        """How to solve it; step sizes are such that the loss falls whatever the other choices."""
        eta0 = (0.03 if self.batch_size == 1 else 0.1) * (0.2 if self.momentum else 1.0)
        options = FitOptions(
            solver=solver,
            s=s,
            sampling=self.order,
            batch_size=self.batch_size,
            seed=7,
            learning_rate=self.schedule,
            eta0=eta0 / (self.batch_size if self.gradient == "sum" else 1),
            alpha=self.alpha,
            l1_ratio=self.l1_ratio,
            fit_intercept=self.intercept,
            gradient=self.gradient,
            momentum=self.momentum,
            average=False if self.average is None else self.average * self.batch_size or True,  # in rows
            recipe=RECIPE[dtype],
            max_iter=EPOCHS,
            tol=1e-13 if self.schedule == "adaptive" else None,  # the step shrinks after an epoch that does not fall
            n_iter_no_change=1,
        )
        return replace(options, **changes)


def _covering() -> list[Case]:
    """Cases, chosen greedily, until each pair of choices of different kinds has met."""
    kinds = list(CHOICES)
    missing = {((a, x), (b, y)) for a, b in combinations(kinds, 2) for x, y in product(CHOICES[a], CHOICES[b])}
    cases = []
    while missing:
        chosen: dict = dict(min(missing, key=repr))
        for kind in kinds:
            if kind not in chosen:
                others = list(chosen.items())
                chosen[kind] = max(CHOICES[kind], key=lambda value: len(_pairs((kind, value), others) & missing))
        items = [(kind, chosen[kind]) for kind in kinds]
        missing -= {pair for item in items for pair in _pairs(item, items)}
        cases.append(Case(**chosen))
    return cases


def _pairs(item: tuple, others: list[tuple]) -> set[tuple]:
    kinds = list(CHOICES)
    return {
        (item, other) if kinds.index(item[0]) < kinds.index(other[0]) else (other, item)
        for other in others
        if other[0] != item[0]
    }


def arrays(family: str) -> dict[str, torch.Tensor]:
    """X (M, N), about half of it zeros and one row of nothing but zeros; y, weights (some 0) and offset (M,)."""
    g = torch.Generator().manual_seed(sum(map(ord, family)))
    X = torch.randn(M, N, generator=g, dtype=torch.float64) * (torch.rand(M, N, generator=g) < 0.6)
    X[11] = 0
    offset = 0.5 * torch.randn(M, generator=g, dtype=torch.float64)
    classes = ALL_FAMILIES[family].n_outputs
    z = X @ torch.randn(N, classes, generator=g, dtype=torch.float64) / 2
    y = ALL_FAMILIES[family].draw(z.clamp(max=2), g)
    weights = torch.rand(M, generator=g, dtype=torch.float64) * 2
    weights[::9] = 0
    return {"X": X, "y": y, "weights": weights, "offset": offset}


def stored(X: torch.Tensor, layout: str, dtype: torch.dtype) -> Columns:
    """A matrix as the solvers meet it; "strided" lies inside a larger one."""
    if layout == "sparse":
        return SparseColumns.of(scipy.sparse.csr_matrix(X.numpy()), dtype)
    if layout == "strided":
        around = torch.full((len(X), X.shape[1] + 3), torch.nan, dtype=dtype)
        around[:, 2:-1] = X
        return DenseColumns(around[:, 2:-1])
    return DenseColumns(X.to(dtype))


def plain(family: Family) -> Family:
    """The same family, unknown to the compiled kernels: plain torch all the way."""
    slow = copy.copy(family)
    slow.kernel_code = None
    return slow


def vectors(state: State) -> dict[str, torch.Tensor]:
    """Iterate, momentum and average, each (C, n + 1) with its intercept as last column; empty where not in use."""
    w, own = state.weights, state.weights.intercept
    pairs = {"x": (w.x, own.value), "momentum": (w.momentum, own.momentum), "average": (w.average, own.average)}
    return {
        name: torch.cat([x, intercept[:, None]], 1).clone() if len(x) else x.clone()
        for name, (x, intercept) in pairs.items()
    }


def fit(problem: Problem, how: FitOptions, **options) -> tuple[Solution, list[dict[str, torch.Tensor]]]:
    """The solution, and the vectors at the end of each epoch."""
    ends = []

    def keep(progress: Progress) -> None:
        if progress.fraction == 1:
            ends.append(vectors(progress.state))

    return solve(problem, how, callbacks=[keep], **options), ends


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """‖a − b‖ / ‖b‖, and 0 where both are empty or zero."""
    difference, size = float((a - b).norm()), float(b.norm())
    return difference / size if size else difference


def assert_same_iterates(ends: list[dict], expected: list[dict], tolerance: float) -> None:
    """At the end of every epoch, all vectors."""
    assert len(ends) == len(expected) > 0
    for epoch, (a, b) in enumerate(zip(ends, expected, strict=True)):
        for name, value in b.items():
            assert a[name].shape == value.shape
            assert distance(a[name], value) <= tolerance, (epoch, name, distance(a[name], value))


def assert_same_losses(history: list[dict], expected: list[dict], tolerance: float) -> None:
    """Every epoch's loss and objective, and the step sizes exactly."""
    assert len(history) == len(expected) > 0
    for a, b in zip(history, expected, strict=True):
        for name in ("loss", "objective"):
            assert abs(a[name] - b[name]) <= tolerance * abs(b[name])
        assert (a["epoch"], a["iteration"], a["eta"]) == (b["epoch"], b["iteration"], b["eta"])


def same_bits(a: State, b: State) -> bool:
    """Whether two states hold the same arrays and the same numbers; time aside."""
    x, y = a.tensors(), b.tensors()
    if any(x[name].dtype != y[name].dtype or not np.array_equal(x[name], y[name]) for name in x):
        return False
    return _timeless(a.numbers()) == _timeless(b.numbers())


def _timeless(numbers: dict) -> dict:
    history = [{name: value for name, value in row.items() if name != "seconds"} for row in numbers["history"]]
    return {name: value for name, value in numbers.items() if name != "seconds"} | {"history": history}


CASES = _covering()
EACH = {"argvalues": CASES, "ids": [str(case) for case in CASES]}
"""Keyword arguments of `pytest.mark.parametrize` that run a law over all cases."""


def in_turn(*kinds) -> list:
    """Each case with the first kind, and with every second of the others; all of them in `make test-all`."""
    return [
        pytest.param(case, kind, id=f"{case}-{kind}", marks=[pytest.mark.exhaustive] if j and (i + j) % 2 else [])
        for i, case in enumerate(CASES)
        for j, kind in enumerate(kinds)
    ]
