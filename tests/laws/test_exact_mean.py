"""Law 2 to the last digit: how far float32 moves E[dequantize(quantize(v))] from v, without any sampling.

The symbol of a value changes but once as its 32 random bits run from 0 to 2^32 - 1, so bisection finds where, and with
it the mean over all of them, exactly.
"""

import pytest
import torch
from members import UNBIASED, named

from laconic.kernels.reference import rounding

N, ALL = 2048, 2**32
NORMS = torch.tensor([1.3e-30, 1e-3, 1.0, 3.7, 4.9e29])


def symbols(v, norms, grid, bits, monkeypatch):
    """Of values (5, N), by their random bits."""
    monkeypatch.setattr(rounding, "random_bits", lambda *_: bits)
    return rounding.quantize(v.flatten(), norms, grid, N, key=0).view(v.shape)


def mean(v, norms, grid, monkeypatch):
    """E[dequantize(quantize(v))] over all random bits, in float64."""
    low, high = torch.zeros(v.shape, dtype=torch.int64), torch.full(v.shape, ALL - 1)
    first, last = (symbols(v, norms, grid, bits, monkeypatch) for bits in (low, high))
    while bool((high - low > 1).any()):  # low gives the first symbol, high the last
        middle = (low + high) // 2
        same = symbols(v, norms, grid, middle, monkeypatch) == first
        low, high = torch.where(same, middle, low), torch.where(same, high, middle)
    chance = (ALL - high).double() / ALL
    ends = [rounding.dequantize(s.flatten(), norms, grid, N).view(v.shape).double() for s in (first, last)]
    return torch.where(first == last, ends[0], ends[0] * (1 - chance) + ends[1] * chance)


@pytest.mark.parametrize("quantizer", **named(UNBIASED))
def test_float32_moves_the_mean_by_no_more_than_is_said(quantizer, monkeypatch):
    """|E[Q(v)] - v| <= 2^-21 |v| + 2^-22 gap, for values of every size up to the norm and of either sign."""
    generator, grid = torch.Generator().manual_seed(quantizer.bits), quantizer.grid
    ratio = 2 * torch.rand(len(NORMS), N, generator=generator) - 1
    ratio *= 2.0 ** -torch.randint(20, ratio.shape, generator=generator)
    ratio[:, :3] = torch.tensor([1.0, -1.0, 0.0])
    v = ratio * NORMS[:, None]
    moved = (mean(v, NORMS, grid, monkeypatch) - v.double()).abs()
    levels, norms = torch.tensor(grid.levels, dtype=torch.float64), NORMS.double()[:, None]
    below = (torch.searchsorted(levels, v.double().abs() / norms, right=True) - 1).clamp(max=grid.top - 1)
    gap = (levels[below + 1] - levels[below]) * norms
    assert bool((moved <= 2.0**-21 * v.double().abs() + 2.0**-22 * gap).all())
