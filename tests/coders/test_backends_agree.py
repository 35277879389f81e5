"""Law: reference and cpu write the same bytes, and find the same block corrupt."""

import pytest
import torch

from laconic.coders.huffman import code_lengths
from laconic.coders.rans import allocate
from laconic.kernels import Backend, Blocks

from .tables import BITS, CODERS, SHORT, SOURCES, backend, make_symbols, shape

STREAMS = ("elias sparse", "elias dense", "huffman", "rans")
N_TWO_BLOCKS = 65536 + 77


def encode(stream: str, symbols: torch.Tensor, bits: int, kernels: Backend) -> tuple[Blocks, torch.Tensor]:
    counts = kernels.histogram(symbols, bits)
    if stream == "huffman":
        table = torch.tensor(code_lengths(counts.tolist(), 12), dtype=torch.uint8)
        return kernels.huffman_encode(symbols, table), table
    if stream == "rans":
        table = allocate(counts, 2**14)
        return kernels.rans_encode(symbols, table), table
    return kernels.elias_encode(symbols, bits, stream.endswith("dense")), counts


def decode(
    stream: str, blocks: Blocks, n: int, bits: int, table: torch.Tensor, kernels: Backend
) -> tuple[torch.Tensor, int]:
    if stream == "huffman":
        return kernels.huffman_decode(blocks, n, table)
    if stream == "rans":
        return kernels.rans_decode(blocks, n, table)
    return kernels.elias_decode(blocks, n, bits, stream.endswith("dense"))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", CODERS)
def test_same_bytes(name: str, bits: int) -> None:
    """And the reference reads what it wrote."""
    for source in SOURCES:
        for n in SHORT:
            symbols = make_symbols(source, n, bits)
            slow, fast = (CODERS[name].encode(symbols, shape(n, bits), backend(b)) for b in ("reference", "cpu"))
            assert torch.equal(slow, fast), (source, n)
            assert torch.equal(CODERS[name].decode(slow, shape(n, bits), backend("reference")), symbols), (source, n)


@pytest.mark.parametrize("source", ["levels", "rare"])
@pytest.mark.parametrize("name", CODERS)
def test_same_bytes_over_blocks(name: str, source: str) -> None:
    symbols = make_symbols(source, N_TWO_BLOCKS, 4)
    slow, fast = (CODERS[name].encode(symbols, shape(N_TWO_BLOCKS, 4), backend(b)) for b in ("reference", "cpu"))
    assert torch.equal(slow, fast)
    assert torch.equal(CODERS[name].decode(fast, shape(N_TWO_BLOCKS, 4), backend("reference")), symbols)


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("stream", STREAMS)
def test_same_verdict_on_damaged_words(stream: str, bits: int) -> None:
    n = 300
    generator = torch.Generator().manual_seed(bits)
    symbols = make_symbols("drift", n, bits)
    (sizes, words), table = encode(stream, symbols, bits, backend("cpu"))
    verdicts = set()
    for _ in range(60):
        damaged = words.clone()
        damaged[torch.randint(words.numel(), (1,), generator=generator)] ^= 1 << torch.randint(
            32, (1,), generator=generator
        )
        slow, fast = (decode(stream, (sizes, damaged), n, bits, table, backend(b)) for b in ("reference", "cpu"))
        assert slow[1] == fast[1]
        assert slow[1] >= 0 or torch.equal(slow[0], fast[0])
        verdicts.add(slow[1])
    assert 0 in verdicts


@pytest.mark.parametrize("backend_name", ["reference", "cpu"])
@pytest.mark.parametrize("stream", STREAMS)
def test_bad_block_is_named(stream: str, backend_name: str) -> None:
    symbols = make_symbols("levels", N_TWO_BLOCKS, 4)
    (sizes, words), table = encode(stream, symbols, 4, backend("cpu"))
    damaged = words.clone()
    damaged[sizes[0] :] = -1
    verdicts = {
        "second block damaged": ((sizes, damaged), 1),
        "a word too many": ((sizes, torch.cat([words, words[:1]])), 1),
        "a block that goes on": ((torch.stack([sizes[0], sizes[1] + 1]), torch.cat([words, 0 * words[:1]])), 1),
        "a word too few": ((sizes, words[:-1]), 1),
        "negative size": ((torch.stack([-sizes[0], sizes[1]]), words), 0),
        "sizes that overflow": ((torch.full((2,), 2**31 - 1, dtype=torch.int32), words), 0),
        "a size too few": ((sizes[:1], words), 0),
        "no words": ((torch.zeros(2, dtype=torch.int32), words[:0]), 0),
    }
    for damage, (blocks, bad) in verdicts.items():
        assert decode(stream, blocks, N_TWO_BLOCKS, 4, table, backend(backend_name))[1] == bad, damage


@pytest.mark.parametrize("backend_name", ["reference", "cpu"])
@pytest.mark.parametrize("stream", STREAMS)
def test_no_symbols_no_blocks(stream: str, backend_name: str) -> None:
    nothing, word = torch.empty(0, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    _, table = encode(stream, torch.arange(16, dtype=torch.uint8), 4, backend("cpu"))
    symbols, bad = decode(stream, (nothing, nothing), 0, 4, table, backend(backend_name))
    assert (symbols.numel(), bad) == (0, -1)
    assert decode(stream, (nothing, word), 0, 4, table, backend(backend_name))[1] == 0


@pytest.mark.parametrize("backend_name", ["reference", "cpu"])
def test_tables_are_checked(backend_name: str) -> None:
    symbols, kernels = torch.zeros(3, dtype=torch.uint8), backend(backend_name)
    with pytest.raises(ValueError, match="complete prefix code"):
        kernels.huffman_encode(symbols, torch.tensor([2, 2, 0, 0], dtype=torch.uint8))
    with pytest.raises(ValueError, match="sum to 16384"):
        kernels.rans_encode(symbols, torch.tensor([4096, 0], dtype=torch.int32))
    with pytest.raises(ValueError, match="frequencies from 0"):
        kernels.rans_encode(symbols, torch.tensor([2**14 + 1, -1], dtype=torch.int32))


@pytest.mark.parametrize("n", [0, 1, 5, 65537])
@pytest.mark.parametrize("bits", BITS)
def test_histogram(n: int, bits: int) -> None:
    symbols = make_symbols("uniform", n, bits)
    slow, fast = (backend(b).histogram(symbols, bits) for b in ("reference", "cpu"))
    assert slow.dtype == fast.dtype == torch.int64
    assert slow.shape == (2**bits,)
    assert torch.equal(slow, fast)
