"""The streams word by word, as the reference files state them."""

import pytest
import torch

from laconic.kernels import Blocks

from .tables import BACKENDS, backend

ONE_STATE = 2**16


def symbols(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8)


def block(*words: int) -> Blocks:
    values = torch.tensor(words, dtype=torch.int64).to(torch.int32)
    return torch.tensor([len(words)], dtype=torch.int32), values


def bits(text: str) -> Blocks:
    text = text.replace(" ", "")
    return block(*(int(text[i : i + 32].ljust(32, "0"), 2) for i in range(0, len(text), 32)))


def assert_same(got: Blocks, expected: Blocks) -> None:
    assert got[0].dtype == got[1].dtype == torch.int32
    assert (got[0].tolist(), got[1].tolist()) == (expected[0].tolist(), expected[1].tolist())


@pytest.mark.parametrize("backend_name", BACKENDS)
@pytest.mark.parametrize(
    ("values", "width", "dense", "expected"),
    [
        ((0, 1, 0b1011), 4, True, "0  100 0  101000 1"),
        ((0, 1, 0b1011, 0, 0), 4, False, "110  100 0 0  0 1 110"),
        ((0, 0, 0), 4, False, "0"),
        ((0, 1, 1), 1, True, "0  100  100"),
        ((0, 1, 1), 1, False, "110  100 0  0 0"),
        ((0b1000,), 4, True, "1110010 1"),
        ((0b1000,), 4, False, "100  0 1 1110000"),
    ],
)
def test_elias(values: tuple[int, ...], width: int, dense: bool, expected: str, backend_name: str) -> None:
    kernels = backend(backend_name)
    assert_same(kernels.elias_encode(symbols(*values), width, dense), bits(expected))
    decoded, bad = kernels.elias_decode(bits(expected), len(values), width, dense)
    assert (decoded.tolist(), bad) == (list(values), -1)


@pytest.mark.parametrize("backend_name", BACKENDS)
@pytest.mark.parametrize(
    ("stream", "n", "width", "dense"),
    [
        ("1110010 0", 1, 4, True),  # positive negative zero
        ("100  0 0 1110000", 1, 4, False),
        ("1110011 0", 1, 4, True),  # a level past the last
        ("100  0 1 1110010", 1, 4, False),
        ("110  0 0 0  0 0 0", 1, 4, False),  # two symbols in a block of one
        ("100  100 0 0", 1, 4, False),  # a run past the end
        ("100  100", 1, 1, False),  # a magnitude of 2 in one bit
        ("110", 1, 1, True),
        ("1" * 64, 9, 4, False),  # an omega code without an end
        ("1" * 64, 9, 4, True),
    ],
)
def test_elias_rejects(stream: str, n: int, width: int, dense: bool, backend_name: str) -> None:
    assert backend(backend_name).elias_decode(bits(stream), n, width, dense)[1] == 0


@pytest.mark.parametrize("backend_name", BACKENDS)
def test_huffman(backend_name: str) -> None:
    kernels, lengths = backend(backend_name), torch.tensor([2, 1, 0, 2], dtype=torch.uint8)
    assert_same(kernels.huffman_encode(symbols(0, 1, 3, 3), lengths), bits("10 0 11 11"))
    alone = torch.tensor([0, 1], dtype=torch.uint8)
    assert_same(kernels.huffman_encode(symbols(1, 1, 1), alone), bits("000"))
    assert kernels.huffman_decode(bits("010"), 3, alone)[1] == 0


@pytest.mark.parametrize("backend_name", BACKENDS)
def test_rans(backend_name: str) -> None:
    """A symbol of frequency f takes state x to (x div f) 2**14 + x mod f + start; where f = 2**14, that is x."""
    kernels, rest = backend(backend_name), [ONE_STATE] * 7
    certain = torch.tensor([2**14, 0], dtype=torch.int32)
    assert_same(kernels.rans_encode(symbols(0), certain), block(ONE_STATE, *rest))
    half = torch.tensor([2**13, 2**13], dtype=torch.int32)
    assert_same(kernels.rans_encode(symbols(1), half), block(2 * ONE_STATE + 2**13, *rest))
    slim = torch.tensor([2**14 - 1, 1], dtype=torch.int32)
    x = ONE_STATE * 2**14 + 2**14 - 1
    assert_same(kernels.rans_encode(symbols(1), slim), block(x, *rest))
    twice = kernels.rans_encode(symbols(*[1, 0, 0, 0, 0, 0, 0, 0] * 2)[:9], slim)
    assert_same(twice, block((x >> 16) * 2**14 + 2**14 - 1, *twice[1][1:8].tolist(), x % 2**16))


@pytest.mark.parametrize("backend_name", BACKENDS)
@pytest.mark.parametrize(
    "words",
    [
        (1, *[ONE_STATE] * 7, 0),  # a state below 2**16 that would come right in the end
        (ONE_STATE + 1, *[ONE_STATE] * 7),
        (*[ONE_STATE] * 7, ONE_STATE + 1),
        (*[ONE_STATE] * 8, 0),
        (*[ONE_STATE] * 7,),
        (),
    ],
)
def test_rans_rejects(words: tuple[int, ...], backend_name: str) -> None:
    certain = torch.tensor([2**14, 0], dtype=torch.int32)
    assert backend(backend_name).rans_decode(block(*words), 8, certain)[1] == 0
