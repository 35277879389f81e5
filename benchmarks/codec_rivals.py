"""Other published schemes to send a gradient in few bits, implemented here for comparison."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from laconic.kernels.reference import rotation

ROW = 512
"""Values per scale, as in PyTorch's per-channel hook."""
BLOCK, SMALLEST_BLOCK = 2**16, 2**8
"""Values that EDEN rotates together: powers of two, so that little is padded."""
FP8_MAX = 448.0


@dataclass(frozen=True, slots=True)
class Sent:
    """Values v (n,) after encoding and decoding by a scheme, and their size.

    curve     name shared by points that differ only in bits
    config    of this point
    bits      per value, everything included
    values    decoded, (n,)
    unbiased  whether their expectation is v
    coded     how the size was determined: "bytes" of a payload, a "formula", or the "entropy" of its symbols
    """

    curve: str
    config: str
    bits: float
    values: torch.Tensor
    unbiased: bool = False
    coded: str = "formula"


def rivals(v: torch.Tensor, seed: int) -> Iterator[Sent]:
    """All rival schemes on values v (n,) float32."""
    g = torch.Generator().manual_seed(seed)
    yield from eden(v, g)
    yield from natural(v, g)
    yield Sent("uint8 hook", "per tensor", 8 + 64 / v.numel(), uint8(v[None])[0])
    rows = torch.nn.functional.pad(v, (0, -v.numel() % ROW)).view(-1, ROW)
    yield Sent("uint8 hook", f"rows of {ROW}", 8 * (1 + 8 / ROW), uint8(rows).view(-1)[: v.numel()])
    yield Sent("fp8 by rows", f"rows of {ROW}", 8 * (1 + 4 / ROW), fp8(rows).view(-1)[: v.numel()])
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        yield Sent("16-bit cast", name, 16.0, v.to(dtype).float())


def eden(v: torch.Tensor, g: torch.Generator) -> Iterator[Sent]:
    """EDEN (Vargaftik et al., ICML 2022): rotate at random, take the nearest Lloyd–Max level, scale.

    The rotation R is a Hadamard transform of values with random signs. With q the levels nearest to R x, the scale
    ‖x‖² / ⟨R x, q⟩ makes the mean over rotations x; its error is that of the levels D as 1 / (1 − D) − 1.
    """
    parts = list(blocks(v))
    signs = [torch.randint(2, part.shape, generator=g) * 2.0 - 1 for part in parts]
    rotated = [hadamard(part * sign) for part, sign in zip(parts, signs, strict=True)]
    for bits in (1, 2, 3, 4):
        levels, found, symbols = lloyd_max(bits), [], []
        for x, sign in zip(rotated, signs, strict=True):
            size = torch.linalg.vector_norm(x) / math.sqrt(x.numel())
            nearest = torch.bucketize(x, size * (levels[1:] + levels[:-1]) / 2)
            q = levels[nearest]
            scale = x.square().sum() / (x @ q) if size else size
            found.append(sign * hadamard(scale * q))
            symbols.append(nearest)
        overhead, values = 32 * len(parts) / v.numel(), torch.cat(found)[: v.numel()]
        padded = sum(map(len, parts)) / v.numel()
        yield Sent("EDEN", f"{bits} bits", bits * padded + overhead, values, unbiased=True)
        coded = entropy(torch.cat(symbols)) * padded + overhead
        yield Sent("EDEN, entropy", f"{bits} bits", coded, values, unbiased=True, coded="entropy")


def natural(v: torch.Tensor, g: torch.Generator) -> Iterator[Sent]:
    """Natural compression (Horváth et al. 2019): round at random to a power of two; a sign and 8 bits of exponent."""
    mantissa, exponent = torch.frexp(v)
    up = torch.rand(v.shape, generator=g) < 2 * mantissa.abs() - 1
    values = torch.where(v == 0, v, torch.ldexp(v.sign(), exponent - 1 + up))
    yield Sent("natural", "sign and exponent", 9.0, values, unbiased=True)
    symbols = torch.where(v == 0, 0, v.sign() * (exponent + up + 1000)).int()
    yield Sent("natural", "their entropy", entropy(symbols), values, unbiased=True, coded="entropy")


def uint8(rows: torch.Tensor) -> torch.Tensor:
    """PyTorch's quantization hooks: 256 even levels from the least to the largest value of a row, including 0."""
    low, high = rows.amin(1, keepdim=True).clamp(max=0), rows.amax(1, keepdim=True).clamp(min=0)
    step = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).eps)
    zero = (-low / step).round().clamp(0, 255)
    return (((rows / step).round() + zero).clamp(0, 255) - zero) * step


def fp8(rows: torch.Tensor) -> torch.Tensor:
    """torchft: scale each row so that its largest magnitude is 448, then round to the nearest float8 (e4m3)."""
    scale = FP8_MAX / rows.abs().amax(1, keepdim=True)
    scale = torch.where(scale.isinf(), 1.0, scale)
    return (rows * scale).to(torch.float8_e4m3fn).float() / scale


def blocks(v: torch.Tensor) -> Iterator[torch.Tensor]:
    """v cut into rows whose lengths are powers of two; only the last is padded.

    >>> [len(part) for part in blocks(torch.ones(2**17 + 2**10 + 3))]
    [65536, 65536, 1024, 256]
    """
    while v.numel():
        size = min(BLOCK, max(SMALLEST_BLOCK, 1 << (v.numel().bit_length() - 1)))
        yield torch.nn.functional.pad(v[:size], (0, max(0, size - v.numel())))
        v = v[size:]


def hadamard(x: torch.Tensor) -> torch.Tensor:
    """The orthonormal Hadamard transform of x (2**k,), its own inverse.

    >>> hadamard(torch.tensor([1.0, 1.0, 0.0, 0.0])).tolist()
    [1.0, 0.0, 1.0, 0.0]
    """
    return rotation.hadamard(x[None])[0] / math.sqrt(x.numel())


def lloyd_max(bits: int) -> torch.Tensor:
    """The 2^bits levels with the least mean squared error for a normal value.

    >>> lloyd_max(1)
    tensor([-0.7979,  0.7979])
    """
    positive = torch.tensor(rotation.LEVELS[bits] if bits > 1 else (math.sqrt(2 / math.pi),))
    return torch.cat([-positive.flip(0), positive])


def entropy(symbols: torch.Tensor) -> float:
    """Entropy in bits per symbol: the lower bound for any code of single symbols."""
    shares = torch.unique(symbols, return_counts=True)[1] / symbols.numel()
    return float(-(shares * shares.log2()).sum())
