"""The members every law is checked over: coders, backends, symbol widths, lengths and sources of symbols."""

import torch

from laconic.coders import RANS, Coder, Elias, Huffman, Shape
from laconic.kernels import Backend, select
from laconic.kernels.layout import BLOCK_SIZE

CPU = torch.device("cpu")
BACKENDS = ("reference", "cpu")
CODERS: dict[str, Coder] = {
    "elias": Elias(),
    "elias-sparse": Elias("sparse"),
    "elias-dense": Elias("dense"),
    "huffman": Huffman(),
    "rans": RANS(),
}
BITS = tuple(range(1, 9))
SHORT = (0, 1, 2, 7, 8, 9, 31, 100, 1001)
LONG = (BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 3 * BLOCK_SIZE + 5)
SOURCES = ("uniform", "levels", "rare", "zeros", "largest", "negative zero", "alternating", "drift")


def backend(name: str) -> Backend:
    return select(name, CPU)


def shape(n: int, bits: int) -> Shape:
    return Shape(n=n, bits=bits, bucket_size=512)


def make_symbols(source: str, n: int, bits: int, seed: int = 0) -> torch.Tensor:
    """`levels` is like a quantised gradient, `rare` nearly all zeros, `drift` changes within a tensor."""
    generator = torch.Generator().manual_seed(seed)
    largest = 2**bits - 1
    i = torch.arange(n)
    if source == "uniform":
        values = torch.randint(0, 2**bits, (n,), generator=generator)
    elif source == "levels":
        values = _signed((torch.randn(n, generator=generator).abs() * 1.5).long(), bits, generator)
    elif source == "rare":
        values = _signed((torch.rand(n, generator=generator) < 0.003).long(), bits, generator)
    elif source == "drift":
        scale = torch.linspace(0, 2 ** (bits - 1), n)
        values = _signed((torch.rand(n, generator=generator) * scale).long(), bits, generator)
    else:
        cycle = {"zeros": [0], "largest": [largest], "negative zero": [2 ** (bits - 1)], "alternating": [0, largest]}
        values = torch.tensor(cycle[source])[i % len(cycle[source])]
    return values.to(torch.uint8)


def _signed(levels: torch.Tensor, bits: int, generator: torch.Generator) -> torch.Tensor:
    if bits == 1:
        return levels.clamp(max=1)
    levels = levels.clamp(max=2 ** (bits - 1) - 1)
    signs = torch.randint(0, 2, levels.shape, generator=generator) * (levels > 0)
    return signs << (bits - 1) | levels
