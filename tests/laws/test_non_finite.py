"""A bucket with a non-finite value decodes to non-finite in that bucket and nowhere else."""

import itertools

import pytest
import torch
from members import BUCKETED, CODERS, FIXED_WIDTH, IDENTITIES, inputs, named, with_bucket

from laconic import Codec


@pytest.mark.parametrize("quantizer", **named(FIXED_WIDTH))
def test_one_bad_value_marks_its_bucket(quantizer):
    for bad, backend in itertools.product((torch.inf, -torch.inf, torch.nan), ("reference", "cpu")):
        v = inputs(50)["normal"]
        v[23] = bad
        codec = Codec(with_bucket(quantizer, 10), backend=backend)
        finite = torch.isfinite(codec.decode(codec.encode(v)))
        assert finite.tolist() == [True] * 20 + [False] * 10 + [True] * 20, (bad, backend)


@pytest.mark.parametrize("coder", **named(CODERS))
def test_through_every_coder(coder):
    v = inputs(50)["normal"]
    v[49] = torch.nan
    codec = Codec(with_bucket(BUCKETED[0], 8), coder)
    finite = torch.isfinite(codec.decode(codec.encode(v)))
    assert finite[:48].all()
    assert not finite[48:].any()


@pytest.mark.parametrize("quantizer", **named(IDENTITIES))
def test_identity_keeps_it_where_it_is(quantizer):
    v = torch.tensor([1.0, torch.inf, 2.0, torch.nan, -torch.inf])
    decoded = Codec(quantizer).decode(Codec(quantizer).encode(v))
    assert torch.equal(decoded.nan_to_num(nan=7.0), v.nan_to_num(nan=7.0))


def test_a_norm_past_float32_counts_as_overflow():
    """Finite values whose L2 norm is not: the bucket overflows, as its sum would."""
    codec = Codec(with_bucket(BUCKETED[2], 4))
    v = torch.tensor([3e38] * 4 + [1.0] * 4)
    finite = torch.isfinite(codec.decode(codec.encode(v)))
    assert finite.tolist() == [False] * 4 + [True] * 4
