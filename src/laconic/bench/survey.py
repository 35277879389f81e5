"""All schemes on one real gradient: what each loses, what it sends, how fast, and what that says in sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from laconic.bench.protocol import ROUNDOFF, Spread, measure, relative_error
from laconic.codec import Codec
from laconic.coders import RANS, Elias, FixedWidth, Huffman, Shape, SymbolCoder
from laconic.kernels import Stream, select
from laconic.options import check_names
from laconic.quantizers import (
    NUQSGD,
    QSGD,
    Dithered,
    ErrorFeedback,
    Identity,
    QSGDInf,
    Quantizer,
    Rotated,
    Sign,
)

BITS = (2, 4, 8)
NAMES = ("fp32", "bf16", "qsgd", "nuqsgd", "qsgdinf", "sign", "ef-sign", "rotated", "dithered")
ABOUT_EQUAL = 1.15
CODERS: tuple[SymbolCoder, ...] = (FixedWidth(), Elias(), Huffman(), RANS())


@dataclass(frozen=True, slots=True)
class Scheme:
    """A quantizer with the name it is asked for by and the label its rows carry."""

    name: str
    label: str
    quantizer: Quantizer


def schemes(bucket_size: int, only: Sequence[str] = NAMES) -> list[Scheme]:
    """All contenders whose name is in `only`, narrow before wide.

    >>> [scheme.label for scheme in schemes(64, only=["nuqsgd"])]
    ['nuqsgd-2', 'nuqsgd-4', 'nuqsgd-4 p=0.7', 'nuqsgd-8']
    """
    check_names(only, NAMES, "scheme")
    found = [Scheme("fp32", "fp32", Identity("fp32")), Scheme("bf16", "bf16", Identity("bf16"))]
    for bits in BITS:
        for kind in (QSGD, NUQSGD, QSGDInf):
            found.append(Scheme(kind.name, f"{kind.name}-{bits}", kind(bits=bits, bucket_size=bucket_size)))
            if kind is NUQSGD and bits == 4:
                found.append(Scheme(kind.name, "nuqsgd-4 p=0.7", NUQSGD(bits=4, bucket_size=bucket_size, p=0.7)))
    sign = Sign(bucket_size=bucket_size)
    found += [Scheme("sign", "sign", sign), Scheme("ef-sign", "ef-sign", ErrorFeedback(sign))]
    found += [Scheme("rotated", f"rotated-{bits}", Rotated(bits=bits)) for bits in (2, 4)]
    found += [Scheme("dithered", f"dithered-{error:g}", Dithered(error=error)) for error in (1.0, 0.1)]
    return [scheme for scheme in found if scheme.name in only]


def empirical_entropy(symbols: torch.Tensor, bits: int) -> float:
    """Σ −f log₂ f over the shares f of the symbols that occur, in bits per symbol.

    >>> empirical_entropy(torch.tensor([0, 1, 2, 3], dtype=torch.uint8), bits=2)
    2.0
    """
    counts = select("auto", symbols.device).histogram(symbols, bits).double()
    shares = counts[counts > 0] / max(1, symbols.numel())
    return abs(float(-(shares * shares.log2()).sum()))


@dataclass(frozen=True, slots=True)
class Finding:
    """One scheme on one gradient v (n,).

    variance        E‖Q(v) − v‖² / ‖v‖², a mean over streams of random numbers
    bound           what it is proved to stay under
    entropy         of the symbols, in bits per coordinate; None where they are whole floats
    coded_bits      bits per coordinate of the coded symbols, by coder
    total_bits      the smallest of these with its norms and header
    encode_seconds  of `Codec.encode` at fixed width
    decode_seconds  of `Codec.decode_add`
    """

    scheme: str
    bits: float | None
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
        entropy=empirical_entropy(q.core.quantize(v).symbols, q.bits) if q.symbol_bits in range(1, 9) else None,
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
    """Bits per coordinate of the symbols for each coder that takes them, and of norms and header."""
    q, kernels = scheme.quantizer.core, select("auto", v.device)
    if isinstance(q, Dithered):
        codec = Codec(q)
        return {codec.coder.name: codec.encode(v).bits_per_coordinate}, 0.0
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


def findings(rows: Sequence[Finding]) -> list[str]:
    """A sentence each on variance at equal bits, on size, and on the bounds."""
    by_label = {row.scheme: row for row in rows}
    widths = sorted({row.bits for row in rows if row.bits})
    compared = [sentence for bits in widths if (sentence := _at_equal_bits(by_label, bits))]
    sized = _sizes(by_label["nuqsgd-4"]) if "nuqsgd-4" in by_label else ""
    return [sentence for sentence in (*compared, sized, _bounds(rows)) if sentence]


def times(a: float, b: float) -> str:
    """How a compares with b.

    >>> times(1.0, 80.0), times(3.0, 1.0), times(1.0, 1.1)
    ('80 times below', '3.0 times above', 'about equal to')
    """
    if a == b or (a and b and max(a / b, b / a) <= ABOUT_EQUAL):
        return "about equal to"
    if not a or not b:
        return "below" if a < b else "above"
    return f"{_short(b / a)} times below" if a < b else f"{_short(a / b)} times above"


def _short(x: float) -> str:
    return f"{x:.2g}" if x < 1 or x >= 1000 else f"{x:.1f}" if x < 10 else f"{x:.0f}"


def _at_equal_bits(rows: dict[str, Finding], bits: float) -> str | None:
    try:
        ours, qsgd, inf = (rows[f"{name}-{bits:g}"].variance for name in ("nuqsgd", "qsgd", "qsgdinf"))
    except KeyError:
        return None
    return (
        f"At {bits:g} bits NUQSGD's variance, {_short(ours)}, is {times(ours, qsgd)} QSGD's ({_short(qsgd)}) "
        f"and {times(ours, inf)} QSGDInf's ({_short(inf)})."
    )


def _sizes(row: Finding) -> str:
    name, coded = min(row.coded_bits.items(), key=lambda item: item[1])
    against = f", {100 * (coded / row.entropy - 1):.1f} % above the entropy" if row.entropy else ""
    return (
        f"{name} codes 4-bit NUQSGD in {coded:.2f} bits per coordinate{against}; "
        f"with norms and header the gradient is {32 / row.total_bits:.1f} times smaller than in fp32."
    )


def _bounds(rows: Sequence[Finding]) -> str:
    above = [row.scheme for row in rows if row.variance > row.bound * (1 + ROUNDOFF)]
    if above:
        return f"Above its proved bound: {', '.join(above)}."
    return f"All {len(rows)} variances are within their proved bounds."
