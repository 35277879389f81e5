"""Law: decode(encode(symbols)) == symbols, and never more than max_bytes."""

import itertools
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch

from laconic.coders import RANS, Coder, Elias, FixedWidth, Huffman, Shape
from laconic.errors import CorruptPayload

from .tables import BACKENDS, BITS, CODERS, LONG, SHORT, SOURCES, backend, make_symbols, shape


def check(coder: Coder, symbols: torch.Tensor, bits: int, backend_name: str) -> None:
    announced = shape(symbols.numel(), bits)
    data = coder.encode(symbols, announced, backend(backend_name))
    assert data.dtype == torch.uint8
    assert data.numel() <= coder.max_bytes(announced)
    assert torch.equal(coder.decode(data, announced, backend(backend_name)), symbols)


@pytest.mark.parametrize("name", CODERS)
def test_short(name: str) -> None:
    """The reference's own round trip is in `test_backends_agree`, with the comparison of the bytes."""
    for bits, source, n in itertools.product(BITS, SOURCES, SHORT):
        check(CODERS[name], make_symbols(source, n, bits), bits, "cpu")


@pytest.mark.parametrize("name", CODERS)
def test_long(name: str) -> None:
    """Every width with every source, each at one of the lengths in turn."""
    for i, (bits, source) in enumerate(itertools.product(BITS, SOURCES)):
        check(CODERS[name], make_symbols(source, LONG[(i + i // len(SOURCES)) % len(LONG)], bits), bits, "cpu")


@pytest.mark.exhaustive
@pytest.mark.parametrize("n", LONG)
@pytest.mark.parametrize("name", CODERS)
def test_every_length(name: str, n: int) -> None:
    for bits, source in itertools.product(BITS, SOURCES):
        check(CODERS[name], make_symbols(source, n, bits), bits, "cpu")


@pytest.mark.parametrize("name", CODERS)
def test_many_blocks_of_short_codewords(name: str) -> None:
    """Many symbols come from one look-up, and each block ends somewhere else in it."""
    frequent = 1 if name == "elias-sparse" else 0
    rare = torch.rand(60 * 65536, generator=torch.Generator().manual_seed(0)) < 0.01
    check(CODERS[name], rare.to(torch.uint8) ^ frequent, 1, "cpu")


@pytest.mark.parametrize("name", CODERS)
def test_block_that_ends_in_zeros(name: str) -> None:
    """The last codeword of a sparse block comes long before its last symbol, at any place in a look-up."""
    for n_ones in range(60, 90):
        symbols = torch.zeros(65536 + 500, dtype=torch.uint8)
        symbols[:n_ones] = symbols[65536:] = 1
        check(CODERS[name], symbols, 1, "cpu")


@pytest.mark.parametrize("name", CODERS)
def test_every_symbol(name: str) -> None:
    for bits in BITS:
        check(CODERS[name], torch.arange(2**bits, dtype=torch.uint8), bits, "cpu")


@pytest.mark.parametrize("name", CODERS)
def test_no_symbols_are_no_bytes(name: str) -> None:
    nothing = torch.empty(0, dtype=torch.uint8)
    assert CODERS[name].max_bytes(shape(0, 4)) == 0
    assert CODERS[name].encode(nothing, shape(0, 4), backend("cpu")).numel() == 0
    with pytest.raises(CorruptPayload, match="expected 0 bytes"):
        CODERS[name].decode(torch.zeros(4, dtype=torch.uint8), shape(0, 4), backend("cpu"))


@pytest.mark.parametrize("offset", [1, 2, 3])
@pytest.mark.parametrize("name", CODERS)
def test_body_anywhere_in_memory(name: str, offset: int) -> None:
    symbols = make_symbols("levels", 1001, 4)
    data = CODERS[name].encode(symbols, shape(1001, 4), backend("cpu"))
    buffer = torch.empty(data.numel() + offset, dtype=torch.uint8)
    buffer[offset:] = data
    assert torch.equal(CODERS[name].decode(buffer[offset:], shape(1001, 4), backend("cpu")), symbols)


@pytest.mark.parametrize("name", CODERS)
def test_symbols_with_a_stride(name: str) -> None:
    symbols = make_symbols("levels", 2002, 4)[::2]
    check(CODERS[name], symbols, 4, "cpu")


@pytest.mark.parametrize("name", CODERS)
def test_threads_change_nothing(name: str) -> None:
    symbols = make_symbols("levels", 5 * 65536 + 3, 4)
    n_threads = torch.get_num_threads()
    bodies = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            check(CODERS[name], symbols, 4, "cpu")
            bodies.append(CODERS[name].encode(symbols, shape(symbols.numel(), 4), backend("cpu")))
    finally:
        torch.set_num_threads(n_threads)
    assert torch.equal(*bodies)


@pytest.mark.parametrize("backend_name", BACKENDS)
@pytest.mark.parametrize("coder", [*CODERS.values(), FixedWidth()], ids=repr)
def test_symbols_outside_the_alphabet(coder: Coder, backend_name: str) -> None:
    with pytest.raises(ValueError, match="below 16; got 16"):
        coder.encode(torch.tensor([3, 16], dtype=torch.uint8), shape(2, 4), backend(backend_name))
    with pytest.raises(ValueError, match=r"1 to 8.* bits, got 0"):
        coder.encode(torch.tensor([3, 16], dtype=torch.uint8), shape(2, 0), backend(backend_name))


@pytest.mark.parametrize("name", CODERS)
def test_wrong_arguments_are_named(name: str) -> None:
    symbols = torch.zeros(5, dtype=torch.uint8)
    with pytest.raises(ValueError, match="1 to 8 bits, got 16"):
        CODERS[name].encode(symbols, shape(5, 16), backend("cpu"))
    with pytest.raises(ValueError, match=r"expected 6 symbols of torch.uint8, got shape \(5,\)"):
        CODERS[name].encode(symbols, shape(6, 4), backend("cpu"))
    with pytest.raises(ValueError, match=r"torch.int64"):
        CODERS[name].encode(symbols.long(), shape(5, 4), backend("cpu"))


def test_unknown_variant() -> None:
    with pytest.raises(ValueError, match="unknown Elias variant 'thick'"):
        Elias("thick")


WHERE = [(RANS(), 2**21 - 1, "gpu", True), (RANS(), 2**21, "gpu", False), (Elias(), 2**30, "gpu", True)]
WHERE += [(Huffman(), 100, "gpu", True), (RANS(), 100, "reference", False)]


@pytest.mark.parametrize(("coder", "n", "backend", "expected"), WHERE)
def test_short_messages_of_a_gpu_are_coded_by_the_host(coder, n, backend, expected):
    """With its kernels; not where the reference was asked for."""
    kernels = import_module(f"laconic.kernels.{backend}")
    assert coder._goes_through_host(SimpleNamespace(is_cuda=True), Shape(n, 4, 512), kernels) == expected
    assert not coder._goes_through_host(torch.zeros(1), Shape(n, 4, 512), kernels)
