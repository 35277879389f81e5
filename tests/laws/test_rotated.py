"""Laws 2, 3 and 5 for rotated buckets: in which sense they are unbiased, and how large their error is.

The mean over rotations is tested by z-tests: T independent rotations give T independent projections of the error on a
fixed direction. This file makes fewer than 500 comparisons; with |z| <= 6 the chance that a right quantizer fails any
of them is at most 500 * 2e-9 = 1e-6.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from members import DTYPES, SIZES_AND_BUCKETS, inputs, same_bits

from laconic import Codec, Rotated, Stream
from laconic.kernels import select
from laconic.kernels.reference import rotation
from laconic.quantizers.rotated import GAUSSIAN_ERROR

CPU = torch.device("cpu")
REFERENCE, NUMBA = select("reference", CPU), select("cpu", CPU)
Z, T, BITS = 6.0, 300, (2, 3, 4)
KEY = Stream(seed=5, rank=2, step=9, tensor="layer.weight").key
SIZES = [*SIZES_AND_BUCKETS, (1001, 40), (3000, 128), (3000, 256), (8193, 1024), (33_000, 512), (999, 1000)]


def spiky(n: int) -> torch.Tensor:
    """Gaussian values and one that has 99 % of the squares."""
    v = inputs(n)["normal"]
    v[n // 3] = 10 * float(v.norm())
    return v


def z_of_means(samples: torch.Tensor) -> torch.Tensor:
    """Standard errors between the mean of each column of samples (T, k) and zero."""
    return samples.mean(0) / (samples.std(0) / math.sqrt(len(samples)))


def directions(v: torch.Tensor) -> torch.Tensor:
    """(5, n): the smaller half of the values, its signs, the larger half, and two single values."""
    small = torch.zeros(v.numel(), dtype=torch.bool)
    small[v.abs().argsort()[: v.numel() // 2]] = True
    rows = [v * small, v.sign() * small, v * ~small, *torch.eye(v.numel())[[1, v.numel() // 3]]]
    return torch.stack(rows).double()


@pytest.mark.parametrize("bits", BITS)
def test_the_error_is_orthogonal_to_the_values_under_every_rotation(bits):
    for (n, bucket_size), name in itertools.product(
        SIZES, ("normal", "heavy tail", "spike", "constant", "tiny", "large")
    ):
        scheme, v = Rotated(bits, bucket_size), inputs(n)[name]
        decoded = scheme.dequantize(scheme.quantize(v, Stream(seed=n)))
        for x, y in zip(v.double().split(bucket_size), decoded.double().split(bucket_size), strict=True):
            squares = float(x @ x)
            assert abs(float(x @ y) - squares) <= 1e-5 * squares, (n, bucket_size, name)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("values", ["normal", "heavy tail", "constant", "spiky"])
@pytest.mark.parametrize("bucket_size", [64, 1024])
def test_the_mean_over_rotations_is_the_value(bits, values, bucket_size):
    v = spiky(bucket_size) if values == "spiky" else inputs(bucket_size)[values]
    scheme = Rotated(bits, bucket_size)
    errors = torch.stack([scheme.dequantize(scheme.quantize(v, Stream(step=t))) - v for t in range(T)])
    assert float(z_of_means(errors.double() @ directions(v).T).abs().max()) <= Z


def test_one_round_would_be_caught(monkeypatch):
    """A wrong member: without the second round, small values beside a large one are lost in each rotation alike."""
    v, scheme = spiky(1024), Rotated(2, 1024)
    monkeypatch.setattr(rotation, "parts", lambda m: [slice(0, m)])
    made = (scheme.quantize(v, Stream(step=t), backend="reference") for t in range(T))
    errors = torch.stack([scheme.dequantize(q, backend="reference") - v for q in made])
    assert float(z_of_means(errors.double() @ directions(v).T).abs().max()) > Z


@pytest.mark.parametrize("bits", BITS)
def test_the_error_is_that_of_a_gaussian_whatever_the_values(bits):
    """E‖x̂ − x‖² / ‖x‖² = 1 / (1 − D) − 1 in buckets of 1024, to Z standard errors and 1 % for their being finite."""
    for name in ("normal", "heavy tail", "spike", "constant", "tiny", "large"):
        v = inputs(1024)[name].repeat(T)
        decoded = Codec(Rotated(bits)).decode(Codec(Rotated(bits)).encode(v, Stream(seed=3)))
        scale = float(v.abs().max())
        errors = ((decoded - v) / scale).double().view(T, 1024).square().sum(1)
        errors /= (v / scale).double().view(T, 1024).square().sum(1)
        slack = Z * float(errors.std()) / math.sqrt(T) + 0.01 * GAUSSIAN_ERROR[bits]
        assert abs(float(errors.mean()) - GAUSSIAN_ERROR[bits]) <= slack, name


@pytest.mark.parametrize("bits", BITS)
def test_levels_are_the_best_for_a_gaussian(bits):
    """Each is the mean of its cell, and holds its number in its last three bits."""
    levels = rotation.LEVELS[bits]
    ends = [0.0, *rotation.thresholds(bits), math.inf]
    density = [math.exp(-t * t / 2) / math.sqrt(2 * math.pi) for t in ends]
    mass = [0.5 * math.erf(t / math.sqrt(2)) for t in ends]
    for k, level in enumerate(levels):
        assert level == pytest.approx((density[k] - density[k + 1]) / (mass[k + 1] - mass[k]), abs=2e-6)
        assert int(np.float32(level).view(np.uint32)) % 8 == k
    distortion = 1 - 2 * sum((mass[k + 1] - mass[k]) * level**2 for k, level in enumerate(levels))
    assert pytest.approx(1 / (1 - distortion) - 1, rel=1e-3) == GAUSSIAN_ERROR[bits]


@pytest.mark.parametrize("bits", BITS)
def test_backends_give_the_same_symbols_scales_and_values(bits):
    for i, (n, bucket_size) in enumerate(SIZES):
        for j, (name, v) in enumerate(inputs(n).items()):
            v = v.to(DTYPES[(i + j) % 4])
            symbols, scales = REFERENCE.rotate_quantize(v, bits, bucket_size, KEY)
            ours = NUMBA.rotate_quantize(v, bits, bucket_size, KEY)
            assert same_bits(ours[0], symbols), (n, bucket_size, name)
            assert torch.allclose(ours[1], scales, rtol=2.0**-22, atol=0, equal_nan=True), (n, bucket_size, name)
            given = symbols, scales, bits, bucket_size, KEY
            values, ours = (kernels.rotate_dequantize(*given).nan_to_num(7.0) for kernels in (REFERENCE, NUMBA))
            assert torch.equal(ours, values), (n, bucket_size, name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 1}, "rotated: bits must be a whole number from 2 to 4; got 1"),
        ({"bits": 8}, "rotated: bits must be a whole number from 2 to 4; got 8"),
        ({"bucket_size": 0}, "rotated: bucket_size must be a whole number from 1 to 65536; got 0"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Rotated(**options)
