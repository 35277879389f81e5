"""The omega code of Elias (1975), and which Elias variant is shorter when."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laconic.coders import Elias
from laconic.errors import CorruptPayload
from laconic.kernels.reference.bitstream import BitReader
from laconic.kernels.reference.elias import join_symbol, omega_encode, split_symbol, take_omega

from .tables import BITS, backend, shape

TEXTBOOK = {
    1: "0",
    2: "100",
    3: "110",
    4: "101000",
    8: "1110000",
    16: "10100100000",
    100: "1011011001000",
    1000: "11100111111010000",
}


def omega_decode(bits: str) -> tuple[int, int]:
    """The integer whose omega code `bits` starts with, and the length of that code."""
    reader = BitReader(bits)
    return take_omega(reader), reader.position


@pytest.mark.parametrize(("n", "code"), TEXTBOOK.items())
def test_textbook(n: int, code: str) -> None:
    assert omega_encode(n) == code
    assert omega_decode(code) == (n, len(code))


@given(st.integers(1, 2**80), st.text("01", max_size=20))
def test_round_trip_ignores_what_follows(n: int, rest: str) -> None:
    code = omega_encode(n)
    assert omega_decode(code + rest) == (n, len(code))


@given(st.text("01", max_size=60))
def test_any_bits(bits: str) -> None:
    try:
        n, n_bits = omega_decode(bits)
    except CorruptPayload:
        return
    assert omega_encode(n) == bits[:n_bits]


@pytest.mark.parametrize("n", [0, -1])
def test_only_from_one(n: int) -> None:
    with pytest.raises(ValueError, match="from 1"):
        omega_encode(n)


@pytest.mark.parametrize("bits", BITS)
def test_every_symbol_has_its_own_sign_and_magnitude(bits: int) -> None:
    parts = [split_symbol(symbol, bits) for symbol in range(2**bits)]
    assert len(set(parts)) == 2**bits
    assert [join_symbol(sign, magnitude, bits) for sign, magnitude in parts] == list(range(2**bits))


def bits_a_symbol(z: float, level: int) -> tuple[float, float]:
    """Dense and sparse bits for independent symbols, zero with probability z and otherwise of this level."""
    runs = sum((1 - z) * z ** (r - 1) * len(omega_encode(r)) for r in range(1, 4000))
    dense = z + (1 - z) * (len(omega_encode(level + 1)) + 1)
    return dense, (1 - z) * (runs + 1 + len(omega_encode(level)))


@pytest.mark.parametrize(
    ("z", "dense", "sparse_1", "sparse_2"),
    [
        (0.0, 4.00, 3.00, 5.00),
        (0.25, 3.25, 2.66, 4.16),
        (0.5, 2.50, 2.19, 3.19),
        (0.75, 1.75, 1.49, 1.99),
        (0.9, 1.30, 0.83, 1.03),
        (0.99, 1.03, 0.14, 0.16),
    ],
)
def test_table_in_the_docstring(z: float, dense: float, sparse_1: float, sparse_2: float) -> None:
    assert bits_a_symbol(z, 1) == pytest.approx((dense, sparse_1), abs=0.006)
    assert bits_a_symbol(z, 2) == pytest.approx((dense, sparse_2), abs=0.006)


def test_crossing_in_the_docstring() -> None:
    assert all(sparse < dense for dense, sparse in (bits_a_symbol(z / 100, 1) for z in range(100)))
    below, above = bits_a_symbol(0.8295, 2), bits_a_symbol(0.8315, 2)
    assert below[0] < below[1]
    assert above[0] > above[1]


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("z", [0.25, 0.75, 0.9])
def test_auto_takes_the_shorter(z: float, level: int) -> None:
    n = 2**18
    symbols = ((torch.rand(n, generator=torch.Generator().manual_seed(1)) >= z) * level).to(torch.uint8)
    auto, dense, sparse = (
        Elias(v).encode(symbols, shape(n, 4), backend("cpu")).numel() for v in ("auto", "dense", "sparse")
    )
    assert auto == min(dense, sparse)
    assert (8 * dense / n, 8 * sparse / n) == pytest.approx(bits_a_symbol(z, level), rel=0.01)


@pytest.mark.parametrize("n", [1, 2, 3, 20, 33])
def test_auto_is_exact_when_it_is_close(n: int) -> None:
    for seed in range(60):
        symbols = torch.randint(0, 4, (n,), generator=torch.Generator().manual_seed(seed)).to(torch.uint8)
        auto, dense, sparse = (
            Elias(v).encode(symbols, shape(n, 4), backend("cpu")) for v in ("auto", "dense", "sparse")
        )
        assert torch.equal(auto, sparse if sparse.numel() < dense.numel() else dense)
