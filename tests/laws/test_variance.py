"""Law 3: measured E‖Q(v) − v‖² / ‖v‖² stays under the proved bound, and so does the length of its Elias code."""

import itertools
import math

import pytest
import torch
from members import BUCKETED, STATELESS, inputs, named, with_bucket

from laconic import NUQSGD, QSGD, Codec, QSGDInf, Stream
from laconic.coders import Elias
from laconic.kernels.reference.elias import omega_encode
from laconic.quantizers.base import OMEGA_SLOPE

SHAPES = ["normal", "heavy tail", "spike", "constant", "tiny", "large"]
T = 30


def measured_variance(quantizer, v: torch.Tensor) -> tuple[float, float]:
    """Mean over T streams of ‖Q(v) − v‖² / ‖v‖², and its standard error."""
    v64 = v.double()
    errors = torch.tensor(
        [
            float((quantizer.dequantize(quantizer.quantize(v, Stream(step=t))).double() - v64).square().sum())
            for t in range(T)
        ],
        dtype=torch.float64,
    )
    ratio = errors / float(v64.square().sum())
    return float(ratio.mean()), float(ratio.std() / math.sqrt(T))


@pytest.mark.parametrize("quantizer", **named(STATELESS))
def test_below_the_bound(quantizer):
    for shape, bucket_size in itertools.product(SHAPES, (64, 1000)):
        scheme, v = with_bucket(quantizer, bucket_size), inputs(2500)[shape]
        mean, error = measured_variance(scheme, v)
        assert mean <= scheme.variance_bound(v.numel()) * (1 + 1e-5) + 6 * error, (shape, bucket_size)


@pytest.mark.parametrize("quantizer", **named(BUCKETED))
def test_bound_grows_with_the_bucket(quantizer):
    bounds = [quantizer.variance_bound(n) for n in (1, 10, 100, 1000, 10**6)]
    assert bounds == sorted(bounds)
    assert quantizer.variance_bound(10**6) == quantizer.variance_bound(quantizer.bucket_size)


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("d", [1, 10, 1000, 8192, 10**6])
def test_closed_form_of_the_nuqsgd_bound(bits, d):
    """The closed form against the theorem's infimum, on a fine grid of exponents."""
    scheme = NUQSGD(bits=bits, bucket_size=d)
    l1 = scheme.smallest_level
    q = torch.linspace(1e-6, 1 - 1e-6, 100_001, dtype=torch.float64)
    log_k = (1 - q) * torch.log(1 - q) - (2 - q) * torch.log(2 - q)
    infimum = float(torch.exp(log_k + (2 - q) * math.log(l1) + (1 - q / 2) * math.log(d)).min())
    assert scheme.variance_bound(d) == pytest.approx(1 / 8 + infimum, rel=1e-4)


def test_worst_case_of_the_nuqsgd_bound_is_nearly_reached():
    """All of a bucket at half the smallest level has variance l₁² d / 4, the second term of the bound."""
    scheme = NUQSGD(bits=4, bucket_size=1024)
    d, l1 = 1023, scheme.smallest_level
    v = torch.full((1024,), l1 / 2)
    v[-1] = math.sqrt(1 - d * l1 * l1 / 4)
    mean, error = measured_variance(scheme, v)
    assert mean == pytest.approx(d * l1 * l1 / 4, abs=0.02 + 6 * error)


def code_lengths(quantizer, v: torch.Tensor) -> tuple[float, float]:
    """Mean over T streams of the bits under Elias, norms included and the header not, and its standard error."""
    codec = Codec(quantizer, Elias())
    header = codec.encode(v[:0]).n_bytes
    bits = torch.tensor([8.0 * (codec.encode(v, Stream(step=t)).n_bytes - header) for t in range(T)])
    return float(bits.mean()), float(bits.std() / math.sqrt(T))


@pytest.mark.parametrize("quantizer", **named(BUCKETED))
def test_codes_are_shorter_than_their_bound(quantizer):
    for shape, bucket_size in itertools.product(SHAPES, (64, 1000, 4096)):
        scheme, v = with_bucket(quantizer, bucket_size), inputs(2500)[shape]
        bound = scheme.code_length_bound(v.numel())
        if isinstance(scheme, NUQSGD | QSGD) and not isinstance(scheme, QSGDInf):
            mean, error = code_lengths(scheme, v)
            assert mean <= bound * (1 + 1e-5) + 6 * error, (shape, bucket_size)
        else:
            assert bound == math.inf
    assert quantizer.code_length_bound(0) == 0


@pytest.mark.parametrize(("scheme", "share"), [(QSGD(4, 8192), 0.7), (NUQSGD(4, 8192), 0.75), (NUQSGD(5, 8192), 0.95)])
def test_flat_values_come_near_the_bound_of_the_code(scheme, share):
    assert code_lengths(scheme, torch.ones(8192))[0] > share * scheme.code_length_bound(8192)


def test_omega_codes_grow_like_the_logarithm():
    """Up to one block; beyond it a length grows by less than 2 bits where k doubles."""
    assert all(len(omega_encode(k)) <= 1 + OMEGA_SLOPE * math.log2(k) + 1e-9 for k in range(1, 2**16 + 2))


@pytest.mark.parametrize("bits", [3, 4])
def test_ordering_of_the_paper(bits):
    """On values with the heavy tail of a gradient: NUQSGD below QSGD, and within a few times QSGDInf."""
    v = inputs(50_000)["heavy tail"]
    nuq, uniform, inf = (measured_variance(scheme(bits=bits), v)[0] for scheme in (NUQSGD, QSGD, QSGDInf))
    assert nuq < uniform
    assert nuq < 3 * inf
