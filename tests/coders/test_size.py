"""How small: entropy, optimal codes, optimal frequencies; and how large at worst."""

import math
from heapq import heapify, heappop, heappush
from itertools import product

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laconic.coders import RANS, Elias, FixedWidth, Huffman, Shape, by_name
from laconic.coders.huffman import code_lengths
from laconic.coders.rans import allocate

from .tables import BITS, CODERS, backend, make_symbols, shape

N_SYMBOLS = 2**20


def entropy(symbols: torch.Tensor) -> float:
    p = torch.bincount(symbols.long()).double() / symbols.numel()
    return float(-(p[p > 0] * p[p > 0].log2()).sum())


def gradient_symbols() -> torch.Tensor:
    """4-bit symbols with the frequencies of NUQSGD's on Gaussian gradients."""
    p = torch.tensor([0.45, 0.33, 0.17, 0.04, 0.008, 0.001, 0.0003, 0.0001])
    generator = torch.Generator().manual_seed(0)
    levels = torch.multinomial(p, N_SYMBOLS, replacement=True, generator=generator)
    signs = torch.randint(0, 2, (N_SYMBOLS,), generator=generator) * (levels > 0)
    return (signs << 3 | levels).to(torch.uint8)


@pytest.mark.parametrize(
    ("symbols", "bits"),
    [
        (gradient_symbols(), 4),
        (make_symbols("levels", N_SYMBOLS, 3), 3),
        (make_symbols("drift", N_SYMBOLS, 8), 8),
        (make_symbols("uniform", N_SYMBOLS, 8), 8),
    ],
    ids=["gradient", "levels", "drift", "uniform"],
)
def test_near_the_entropy(symbols: torch.Tensor, bits: int) -> None:
    least = entropy(symbols) * N_SYMBOLS / 8
    rans, huffman = (c.encode(symbols, shape(N_SYMBOLS, bits), backend("cpu")).numel() for c in (RANS(), Huffman()))
    assert least < rans <= 1.005 * least
    assert least < huffman <= least + N_SYMBOLS / 8


@pytest.mark.parametrize("name", CODERS)
def test_bound_is_kept_and_not_idle(name: str) -> None:
    """Frequencies as unequal as they come, all symbols alike, or one run of each: never over max_bytes."""
    coder = CODERS[name]
    for bits, n in product(BITS, (1, 3, 1000, 65537)):
        bound = coder.max_bytes(shape(n, bits))
        steep = torch.cat([torch.full((2**s,), s, dtype=torch.uint8) for s in range(min(2**bits, 16))])
        runs = torch.arange(n) * 2**bits // n
        for symbols in (
            steep.repeat(-(-n // steep.numel()))[:n],
            runs.to(torch.uint8),
            make_symbols("uniform", n, bits),
        ):
            assert coder.encode(symbols, shape(n, bits), backend("cpu")).numel() <= bound
    assert coder.max_bytes(shape(65536, 8)) <= 2.2 * 65536


def test_bound_is_reached() -> None:
    """Dense Elias of the longest codeword only, and Huffman of equally frequent symbols, are as long as can be."""
    n = 65536
    longest = torch.full((n,), 0b1111, dtype=torch.uint8)
    assert Elias("dense").encode(longest, shape(n, 4), backend("cpu")).numel() == Elias("dense").max_bytes(shape(n, 4))
    equal = (torch.arange(n) % 16).to(torch.uint8)
    assert Huffman().encode(equal, shape(n, 4), backend("cpu")).numel() == Huffman().max_bytes(shape(n, 4))


def complete_codes(n_symbols: int, max_length: int) -> list[tuple[int, ...]]:
    lengths = product(range(1, max_length + 1), repeat=n_symbols)
    return [code for code in lengths if sum(2**-length for length in code) <= 1]


@pytest.mark.parametrize(("n_symbols", "max_length"), [(2, 1), (3, 2), (4, 2), (4, 3), (5, 3), (5, 4), (6, 3)])
def test_package_merge_is_optimal(n_symbols: int, max_length: int) -> None:
    codes = complete_codes(n_symbols, max_length)
    generator = torch.Generator().manual_seed(n_symbols)
    for _ in range(20):
        counts = (torch.rand(n_symbols, generator=generator) ** 4 * 1000).long().add(1).tolist()
        least = min(sum(c * length for c, length in zip(counts, code, strict=True)) for code in codes)
        lengths = code_lengths(counts, max_length)
        assert sum(c * length for c, length in zip(counts, lengths, strict=True)) == least
        assert max(lengths) <= max_length


def huffman_cost(counts: list[int]) -> int:
    heap = [c for c in counts if c]
    heapify(heap)
    cost = 0
    while len(heap) > 1:
        pair = heappop(heap) + heappop(heap)
        cost += pair
        heappush(heap, pair)
    return cost


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=64).filter(lambda c: sum(x > 0 for x in c) > 1))
def test_package_merge_without_a_limit_is_huffman(counts: list[int]) -> None:
    lengths = code_lengths(counts, 40)
    assert sum(c * length for c, length in zip(counts, lengths, strict=True)) == huffman_cost(counts)
    limited = code_lengths(counts, 12)
    assert all((length > 0) == (c > 0) for c, length in zip(counts, limited, strict=True))
    assert sum(2.0**-length for length in limited if length) == 1


