"""The wire is hostile: every payload that no encoder wrote gives `CorruptPayload`, never a crash or another error."""

import itertools
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import Codec, CorruptPayload, Payload
from laconic.codec import HEADER_BYTES, Header, codec
from laconic.codec.header import CHECKSUM, CHECKSUM_AT
from laconic.coders import CODERS

ALL = {f"{scheme} {coder}": codec(scheme, coder, bucket_size=64) for scheme in ("nuqsgd", "sign") for coder in CODERS}
ALL["bf16"] = codec("bf16")
ALL["dithered"] = codec("dithered", error=0.1)
ALL["dithered, escapes"] = codec("dithered", error=1e-5)
ALL["rotated"] = codec("rotated", bits=3, bucket_size=64)
ALL["rotated rans"] = codec("rotated", "rans", bucket_size=64)
ALL["qsgdinf subtract"] = codec("qsgdinf", bits=4, bucket_size=64, subtract=True)
ALL["nuqsgd fixed, checksum"] = codec("nuqsgd", bucket_size=64, checksum=True)
ALL["nuqsgd rans, checksum"] = codec("nuqsgd", "rans", bucket_size=64, checksum=True)
V = torch.randn(1000, generator=torch.Generator().manual_seed(0))
HALF_ZEROS = torch.cat([V[:512], torch.zeros(488)])


def sealed(header: Header, body: bytes) -> bytes:
    """A payload whose checksums are right, whatever it holds."""
    payload = Payload.from_bytes(header.to_bytes() + body)
    if header.flags & CHECKSUM:
        payload.write_checksum()
    return payload.to_bytes()


def decodes_or_refuses(member: Codec, data: bytes) -> None:
    try:
        decoded = member.decode(Payload.from_bytes(data))
    except CorruptPayload:
        return
    assert decoded.dtype == torch.float32


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("v", [V, HALF_ZEROS], ids=["normal", "half zeros"])
def test_truncated_at_every_length(name, v):
    member = ALL[name]
    data = member.encode(v).to_bytes()
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
@pytest.mark.parametrize("v", [V, HALF_ZEROS], ids=["normal", "half zeros"])
def test_mutated_bodies(name, v):
    member, rng = ALL[name], random.Random(name)
    data = member.encode(v).to_bytes()
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
    """The lengths agree, the checksums are right, and the rest is noise: the decoder itself must refuse or cope."""
    member = ALL[name]
    n = min(n, 3000)
    header = member.layout.header(n, max(0, len(body) - 4 * member.quantizer.n_norms(n)))
    decodes_or_refuses(member, sealed(header, body))


@pytest.mark.parametrize("coder", CODERS)
@pytest.mark.parametrize("n", [2**62, 2**48, 2**31 - 1])
def test_a_huge_count_allocates_nothing(coder, n, monkeypatch):
    """Buckets as large as can be: one norm could stand for 8.6 GB of values."""
    member = codec("nuqsgd", coder, bucket_size=2**31 - 1)
    n_norms = member.quantizer.n_norms(n)
    body = bytes(4 * n_norms + 64) if n_norms == 1 else bytes(64)
    data = member.layout.header(n, 64).to_bytes() + body
    payload = Payload.from_bytes(data)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: pytest.fail("memory was asked for"))
    with pytest.raises(CorruptPayload):
        member.decode(payload)


def test_the_error_names_the_field():
    four, eight = codec("nuqsgd", bits=4), codec("nuqsgd", bits=8)
    with pytest.raises(CorruptPayload, match="payload has bits 4, this codec expects 8"):
        eight.decode(four.encode(V))
    with pytest.raises(CorruptPayload, match="payload has n 1000, this codec expects 999"):
        four.decode(four.encode(V), 999)
    header, body = four.encode(V).header, four.encode(V).to_bytes()[HEADER_BYTES:]
    changes = {"quantizer": 77, "coder": 9, "bucket_size": 1, "stream_key": 2**63, "step_size": 0.5, "fingerprint": 1}
    for name, value in changes.items():
        with pytest.raises(CorruptPayload, match=f"payload has {name} {value}.*, this codec expects"):
            four.decode(Payload.from_bytes(replace(header, **{name: value}).to_bytes() + body))
    sizes = {"n": (2**60, "says it has 1152921504606846976 values; the most is 281474976710656")}
    sizes["coded_bytes"] = (header.coded_bytes + 1, f" {header.coded_bytes} of symbols, its header says")
    for name, (value, said) in sizes.items():
        with pytest.raises(CorruptPayload, match=said):
            four.decode(Payload.from_bytes(replace(header, **{name: value}).to_bytes() + body))
    with pytest.raises(CorruptPayload, match="unknown flags 0x2"):
        four.decode(Payload.from_bytes(replace(header, flags=2).to_bytes() + body))


