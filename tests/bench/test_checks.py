"""The checks of a benchmark let right answers through and stop wrong ones."""

import pytest
import torch

from laconic import Codec, Stream
from laconic.bench.protocol import WrongResult, check_error, check_symbols, expected_error
from laconic.bench.schemes import empirical_entropy, schemes

SCHEMES = schemes(bucket_size=512)


def decoded(scheme, v, seed=0):
    codec = Codec(scheme.quantizer)
    return codec.decode(codec.encode(v, Stream(seed=seed), codec.new_memory(v)))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.label)
@pytest.mark.parametrize("n", [1, 7, 512, 5000])
def test_right_answers_pass(scheme, n):
    v = torch.randn(n, generator=torch.Generator().manual_seed(n))
    check_error(scheme.label, scheme.quantizer, v, decoded(scheme, v))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.label)
def test_zeros_pass(scheme):
    check_error(scheme.label, scheme.quantizer, torch.zeros(1000), decoded(scheme, torch.zeros(1000)))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.label)
def test_values_with_many_zeros_pass(scheme):
    v = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    v[700:3100] = 0  # whole cells of dithered values, and parts of others
    check_error(scheme.label, scheme.quantizer, v, decoded(scheme, v))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.label)
def test_a_wrong_sign_is_noticed(scheme):
    v = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    with pytest.raises(WrongResult, match=scheme.label):
        check_error(scheme.label, scheme.quantizer, v, -10 * v)


@pytest.mark.parametrize("label", ["nuqsgd-4", "dithered-0.1"])
def test_expected_error_is_the_mean_of_measured_errors(label):
    scheme = next(scheme for scheme in SCHEMES if scheme.label == label)
    v = torch.randn(2048, generator=torch.Generator().manual_seed(0))
    mean, deviation = expected_error(scheme.quantizer, v)
    errors = [float((decoded(scheme, v, seed) - v).square().sum() / v.square().sum()) for seed in range(50)]
    assert abs(sum(errors) / 50 - mean) <= 5 * deviation / 50**0.5


def test_wrong_symbols_are_noticed():
    with pytest.raises(WrongResult, match="some coder"):
        check_symbols("some coder", torch.tensor([1]), torch.tensor([2]))


def test_entropy_of_one_symbol_and_of_none_is_zero():
    assert empirical_entropy(torch.zeros(10, dtype=torch.uint8), 4) == 0.0
    assert empirical_entropy(torch.zeros(0, dtype=torch.uint8), 4) == 0.0