def test_package_merge_says_when_there_is_no_code() -> None:
    with pytest.raises(ValueError, match="5 symbols cannot all have a code of at most 2 bits"):
        code_lengths([1] * 5, 2)


def cost(counts: list[int], f: tuple[int, ...] | list[int], total: int) -> float:
    return sum(c * math.log2(total / x) for c, x in zip(counts, f, strict=True) if c)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=4))
@example([146, 1454])  # rounding gives 1 and 15, but 2 and 14 is better
def test_frequencies_are_optimal(counts: list[int]) -> None:
    total = 16
    f = allocate(torch.tensor(counts), total).tolist()
    others = [x for x in product(range(1, total), repeat=len(counts)) if sum(x) == total]
    assert sum(f) == total
    assert cost(counts, f, total) <= min(cost(counts, x, total) for x in others) * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**40), min_size=2, max_size=256).filter(any))
def test_frequencies_are_legal(counts: list[int]) -> None:
    f = allocate(torch.tensor(counts), 2**14)
    assert int(f.sum()) == 2**14
    assert torch.equal(f > 0, torch.tensor(counts) > 0)


def test_names() -> None:
    assert [by_name(n) for n in ("fixed", "elias", "huffman", "rans")] == [FixedWidth(), Elias(), Huffman(), RANS()]
    assert [by_name(n).wire_id for n in ("fixed", "elias", "huffman", "rans")] == [0, 1, 2, 3]
    assert [by_name(n).fixed_size for n in ("fixed", "elias", "huffman", "rans")] == [True, False, False, False]
    with pytest.raises(ValueError, match="unknown coder 'zip'; choose one of fixed, elias, huffman, rans"):
        by_name("zip")


def test_fixed_width_is_as_announced() -> None:
    for bits, dtype in ((16, torch.int16), (32, torch.int32)):
        words = torch.arange(-5, 6, dtype=dtype)
        announced = Shape(n=11, bits=bits, bucket_size=4)
        data = FixedWidth().encode(words, announced, backend("cpu"))
        assert data.numel() == FixedWidth().max_bytes(announced)
        buffer = torch.cat([data[:1], data])[1:]
        assert torch.equal(FixedWidth().decode(buffer, announced, backend("cpu")), words)
    with pytest.raises(ValueError, match="1 to 8, 16 or 32 bits, got 12"):
        FixedWidth().max_bytes(Shape(n=1, bits=12, bucket_size=4))
