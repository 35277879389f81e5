"""All schemes on one gradient: what each loses, what it sends, how fast."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from laconic.bench.checks import relative_error
from laconic.bench.entropy import empirical_entropy
from laconic.bench.protocol import Spread, measure
from laconic.bench.schemes import Scheme
from laconic.codec import Codec
from laconic.coders import RANS, Coder, Elias, FixedWidth, Huffman, Shape
from laconic.kernels import Stream, select
from laconic.quantizers import Identity

CODERS: tuple[Coder, ...] = (FixedWidth(), Elias(), Huffman(), RANS())


@dataclass(frozen=True, slots=True)
class Finding:
    """One scheme on one gradient v (n,).

    variance        E‖Q(v) − v‖² / ‖v‖², a mean over streams of random numbers
    bound           what it is proved to stay under
    entropy         of the symbols, in bits a coordinate; None where they are whole floats
    coded_bits      bits a coordinate of the coded symbols, by coder
    total_bits      the smallest of these with its norms and header
    encode_seconds  of `Codec.encode` at fixed width
    decode_seconds  of `Codec.decode_add`
    """

    scheme: str
    bits: int
    n: int
    unbiased: bool
    n_streams: int
    variance: float
    bound: float
    entropy: float | None
    coded_bits: dict[str, float]
    total_bits: float
    encode_seconds: Spread
    decode_seconds: Spread

    @property
    def over_bound(self) -> float | None:
        """Measured variance over its bound; None where the bound is zero."""
        return self.variance / self.bound if self.bound else None

    @property
    def encode_gb_per_second(self) -> float:
        """GB of float32 values in a second."""
        return 4e-9 * self.n / self.encode_seconds.median

    @property
    def decode_gb_per_second(self) -> float:
        """GB of float32 values in a second."""
        return 4e-9 * self.n / self.decode_seconds.median


def survey(scheme: Scheme, v: torch.Tensor, *, n_streams: int = 20, repeats: int = 15) -> Finding:
    """Measure one scheme on values v (n,). A scheme with an error memory starts from an empty one each time."""
    q, n = scheme.quantizer, v.numel()
    coded, overhead = coded_bits(scheme, v)
    encode, decode = calls(scheme, v)
    return Finding(
        scheme=scheme.label,
        bits=q.bits,
        n=n,
        unbiased=q.unbiased,
        n_streams=n_streams,
        variance=mean_error(scheme, v, n_streams),
        bound=q.variance_bound(n),
        entropy=None if isinstance(q.core, Identity) else empirical_entropy(q.core.quantize(v).symbols, q.bits),
        coded_bits=coded,
        total_bits=min(coded.values()) + overhead,
        encode_seconds=measure(encode, repeats=repeats),
        decode_seconds=measure(decode, repeats=repeats),
    )


def mean_error(scheme: Scheme, v: torch.Tensor, n_streams: int) -> float:
    """E‖Q(v) − v‖² / ‖v‖² over `n_streams` streams."""
    codec = Codec(scheme.quantizer)
    streams = (Stream(seed=1, step=step) for step in range(n_streams))
    errors = [relative_error(codec.decode(codec.encode(v, s, codec.new_memory(v))), v) for s in streams]
    return sum(errors) / n_streams


def coded_bits(scheme: Scheme, v: torch.Tensor) -> tuple[dict[str, float], float]:
    """Bits a coordinate of the symbols for each coder that takes them, and of norms and header."""
    q, kernels = scheme.quantizer.core, select("auto", v.device)
    shape, symbols = Shape(v.numel(), q.bits, q.bucket_size), q.quantize(v).symbols
    able = [coder for coder in CODERS if q.bits <= coder.max_bits]
    coded = {coder.name: 8 * coder.encode(symbols, shape, kernels).numel() / v.numel() for coder in able}
    return coded, Codec(q).encode(v).bits_per_coordinate - coded[FixedWidth.name]


def calls(scheme: Scheme, v: torch.Tensor) -> tuple[Callable[[], object], Callable[[], object]]:
    """`Codec.encode` and `Codec.decode_add` at fixed width, ready to be timed."""
    codec = Codec(scheme.quantizer)
    memory, out = codec.new_memory(v), torch.zeros(v.numel())
    payload = codec.encode(v, memory=memory)
    return (lambda: codec.encode(v, memory=memory)), (lambda: codec.decode_add(payload, out))
