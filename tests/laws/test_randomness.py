"""Counter-based randomness: uniform, and independent across neighbours, ranks, steps and tensors.

Thresholds: a chi-square statistic with k degrees of freedom is close to normal with mean k and variance 2k; a
correlation of M pairs has standard error 1 / sqrt(M). Six standard errors, fewer than 1,000 comparisons.
"""

import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch

from laconic import Stream
from laconic.kernels.reference.random import random_bits

CPU = torch.device("cpu")
BUCKETS, SIZE = 64, 8192
Z = 6.0

STREAMS = {
    "base": Stream(),
    "seed": Stream(seed=1),
    "rank 1": Stream(rank=1),
    "rank 2": Stream(rank=2),
    "rank 1000": Stream(rank=1000),
    "step 1": Stream(step=1),
    "step 2": Stream(step=2),
    "tensor 1": Stream(tensor=1),
    "tensor name": Stream(tensor="layer1.weight"),
}


@cache
def bits(stream: Stream) -> torch.Tensor:
    return random_bits(stream.key, BUCKETS, SIZE, CPU)


def chi_square_z(codes: torch.Tensor, n_cells: int) -> float:
    """Standard errors of the chi-square statistic of `codes` against the uniform law on n_cells."""
    counts = torch.bincount(codes.reshape(-1), minlength=n_cells).double()
    expected = codes.numel() / n_cells
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return (statistic - (n_cells - 1)) / math.sqrt(2 * (n_cells - 1))


def correlation_z(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a.double().reshape(-1), b.double().reshape(-1)
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / (a.norm() * b.norm())) * math.sqrt(a.numel())


@pytest.mark.parametrize("name", STREAMS)
def test_uniform(name):
    u = bits(STREAMS[name])
    assert abs(chi_square_z(u >> 24, 256)) <= Z
    assert abs(chi_square_z((u >> 9) & 0xFFF, 4096)) <= Z
    for place in range(9, 32):
        ones = float(((u >> place) & 1).double().mean())
        assert abs(ones - 0.5) * 2 * math.sqrt(u.numel()) <= Z, place


@pytest.mark.parametrize("name", STREAMS)
def test_independent_of_neighbours(name):
    u = bits(STREAMS[name])
    for lag in (1, 2, 3, 7, 8, 16, 64, 256, 1024, 4096):
        a, b = u[:, :-lag], u[:, lag:]
        assert abs(correlation_z(a, b)) <= Z, lag
        assert abs(chi_square_z((a >> 28) * 16 + (b >> 28), 256)) <= Z, lag
        assert abs(correlation_z((a >> 9) & 1, (b >> 31) & 1)) <= Z, lag


def test_independent_of_the_neighbouring_bucket():
    u = bits(Stream())
    assert abs(correlation_z(u[:-1], u[1:])) <= Z
    assert abs(chi_square_z((u[:-1] >> 28) * 16 + (u[1:] >> 28), 256)) <= Z


@pytest.mark.parametrize("a", STREAMS)
def test_independent_across_streams(a):
    x = bits(STREAMS[a])
    for b in itertools.dropwhile(lambda name: name != a, STREAMS):
        if a == b:
            continue
        y = bits(STREAMS[b])
        assert abs(correlation_z(x, y)) <= Z, b
        assert abs(chi_square_z((x >> 28) * 16 + (y >> 28), 256)) <= Z, b
        for shift in (1, 2, 16):
            assert abs(correlation_z(x[:, shift:], y[:, :-shift])) <= Z, (b, shift)


def test_consecutive_keys_give_independent_first_values():
    """The first values of 8,000 consecutive steps are as uniform as 8,000 values of one step."""
    u = torch.cat([random_bits(Stream(step=t).key, 1, 4, CPU) for t in range(8_000)])
    for column in range(4):
        assert abs(chi_square_z(u[:, column] >> 26, 64)) <= Z
    assert abs(correlation_z(u[:-1, 0], u[1:, 0])) <= Z


def test_keys_differ_and_do_not_depend_on_the_process():
    keys = {Stream(seed=s, rank=r, step=t).key for s in range(20) for r in range(20) for t in range(20)}
    assert len(keys) == 8000
    assert Stream(seed=1, rank=2, step=3, tensor="weight").key == 0xCCE7BB1F36803D29
    assert Stream(tensor="a").key != Stream(tensor="b").key


@pytest.mark.parametrize("field", ["seed", "rank", "step"])
@pytest.mark.parametrize("value", [-1, 2**64, 1.5, "1", None, True])
def test_out_of_range(field, value):
    with pytest.raises(ValueError, match=f"{field} must be a whole number from 0 to {2**64 - 1}; got {value!r}"):
        Stream(**{field: value})


@pytest.mark.parametrize("value", [1.5, None, True, b"weight", 2**64])
def test_a_tensor_has_a_number_or_a_name(value):
    with pytest.raises(ValueError, match=r"tensor must be a whole number from .*, or a name; got"):
        Stream(tensor=value)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint64])
def test_any_integer_type_is_one(kind):
    """A step that comes out of an array rounds as the same step counted by hand."""
    assert Stream(*map(kind, (1, 2, 3, 4))).key == Stream(1, 2, 3, 4).key
    assert repr(Stream(*map(kind, (1, 2, 3, 4)))) == repr(Stream(1, 2, 3, 4))
