"""Made problems: the same numbers for every rank, and what the family says of them."""

import math
from itertools import pairwise

import pytest
import torch

from laconic.data import SHAPES, column_cuts, make
from laconic.data.synthetic import ROWS

N = 12


def small(name, **options):
    rows = options.pop("rows", 2 * ROWS + 100)
    return make(name, scale=rows / SHAPES[name].n_rows, n_features=N, **options)


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 5, 13])
@pytest.mark.parametrize("name", SHAPES)
def test_every_rank_makes_its_part_of_the_same(name, n_ranks):
    whole, cuts = small(name, rows=300), column_cuts(N, n_ranks)
    parts = [small(name, rows=300, columns=block) for block in pairwise(cuts)]
    assert torch.equal(torch.cat([part.table.X for part in parts], dim=1), whole.table.X)
    for part in parts:
        assert torch.equal(part.table.y, whole.table.y)
        assert torch.equal(part.coef, whole.coef)


@pytest.mark.parametrize("name", SHAPES)
def test_fewer_rows_are_a_beginning(name):
    long, short = small(name), small(name, rows=ROWS + 7)
    assert torch.equal(long.table.X[: ROWS + 7], short.table.X)
    assert torch.equal(long.table.y[: ROWS + 7], short.table.y)


@pytest.mark.parametrize("name", SHAPES)
def test_seeds_and_blocks_differ(name):
    a, b = small(name), small(name, seed=1)
    assert not torch.equal(a.coef, b.coef)
    assert not torch.equal(a.table.X, b.table.X)
    X = a.table.X
    assert len({tuple(X[block * ROWS, :].tolist()) for block in range(3)}) == 3
    assert len({tuple(X[:5, j].tolist()) for j in range(N)}) == N


@pytest.mark.parametrize("name", SHAPES)
def test_the_law_of_the_family(name):
    """Sums of independent, centred terms stay within six of their standard deviations."""
    problem = small(name)
    X, y, shape = problem.table.X.double(), problem.table.y.double(), SHAPES[name]
    m = len(y)
    assert abs(X.mean().item()) < 6 / math.sqrt(m * N * N)
    assert abs((X**2).mean().item() * N - 1) < 6 * math.sqrt(2 / (m * N))
    z = X @ problem.coef + problem.intercept
    if problem.family == "logistic":
        mean = torch.sigmoid(z)
        variance = mean * (1 - mean)
        assert set(y.tolist()) == {0.0, 1.0}
    elif problem.family == "linear":
        mean, variance = z, torch.full_like(z, shape.noise**2)
    else:
        mean = variance = z.exp()
    residual = y - mean
    assert abs(residual.sum().item()) < 6 * variance.sum().sqrt().item()
    for j in range(N):
        assert abs((X[:, j] @ residual).item()) < 6 * (X[:, j] ** 2 @ variance).sqrt().item()


def test_types():
    assert small("susy", rows=10).table.y.dtype == torch.int64
    assert small("synth", rows=10).table.y.dtype == torch.float64
    assert small("poisson-synth", rows=10).table.y.dtype == torch.int64
    assert torch.equal(small("synth", rows=10, dtype="bf16").table.X, small("synth", rows=10).table.X.bfloat16())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "epsilom"}, "unknown problem 'epsilom'; choose one of epsilon"),
        ({"name": "susy", "scale": 0}, "scale is the part of the rows to keep"),
        ({"name": "susy", "scale": 2}, "scale is the part of the rows to keep"),
        ({"name": "susy", "n_features": 0}, "at least one feature"),
        ({"name": "susy", "scale": 1e-6, "columns": (0, 19)}, "columns must lie within 0 to 18"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)
