"""Law 4: with error feedback, sent + memory' == input + memory, to the last bit the arithmetic allows."""

import pytest
import torch
from members import SIZES_AND_BUCKETS, WITH_MEMORY, inputs, named, with_bucket

from laconic import RANS, Codec, ErrorFeedback, Sign, Stream

EPS = torch.finfo(torch.float32).eps


@pytest.mark.parametrize("through", ["quantizer", "codec"])
@pytest.mark.parametrize("quantizer", **named(WITH_MEMORY))
def test_nothing_is_lost(quantizer, through):
    for n, bucket_size in SIZES_AND_BUCKETS:
        scheme, v = with_bucket(quantizer, bucket_size), inputs(n)["heavy tail"]
        codec, memory = Codec(scheme), scheme.new_memory(v)
        for step in range(5):
            before = memory.clone()
            if through == "codec":
                sent = codec.decode(codec.encode(v, Stream(step=step), memory))
            else:
                sent = scheme.dequantize(scheme.quantize(v, Stream(step=step), memory=memory))
            total = v + before  # rounded once, as the quantizer sees it
            largest = torch.maximum(total.abs(), sent.abs())
            lost = (sent.double() + memory.double() - total.double()).abs()
            assert (lost <= EPS * largest).all(), (n, bucket_size, step)


def test_quantizer_and_codec_remember_the_same():
    quantizer, v = ErrorFeedback(Sign(bucket_size=100)), inputs(1001)["normal"]
    codec = Codec(quantizer)
    a, b = quantizer.new_memory(v), codec.new_memory(v)
    for step in range(3):
        quantizer.quantize(v, Stream(step=step), memory=a)
        codec.encode(v, Stream(step=step), b)
    assert torch.equal(a, b)
    assert a.abs().sum() > 0


def test_over_time_all_of_a_constant_gradient_arrives():
    """The sum of what was sent stays within one memory of the sum of what was given."""
    v = inputs(1000)["normal"]
    codec = Codec(ErrorFeedback(Sign(bucket_size=100)), RANS())
    memory, total = codec.new_memory(v), torch.zeros(1000)
    for step in range(200):
        codec.decode_add(codec.encode(v, Stream(step=step), memory), total)
    assert torch.allclose(total + memory, 200 * v, atol=1e-3)
    assert (total / 200 - v).norm() < 0.2 * v.norm()


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_a_non_finite_bucket_leaves_its_memory_alone(bad):
    codec = Codec(ErrorFeedback(Sign(bucket_size=10)))
    v = inputs(35)["normal"]
    memory = codec.new_memory(v)
    codec.encode(v, Stream(), memory)
    before = memory.clone()
    broken = v.clone()
    broken[12] = bad
    sent = codec.decode(codec.encode(broken, Stream(step=1), memory))
    assert not torch.isfinite(sent[10:20]).any()
    assert torch.equal(memory[10:20], before[10:20])
    assert torch.isfinite(memory).all()
    assert not torch.equal(memory[20:], before[20:])
