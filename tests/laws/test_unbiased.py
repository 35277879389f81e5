"""Law 2: E[dequantize(quantize(v))] = v, in particular below the smallest level.

Each test is a z-test with a derived threshold. Rounding r between neighbouring levels lo and hi gives
lo + (hi - lo) X with X Bernoulli of mean q = (r - lo) / (hi - lo). Over M independent roundings the sum of X has mean
M q and variance M q (1 - q), and is approximately normal. This file makes fewer than 5,000 comparisons; with |z| <= 6
the chance that a right quantizer fails any of them is at most 5,000 * 2e-9 = 1e-5.
"""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from members import BUCKETED, UNBIASED, named

from laconic import NUQSGD, QSGD, Quantizer, Sign, Stream
from laconic.kernels import select
from laconic.quantizers import Quantized

Z = 6.0
N, T = 4096, 40
KERNELS = select("cpu", torch.device("cpu"))


def z_score(observed: float, mean: float, q: float, count: int) -> float:
    """Standard errors between an observed sum of `count` values of X and its mean."""
    return (observed - mean) / math.sqrt(count * q * (1 - q))


def z_below(quantizer: Quantizer, smallest: float) -> float:
    """The whole path, norms included, on values below the smallest level: E|Q(v)| against |v|.

    One bucket: N values of 0.3 * smallest level (less where N of them would pass the norm), signs alternating, and one
    more that makes the norm 1 for either norm. Below the smallest level, X has mean q = r / smallest.
    """
    r = 0.3 * min(smallest, 1 / math.sqrt(N))
    v = torch.full((N + 1,), r)
    v[1::2] *= -1
    v[N] = 1.0
    scheme, total = replace(quantizer, bucket_size=N + 1), 0.0
    for step in range(T):
        quantized = scheme.quantize(v, Stream(seed=11, step=step))
        values = scheme.dequantize(quantized)[:N].double()
        total += float((values * v[:N].sign()).sum() / quantized.norms[0])
    q = float(v[0] / quantized.norms[0]) / smallest
    return z_score(total / smallest, N * T * q, q, N * T)


@pytest.mark.parametrize("quantizer", **named(UNBIASED))
def test_mean_is_the_value_below_the_smallest_level(quantizer):
    assert abs(z_below(quantizer, quantizer.grid.levels[1])) <= Z


@dataclass(frozen=True, slots=True)
class Truncating(NUQSGD):
    """A wrong member: what lies below the smallest level is dropped."""

    def quantize(self, v, stream=Stream(), *, backend="auto"):  # noqa: B008
        quantized = super(Truncating, self).quantize(v, stream, backend=backend)
        below = v.abs() < self.smallest_level * quantized.norms[0]
        return Quantized(torch.where(below, 0, quantized.symbols).to(torch.uint8), quantized.norms)


@dataclass(frozen=True, slots=True)
class Nearest(NUQSGD):
    """A wrong member: it rounds up whenever the value is past the middle, without chance."""

    def quantize(self, v, stream=Stream(), *, backend="auto"):  # noqa: B008
        quantized = super(Nearest, self).quantize(v, stream, backend=backend)
        up = v.abs() > self.smallest_level * quantized.norms[0] / 2
        return Quantized(torch.where(up, 1, 0).to(torch.uint8), quantized.norms)


@pytest.mark.parametrize("wrong", **named([Truncating(bits=4), Nearest(bits=4)]))
def test_a_wrong_member_is_caught(wrong):
    assert abs(z_below(wrong, wrong.smallest_level)) > Z


@pytest.mark.parametrize("quantizer", **named(UNBIASED))
def test_mean_is_the_value_between_any_two_levels(quantizer):
    """The rounding kernel alone, with norm 1, so that r can lie anywhere: two places in every gap of the grid."""
    grid, n = quantizer.grid, 20_000
    for low, high in zip(grid.levels, grid.levels[1:], strict=False):
        for place in (0.1, 0.7):
            v = torch.full((n,), low + place * (high - low))
            symbols = KERNELS.quantize(v, torch.ones(1), grid, n, Stream(seed=round(1000 * place)).key)
            values = KERNELS.dequantize(symbols, torch.ones(1), grid, n).double()
            gap = high - low
            q = (float(v[0]) - low) / gap
            observed = float(((values - low) / gap).sum())
            assert abs(z_score(observed, n * q, q, n)) <= Z, (low, high, place)


@pytest.mark.parametrize("quantizer", **named(UNBIASED))
def test_a_value_on_a_level_has_nothing_to_round(quantizer):
    levels = torch.tensor(quantizer.grid.levels)
    v = torch.cat([levels, -levels])
    for step in range(20):
        symbols = KERNELS.quantize(v, torch.ones(1), quantizer.grid, len(v), Stream(step=step).key)
        q = KERNELS.dequantize(symbols, torch.ones(1), quantizer.grid, len(v))
        assert torch.allclose(q, v, rtol=1e-6, atol=0)


def test_declared():
    assert {type(quantizer) for quantizer in BUCKETED} - {type(quantizer) for quantizer in UNBIASED} == {Sign}
    assert NUQSGD().smallest_level == 2.0**-6
    assert QSGD().grid.levels[1] == 1 / 7
