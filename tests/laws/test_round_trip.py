"""Law 1: decode(encode(symbols)) == symbols, for every coder, length and bucket."""

import pytest
import torch
from members import BUCKETED, CODERS, QUANTIZERS, SIZES_AND_BUCKETS, inputs, named, same_bits, with_bucket

from laconic import Codec, FixedWidth, Stream
from laconic.coders import Shape
from laconic.kernels import select

CPU = torch.device("cpu")


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("n", "bucket_size"), SIZES_AND_BUCKETS)
@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("coder", **named(CODERS))
def test_every_coder(coder, bits, n, bucket_size, backend):
    if backend == "reference" and n > 2000:
        n = n % 2000
    symbols = torch.randint(0, 2**bits, (n,), dtype=torch.uint8)
    shape, kernels = Shape(n, bits, bucket_size), select(backend, CPU)
    data = coder.encode(symbols, shape, kernels)
    assert data.dtype == torch.uint8
    assert data.numel() <= coder.max_bytes(shape)
    assert not coder.fixed_size or data.numel() == coder.max_bytes(shape)
    assert torch.equal(coder.decode(data, shape, kernels), symbols)


@pytest.mark.parametrize("coder", **named(CODERS))
@pytest.mark.parametrize("quantizer", **named(BUCKETED))
def test_the_coder_never_changes_the_values(quantizer, coder):
    v, stream = inputs(20001)["heavy tail"], Stream(seed=3)
    plain, coded = Codec(quantizer, FixedWidth()), Codec(quantizer, coder)
    payload = coded.encode(v, stream)
    assert same_bits(coded.decode(payload), plain.decode(plain.encode(v, stream)))
    a, b = torch.ones_like(v), torch.ones_like(v)
    coded.decode_add(payload, a, weight=1 / 3)
    plain.decode_add(plain.encode(v, stream), b, weight=1 / 3)
    assert same_bits(a, b)


@pytest.mark.parametrize(("n", "bucket_size"), SIZES_AND_BUCKETS)
@pytest.mark.parametrize("quantizer", **named(QUANTIZERS))
def test_a_payload_holds_everything(quantizer, n, bucket_size):
    codec = Codec(with_bucket(quantizer, bucket_size))
    v = inputs(n)["normal"]
    payload = codec.encode(v, memory=codec.new_memory(v))
    assert payload.n_bytes == codec.max_bytes(n)
    assert payload.header.n == n
    sent = type(payload).from_bytes(payload.to_bytes())
    assert same_bits(codec.decode(sent), codec.decode(payload))
    assert codec.decode(payload, n).shape == (n,)