def test_other_levels_are_refused():
    """4-bit symbols decode with any 4-bit levels; the fingerprint says whether they are the right ones."""
    members = [codec("nuqsgd", bits=4, p=p) for p in (0.5, 0.7, 0.25, 0.7000001)]
    assert len({member.quantizer.fingerprint for member in members}) == len(members)
    for sender, receiver in itertools.permutations(members, 2):
        with pytest.raises(CorruptPayload, match=r"payload has fingerprint \d+ of other levels, norms or rounding"):
            receiver.decode(sender.encode(V))
    with pytest.raises(CorruptPayload, match="payload has fingerprint"):
        codec("qsgdinf", bits=4, bucket_size=64).decode(ALL["qsgdinf subtract"].encode(V))
    assert codec("nuqsgd", p=0.7 + 1e-12).quantizer.fingerprint == members[1].quantizer.fingerprint  # float32 levels


def test_version_1_is_refused_and_says_what_to_do():
    version_1 = "6c636e6301040100280000000000000064000000000000000d0000000000000023b5cc4f00000000"
    for data in (bytes.fromhex(version_1), bytes.fromhex(version_1) + bytes(25)):
        with pytest.raises(CorruptPayload, match=r"wire version 1, .* reads version 2; install .* encode stored"):
            ALL["sign fixed"].decode(Payload.from_bytes(data))


@pytest.mark.parametrize("name", ALL)
def test_a_checksum_covers_every_byte_of_the_body(name):
    member = replace(ALL[name], checksum=True)
    v = V[:100]
    data = member.encode(v).to_bytes()
    for place in range(CHECKSUM_AT, len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(CorruptPayload):
            member.decode(Payload.from_bytes(damaged))
    assert torch.equal(member.decode(Payload.from_bytes(data)), ALL[name].decode(ALL[name].encode(v)))


@pytest.mark.parametrize("name", ALL)
def test_a_checksum_is_taken_as_it_comes_and_missed_where_it_was_asked_for(name):
    plain, checked = (replace(ALL[name], checksum=checksum) for checksum in (False, True))
    with_one, without = checked.encode(V), plain.encode(V)
    assert with_one.n_bytes == without.n_bytes == len(without.data)
    assert torch.equal(with_one.data[HEADER_BYTES:], without.data[HEADER_BYTES:])
    for n in (None, 1000):
        assert torch.equal(plain.decode(with_one, n), plain.decode(without, n))
        with pytest.raises(CorruptPayload, match="payload has no checksum, this codec expects one"):
            checked.decode(without, n)
    damaged = with_one.data.clone()
    damaged[-1] ^= 1
    for member, payload in ((plain, Payload(damaged)), (checked, Payload(damaged, trusted=True))):
        with pytest.raises(CorruptPayload, match="checksum of the payload's body does not match"):
            member.decode(payload, 1000)
        with pytest.raises(CorruptPayload, match="checksum of the payload's body does not match"):
            member.decode_sum([payload], torch.empty(1000))


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


def changed(member, v, place, value):
    """The payload of v with one byte of its body changed, and checksums that are right."""
    payload = member.encode(v)
    body = bytearray(payload.to_bytes()[HEADER_BYTES:])
    body[place] = value
    return sealed(payload.header, bytes(body))


NEVER_WRITTEN = {
    "negative norm": ("nuqsgd fixed", V[:64], 3, 0xC0, "norm of the payload is negative"),
    "negative norm, rans": ("nuqsgd rans", V[:64], 3, 0xC0, "norm of the payload is negative"),
    "negative step": ("dithered", V, 3, 0xBF, "norm of the payload is negative"),
    "negative scale": ("rotated", V[:64], 3, 0xBF, "norm of the payload is negative"),
    "sign without level": ("nuqsgd fixed", torch.zeros(2), 4, 0x88, "a sign and no level"),
    "trailing bits": ("nuqsgd fixed", torch.zeros(1), 4, 0x10, "beyond the last symbol of a bucket are not zero"),
    "trailing bits, sign": ("sign fixed", torch.ones(5), 4, 0x80, "beyond the last symbol of a bucket are not zero"),
}


@pytest.mark.parametrize("case", NEVER_WRITTEN)
def test_what_no_encoder_writes_is_refused(case):
    name, v, place, value, said = NEVER_WRITTEN[case]
    member = ALL[name]
    payload = Payload.from_bytes(changed(member, v, place, value))
    with pytest.raises(CorruptPayload, match=said):
        member.decode(payload)
    assert member.decode(payload, v.numel()).shape == v.shape  # whoever knows n does not take the time
