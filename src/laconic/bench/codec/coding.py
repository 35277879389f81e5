"""Symbols to bytes and back: the lossless coders, on one core."""

from collections.abc import Sequence

import torch

from laconic import coders
from laconic.bench.checks import check_symbols
from laconic.bench.codec.row import Row, Step
from laconic.bench.codec.transport import STREAM
from laconic.bench.entropy import empirical_entropy
from laconic.bench.protocol import compare, one_thread
from laconic.coders import Coder, Shape
from laconic.kernels import select
from laconic.quantizers import NUQSGD, Bucketed, QSGDInf

CODERS = ("fixed", "elias", "huffman", "rans")
MAX_SYMBOLS = 2**24
"""Enough to leave the caches; more would only take longer."""


def coding_steps(problem: str, v: torch.Tensor, bucket_size: int, only: Sequence[str], repeats: int) -> list[Step]:
    """The coders of `cases` on the symbols of values v (n,), or of the first of them."""
    v = v[:MAX_SYMBOLS]
    return [coding_step(problem, v, q, coders.by_name(coder), repeats) for q, coder in cases(bucket_size, only)]


def cases(bucket_size: int, only: Sequence[str]) -> list[tuple[Bucketed, str]]:
    """All coders on 4-bit NUQSGD; on 8-bit QSGDInf those that adapt to its wide alphabet.

    >>> [coder for _, coder in cases(64, only=["elias", "rans"])]
    ['elias', 'rans', 'rans']
    """
    found: list[tuple[Bucketed, str]] = [(NUQSGD(bits=4, bucket_size=bucket_size), coder) for coder in CODERS]
    found += [(QSGDInf(bits=8, bucket_size=bucket_size), coder) for coder in ("huffman", "rans")]
    return [(quantizer, coder) for quantizer, coder in found if coder in only]


def coding_step(problem: str, v: torch.Tensor, quantizer: Bucketed, coder: Coder, repeats: int) -> Step:
    """The two rows, encode and decode, of one coder on the symbols of one quantizer."""
    label = f"{coder.name} on {quantizer.name}-{quantizer.bits}"

    def run() -> list[Row]:
        symbols = quantizer.quantize(v, STREAM).symbols
        shape, kernels = Shape(v.numel(), quantizer.bits, quantizer.bucket_size), select("auto", v.device)
        data, target = coder.encode(symbols, shape, kernels), torch.zeros_like(symbols)
        check_symbols(label, coder.decode(data, shape, kernels), symbols)
        calls = {
            "encode": lambda: coder.encode(symbols, shape, kernels),
            "decode": lambda: coder.decode(data, shape, kernels),
        }
        with one_thread():
            return [
                Row.timed(
                    compare(call, lambda: target.copy_(symbols), repeats=repeats),
                    n=v.numel(),
                    value_bytes=1,
                    problem=problem,
                    contender=label,
                    config=f"{coder!r} on {quantizer!r}",
                    via="coder",
                    operation=operation,
                    n_threads=1,
                    bits_per_coordinate=8 * data.numel() / v.numel(),
                    entropy=empirical_entropy(symbols, quantizer.bits),
                )
                for operation, call in calls.items()
            ]

    return Step(label, run)
