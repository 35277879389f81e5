"""The wire is hostile: every payload that no encoder wrote gives `CorruptPayload`, never a crash or another error."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import Codec, CorruptPayload, Payload
from laconic.codec import HEADER_BYTES, Header, codec
from laconic.coders.names import CODERS

ALL = {f"{scheme} {coder}": codec(scheme, coder, bucket_size=64) for scheme in ("nuqsgd", "sign") for coder in CODERS}
ALL["bf16"] = codec("bf16")
V = torch.randn(1000, generator=torch.Generator().manual_seed(0))


def decodes_or_refuses(member: Codec, data: bytes) -> None:
    try:
        decoded = member.decode(Payload.from_bytes(data))
    except CorruptPayload:
        return
    assert decoded.dtype == torch.float32


@pytest.mark.parametrize("name", ALL)
def test_truncated_at_every_length(name):
    member = ALL[name]
    data = member.encode(V).to_bytes()
    for length in [*range(HEADER_BYTES + 100), *range(HEADER_BYTES + 100, len(data), 37)]:
        with pytest.raises(CorruptPayload):
            member.decode(Payload.from_bytes(data[:length]))


@pytest.mark.parametrize("name", ALL)
def test_longer_than_it_says(name):
    member = ALL[name]
    with pytest.raises(CorruptPayload):
        member.decode(Payload.from_bytes(member.encode(V).to_bytes() + b"\0"))


@pytest.mark.parametrize("name", ALL)
def test_every_header_bit_counts(name):
    member = ALL[name]
    data = member.encode(V).to_bytes()
    for bit in range(8 * HEADER_BYTES):
        mutated = bytearray(data)
        mutated[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptPayload):
            member.decode(Payload.from_bytes(mutated))


@pytest.mark.parametrize("name", ALL)
def test_mutated_bodies(name):
    member, rng = ALL[name], random.Random(name)
    data = member.encode(V).to_bytes()
    for _ in range(300):
        mutated = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 8, 100])):
            mutated[rng.randrange(HEADER_BYTES, len(data))] = rng.randrange(256)
        decodes_or_refuses(member, bytes(mutated))


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=300))
def test_random_bytes(name, data):
    decodes_or_refuses(ALL[name], data)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=400), n=st.integers(0, 2**40))
def test_a_valid_header_before_random_bytes(name, body, n):
    """The lengths agree, the check sum is right, and the rest is noise: the decoder itself must refuse or cope."""
    member = ALL[name]
    core = member.quantizer.core
    norm_bytes = 4 * core.n_norms(min(n, 3000))
    header = Header(
        core.wire_id,
        core.bits,
        member.coder.wire_id,
        core.bucket_size,
        getattr(core, "p", 0.0),
        min(n, 3000),
        max(0, len(body) - norm_bytes),
    )
    decodes_or_refuses(member, header.to_bytes() + body)


def test_a_huge_count_allocates_nothing():
    member = ALL["nuqsgd rans"]
    header = Header(1, 4, 3, 64, 0.5, 2**62, 8)
    with pytest.raises(CorruptPayload):
        member.decode(Payload.from_bytes(header.to_bytes() + bytes(8)))


def test_the_error_names_the_field():
    four, eight = codec("nuqsgd", bits=4), codec("nuqsgd", bits=8)
    with pytest.raises(CorruptPayload, match="payload has bits 4, this codec expects 8"):
        eight.decode(four.encode(V))
    with pytest.raises(CorruptPayload, match="payload has n 1000, this codec expects 999"):
        four.decode(four.encode(V), 999)
    with pytest.raises(CorruptPayload, match="this laconic reads version 1"):
        four.decode(Payload.from_bytes(Header(1, 4, 0, 8192, 0.5, 0, 0, version=2).to_bytes()))


def test_a_trusted_payload_is_measured_and_not_read():
    """Codes of fixed size only: where lengths come with the code, the header has to be read."""
    for name in ("nuqsgd fixed", "bf16"):
        member = ALL[name]
        data = member.encode(V).data.clone()
        expected = member.decode(Payload(data), 1000)
        data[:HEADER_BYTES] = 0
        assert torch.equal(member.decode(Payload(data, trusted=True), 1000), expected)
        assert torch.equal(member.decode_sum([Payload(data, trusted=True)], torch.empty(1000)), expected)
        for payload in (Payload(data), Payload(data[:-1], trusted=True)):
            with pytest.raises(CorruptPayload):
                member.decode(payload, 1000)
    with pytest.raises(CorruptPayload):
        ALL["nuqsgd rans"].decode(Payload(torch.zeros(500, dtype=torch.uint8), trusted=True), 1000)


def test_unaligned_bytes_decode():
    for member in ALL.values():
        payload = member.encode(V)
        shifted = torch.cat([torch.zeros(1, dtype=torch.uint8), payload.data])[1:]
        assert torch.equal(member.decode(Payload(shifted)), member.decode(payload))
