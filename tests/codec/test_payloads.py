"""A payload is its bytes: however they lie, and whoever compares them."""

import pytest
import torch

from laconic import NUQSGD, Codec, Payload, Stream, codec

V = torch.randn(1000, generator=torch.Generator().manual_seed(0))
MEMBERS = {
    "nuqsgd": codec("nuqsgd", bucket_size=64),
    "rans": codec("nuqsgd", "rans", bucket_size=64),
    "sign": codec("sign", bucket_size=64),
    "bf16": codec("bf16"),
}


@pytest.mark.parametrize("n_payloads", [1, 2])
@pytest.mark.parametrize("name", MEMBERS)
def test_bytes_that_lie_apart_decode(name, n_payloads):
    """A column of a matrix is a row of bytes, too."""
    member = MEMBERS[name]
    apiece = [member.encode(V, Stream(rank=rank)) for rank in range(n_payloads)]
    apart = [Payload(torch.stack([payload.data] * 4, dim=1)[:, 0]) for payload in apiece]
    assert not apart[0].data.is_contiguous()
    for a, b in zip(apart, apiece, strict=True):
        assert torch.equal(member.decode(a), member.decode(b))
        assert torch.equal(member.decode_add(a, torch.ones(1000)), member.decode_add(b, torch.ones(1000)))
    expected = member.decode_sum(apiece, torch.empty(1000))
    assert torch.equal(member.decode_sum(apart, torch.empty(1000)), expected)
    assert torch.equal(member.decode_sum((payload for payload in apiece), torch.empty(1000)), expected)


def test_equal_where_the_bytes_are():
    member = MEMBERS["nuqsgd"]
    one, same, other = (member.encode(V, Stream(step=step)) for step in (0, 0, 1))
    assert one == same == Payload.from_bytes(one.to_bytes())
    assert one != other
    assert one != member.encode(V[:999])
    assert one != one.data
    assert {one, same, other} == {one, other}
    assert Payload(one.data.to("meta")) != one


def test_equal_where_symbols_and_norms_are():
    quantizer, v = NUQSGD(bucket_size=64), V.clone()
    v[7] = torch.nan
    one, same, other = (quantizer.quantize(v, Stream(step=step)) for step in (0, 0, 1))
    assert one == same
    assert one != other
    assert one != quantizer.quantize(V[:64])
    assert one != Codec(quantizer)
    assert len({one, same, other}) == 2
