"""Law 1: decode(encode(symbols)) == symbols, for every coder, length and bucket."""

import itertools

import pytest
import torch
from members import (
    CODERS,
    FIXED_WIDTH,
    QUANTIZERS,
    SIZES_AND_BUCKETS,
    SUBTRACTING,
    inputs,
    named,
    same_bits,
    with_bucket,
)

from laconic import Codec, FixedWidth, Stream
from laconic.coders import Shape
from laconic.kernels import select

CPU = torch.device("cpu")


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("coder", **named(CODERS))
def test_every_coder(coder, backend):
    for bits, (n, bucket_size) in itertools.product(range(1, 9), SIZES_AND_BUCKETS):
        if backend == "reference" and n > 2000:
            n = n % 2000
        symbols = torch.randint(0, 2**bits, (n,), dtype=torch.uint8)
        shape, kernels = Shape(n, bits, bucket_size), select(backend, CPU)
        data = coder.encode(symbols, shape, kernels)
        assert data.dtype == torch.uint8, shape
        assert coder.min_bytes(shape) <= data.numel() <= coder.max_bytes(shape), shape
        assert not coder.fixed_size or data.numel() == coder.max_bytes(shape), shape
        assert torch.equal(coder.decode(data, shape, kernels), symbols), shape


@pytest.mark.parametrize("quantizer", **named([one for one in FIXED_WIDTH if one not in SUBTRACTING]))
def test_the_coder_never_changes_the_values(quantizer):
    v, stream = inputs(20001)["heavy tail"], Stream(seed=3)
    plain = Codec(quantizer, FixedWidth())
    expected = plain.decode(plain.encode(v, stream))
    added = plain.decode_add(plain.encode(v, stream), torch.ones_like(v), weight=1 / 3)
    for coder in CODERS:
        coded = Codec(quantizer, coder)
        payload = coded.encode(v, stream)
        assert same_bits(coded.decode(payload), expected), coder
        assert same_bits(coded.decode_add(payload, torch.ones_like(v), weight=1 / 3), added), coder


@pytest.mark.parametrize("quantizer", **named(QUANTIZERS))
def test_a_payload_holds_everything(quantizer):
    for n, bucket_size in SIZES_AND_BUCKETS:
        codec = Codec(with_bucket(quantizer, bucket_size))
        v = inputs(n)["normal"]
        payload = codec.encode(v, memory=codec.new_memory(v))
        assert payload.n_bytes == codec.max_bytes(n) if codec.fixed_size else payload.n_bytes <= codec.max_bytes(n)
        assert payload.header.n == n
        sent = type(payload).from_bytes(payload.to_bytes())
        assert same_bits(codec.decode(sent), codec.decode(payload)), (n, bucket_size)
        assert codec.decode(payload, n).shape == (n,)
