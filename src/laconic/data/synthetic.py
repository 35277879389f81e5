"""Synthetic problems of the published shapes with known coefficients, and the digits that come with scikit-learn.

Each rank can generate its own part of a synthetic problem: column j of rows 4096·b to 4096·b + 4095 is a random stream
of its own, Philox keyed by the problem and the seed, with j and b in its counter. So the numbers do not depend on the
block of columns, the number of ranks or the number of rows asked for.
"""

import zlib
from dataclasses import dataclass

import numpy as np
import torch

from laconic.data.table import Table, as_target, column_block, to_dtype
from laconic.errors import InvalidOption, Option
from laconic.extras import require

ROWS = 4096
"""Rows that share a random stream per column."""

_VALUES, _LABELS, _COEFFICIENTS = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ProblemShape:
    """Size and distribution of a synthetic problem.

    family   "logistic" (y is 0 or 1), "linear" or "poisson" (log link)
    spread   standard deviation of the margins
    noise    standard deviation of y about the margin (linear)
    """

    n_rows: int
    n_features: int
    family: str
    spread: float
    intercept: float
    noise: float = 0.0


SHAPES = {
    "epsilon": ProblemShape(400_000, 2000, "logistic", 2.0, 0.0),
    "susy": ProblemShape(5_000_000, 18, "logistic", 2.0, -0.2),
    "higgs": ProblemShape(11_000_000, 28, "logistic", 1.0, 0.1),
    "synth": ProblemShape(100_000, 1000, "linear", 1.0, 0.5, noise=0.1),
    "poisson-synth": ProblemShape(100_000, 1000, "poisson", 0.5, 0.5),
}
"""Rows and columns of epsilon, SUSY and HIGGS are those of the real data sets. The paper's summary gives none for synth
and Poisson-synth; 100,000 by 1000 is our choice."""


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticProblem:
    """A generated table and its true model.

    table      this rank's block of columns
    coef       (n_features,) float64, of the whole problem
    intercept  added to every margin
    family     as in `ProblemShape`
    """

    table: Table
    coef: torch.Tensor
    intercept: float
    family: str


def make(
    name: str,
    scale: float = 1.0,
    seed: int = 0,
    *,
    n_features: int | None = None,
    columns: tuple[int, int] | None = None,
    dtype: "str | torch.dtype" = "fp32",
) -> SyntheticProblem:
    """Generate a problem of `SHAPES`, or its first rows.

        X_ij ~ N(0, 1 / n),   coef_j ~ N(0, spread²),   margin_i = X_i · coef + intercept ~ N(intercept, spread²)

    so that rows have norm about 1, as epsilon's have, and step sizes carry over from shape to shape. y is drawn from
    the family at these margins.

    scale       fraction of the rows to generate, the first ones: a smaller scale is a prefix of a larger one
    n_features  another number of columns (and so another problem)
    columns     (first, last): keep only these columns of X; y does not depend on them. All columns are generated to
                draw y, 4096 rows at a time.

    >>> problem = make("epsilon", scale=1e-3, n_features=20, columns=(5, 15))
    >>> problem.table.X.shape, problem.coef.shape, problem.family
    (torch.Size([400, 10]), torch.Size([20]), 'logistic')
    >>> torch.equal(problem.table.X, make("epsilon", scale=1e-3, n_features=20).table.X[:, 5:15])
    True
    """
    if name not in SHAPES:
        raise ValueError(f"unknown problem {name!r}; choose one of {', '.join(SHAPES)}")
    shape, n = SHAPES[name], SHAPES[name].n_features if n_features is None else n_features
    if n < 1:
        raise InvalidOption("a problem needs at least one feature; got ", Option("n_features", n))
    if not 0 < scale <= 1:
        raise InvalidOption(Option("scale"), f" is the part of the rows to keep, above 0 and at most 1; got {scale}")
    n_rows, (first, last), key = max(1, round(shape.n_rows * scale)), column_block(columns, n), _key(name, n, seed)
    coef = shape.spread * _generator(key, 0, 0, _COEFFICIENTS).standard_normal(n)
    X, y = torch.empty(n_rows, last - first, dtype=to_dtype(dtype)), torch.empty(n_rows, dtype=torch.float64)
    for block in range(-(-n_rows // ROWS)):
        rows = slice(block * ROWS, min((block + 1) * ROWS, n_rows))
        kept, labels = _block(shape, key, coef, block, (first, last))
        X[rows], y[rows] = kept[: rows.stop - rows.start], labels[: rows.stop - rows.start]
    table = Table(X, as_target(y), columns=(first, last), n_features=n)
    return SyntheticProblem(table, torch.from_numpy(coef), shape.intercept, shape.family)


def _key(name: str, n: int, seed: int) -> list[int]:
    return [seed % 2**64, zlib.crc32(name.encode()) << 32 | n % 2**32]


def _generator(key: list[int], block: int, column: int, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64), counter=[0, column, block, purpose]))


def _block(
    shape: ProblemShape, key: list[int], coef: np.ndarray, block: int, columns: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """These columns of a block of rows, and its targets."""
    (first, last), unit = columns, np.float32(len(coef) ** -0.5)
    margins, kept = np.full(ROWS, shape.intercept), np.empty((last - first, ROWS), np.float32)
    for j, weight in enumerate(coef):
        values = unit * _generator(key, block, j, _VALUES).standard_normal(ROWS, dtype=np.float32)
        margins += weight * values
        if first <= j < last:
            kept[j - first] = values
    y = _labels(shape, margins, _generator(key, block, 0, _LABELS))
    return torch.from_numpy(kept).T, torch.from_numpy(y)


def _labels(shape: ProblemShape, margins: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """y in float64, drawn at these margins: one draw per row, in order."""
    if shape.family == "logistic":
        y = generator.random(len(margins)) < 1 / (1 + np.exp(-margins))
    elif shape.family == "linear":
        y = margins + shape.noise * generator.standard_normal(len(margins))
    else:
        y = generator.poisson(np.exp(margins))
    return np.asarray(y, np.float64)


def load_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Handwritten digits of 8 by 8 pixels: images (1797, 64) as float32 in [0, 1] and labels (1797,) as int64.

    >>> images, labels = load_digits()
    >>> tuple(images.shape), labels[:3].tolist()
    ((1797, 64), [0, 1, 2])
    """
    datasets = require("sklearn.datasets", for_="load_digits", extra="glm")
    images, labels = datasets.load_digits(return_X_y=True)
    return torch.from_numpy(images / 16.0).float(), torch.from_numpy(labels).long()
