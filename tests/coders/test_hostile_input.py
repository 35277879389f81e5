"""Law: whatever the bytes, a decoder returns symbols of the alphabet or raises CorruptPayload."""

import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.errors import CorruptPayload

from .tables import BACKENDS, BITS, CODERS, backend, make_symbols, shape

COMMON = settings(max_examples=150, deadline=None)
members = {
    "name": st.sampled_from(list(CODERS)),
    "bits": st.sampled_from(BITS),
    "backend_name": st.sampled_from(BACKENDS),
}


def to_tensor(data: bytes) -> torch.Tensor:
    return torch.tensor(list(data), dtype=torch.uint8)


def decode_or_reject(name: str, data: torch.Tensor, n: int, bits: int, backend_name: str) -> None:
    with contextlib.suppress(CorruptPayload):
        symbols = CODERS[name].decode(data, shape(n, bits), backend(backend_name))
        assert symbols.shape == (n,)
        assert symbols.dtype == torch.uint8
        assert not n or int(symbols.max()) < 2**bits


@COMMON
@given(data=st.binary(max_size=200), n=st.integers(0, 200), **members)
def test_any_bytes(name: str, bits: int, backend_name: str, data: bytes, n: int) -> None:
    decode_or_reject(name, to_tensor(data), n, bits, backend_name)


@COMMON
@given(data=st.data(), n=st.integers(1, 400), source=st.sampled_from(["uniform", "levels", "rare", "zeros"]), **members)
def test_damaged_bodies(name: str, bits: int, backend_name: str, data: st.DataObject, n: int, source: str) -> None:
    body = CODERS[name].encode(make_symbols(source, n, bits), shape(n, bits), backend("cpu"))
    at = data.draw(st.integers(0, body.numel() - 1))
    kind = data.draw(st.sampled_from(["change", "cut", "extend", "insert", "other length"]))
    extra = to_tensor(data.draw(st.binary(min_size=1, max_size=12)))
    if kind == "change":
        body[at : at + extra.numel()] = extra[: body.numel() - at]
    elif kind == "cut":
        body = body[:at]
    elif kind == "extend":
        body = torch.cat([body, extra])
    elif kind == "insert":
        body = torch.cat([body[:at], extra, body[at:]])
    else:
        n = data.draw(st.integers(0, 140000))
    decode_or_reject(name, body, n, bits, backend_name if n < 1000 else "cpu")


@COMMON
@given(seed=st.integers(0, 2**32), **{k: members[k] for k in ("name", "bits")})
def test_random_words_behind_a_good_table(name: str, bits: int, seed: int) -> None:
    n = 65536 + 100
    generator = torch.Generator().manual_seed(seed)
    body = CODERS[name].encode(make_symbols("levels", n, bits), shape(n, bits), backend("cpu"))
    start = body.numel() // 2
    body[start:] = torch.randint(0, 256, (body.numel() - start,), generator=generator)
    decode_or_reject(name, body, n, bits, "cpu")


@pytest.mark.parametrize("fill", [0x00, 0xFF, 0xAA])
@pytest.mark.parametrize("name", CODERS)
def test_constant_words(name: str, fill: int) -> None:
    n = 3 * 65536 + 5
    body = CODERS[name].encode(make_symbols("levels", n, 4), shape(n, 4), backend("cpu"))
    head = 4 * (4 + 16)
    body[head:] = fill
    decode_or_reject(name, body, n, 4, "cpu")


@pytest.mark.parametrize("backend_name", BACKENDS)
@pytest.mark.parametrize("name", CODERS)
def test_every_cut_is_rejected(name: str, backend_name: str) -> None:
    body = CODERS[name].encode(make_symbols("levels", 50, 4), shape(50, 4), backend("cpu"))
    for size in range(body.numel()):
        with pytest.raises(CorruptPayload, match=CODERS[name].name):
            CODERS[name].decode(body[:size], shape(50, 4), backend(backend_name))


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("elias", 0, 2, "variant 0 .sparse. or 1 .dense., got 2"),
        ("elias", 3, 1, "got 1677721"),
        ("huffman", 0, 13, "code lengths"),
        ("huffman", 3, 1, "fill up the table"),
        ("rans", 0, 255, "does not sum to 16384"),
        ("rans", 1, 128, "does not sum to 16384"),
    ],
)
def test_tables_are_checked(name: str, at: int, value: int, message: str) -> None:
    body = CODERS[name].encode(make_symbols("levels", 50, 1), shape(50, 1), backend("cpu"))
    body[at] = value
    with pytest.raises(CorruptPayload, match=message):
        CODERS[name].decode(body, shape(50, 1), backend("cpu"))


@pytest.mark.parametrize("name", CODERS)
def test_filling_must_be_zero(name: str) -> None:
    """The last bit of a block that does not end on a word is filling, for every coder and for some length below 9."""
    rejected = 0
    for n in range(1, 9):
        body = CODERS[name].encode(make_symbols("alternating", n, 2), shape(n, 2), backend("cpu"))
        body[-1 if name == "rans" else -4] ^= 1
        with contextlib.suppress(CorruptPayload):
            CODERS[name].decode(body, shape(n, 2), backend("cpu"))
            continue
        rejected += 1
    assert rejected == 8
