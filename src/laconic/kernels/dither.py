"""Subtractive dither and its code: the constants and probability laws that all backends share.

**Dither.** Value i of block b (65,536 values) has the dither u in (−1/2, 1/2), which sender and receiver both compute:

    r  = hash32(65536 + cell; k0, k1) mod 16            once per cell of 512 values
    h  = hash32(256 · cell + i mod 256; k0, k1)         once for two values: the halves of a cell share it
    q  = ((i + r) mod 16) · 2¹⁶ + (h mod 2¹⁶ in the first half of a cell, h div 2¹⁶ in the second)
    u  = (2 q + 1 − 2²⁰) / 2²¹                          exact in float32, symmetric about 0

with (k0, k1) the key of block b (`kernels.stream`). Every u is uniform on its grid, so the symbol k = round(x/Δ + u)
gives the unbiased value Δ (k − u) whose error is uniform on ±Δ/2 whatever x is. The 16 strata (i + r) mod 16 make the
*class* of |u|, c = min(stratum, 15 − stratum) counted from the middle, a function of the position: values 16 apart
have the same class and the same sign of u, so one table serves several of them at once.

**Symbols.** κ = k where u > 0 and −k where u < 0, so that the law of κ depends on |u| alone. A cell names a *scale*,
the mean of |x|/Δ rounded to a half octave. The scale fixes a digit width w of 2, 4 or 8 bits: the digit of κ is
κ + 2^(w−1) − 1 where |κ| < 2^(w−1), otherwise the escape 2^w − 1. 8/w digits of values 16 apart share a byte, and the
byte's law is the product of the digits' laws given their class. An escaped value follows as a *tail* symbol κ + 127, or
255 and the float32 itself where |x/Δ| > 126.5. So nothing is clipped; and whether a value is sent raw does not depend
on its dither, or it would no longer be unbiased.

**Zeros.** A cell whose values are all exactly zero is marked in the place of its scale and has no digits: each value is
decoded as 0 · Δ, that is, as zero. Values whose step is zero or not finite count as zeros, and so they decode to zero,
or to a non-finite value.

**Laws.** x/Δ of a cell with mean magnitude m is taken to be a mixture of Laplace distributions (`SHAPES`, one shape
per tensor). With H the integral of its distribution function and |u| uniform on [a, b],

    P(κ = k | a ≤ |u| < b) = [H(k − a + ½) − H(k − b + ½) − H(k − a − ½) + H(k − b − ½)] / (b − a).

Exponentials are computed in decimal arithmetic and sums exactly, so that the tables are the same on every machine. They
are rounded to frequencies that sum to 2¹². A byte of probability below 2⁻¹³ has none: its digits are sent as escapes.
"""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache
from math import fsum

import numpy as np

CELL, HALF = 512, 256
"""Values that share a scale, and half of them: value i and value i + HALF of a cell share a hash."""
DITHER_BITS = 20
"""Random bits q of a dither: the stratum and 16 of the hash."""
N_STRATA, N_CLASSES = 16, 8
N_STATES = N_STRATA
"""rANS states of a block: state s codes the digits of positions s, s + 16, s + 32, …"""
PRECISION = 12
TOTAL = 1 << PRECISION
LOWEST_STATE = 1 << 15
"""States are below 2³¹: signed integers, which every processor converts to floating point."""
N_SCALES = 36
ZERO_SCALE = 20
"""Scale i stands for a mean magnitude of 2^((i − ZERO_SCALE) / 2) steps."""
ZEROS = N_SCALES
"""Replaces the difference between scales: all values of the cell are exactly zero."""
ZEROS_SHARE = 1 / 16
"""Probability of `ZEROS`: such a cell costs 4 bits, and any other 0.1 bits more."""
FIXED_POINT, FIXED_LIMIT = 4096, 512.0
"""A cell's magnitude is the sum of int(min(|x|/Δ, 512) · 4096): whole numbers, the same in every order of summation."""
TAIL_LIMIT, RAW, RAW_ABOVE = 127, 255, 126.5
MAX_ESCAPES = 0.03
"""Share of escapes above which a wider digit is taken."""

SHAPES: tuple[tuple[tuple[str, str], ...], ...] = (
    (("1.5", "1"), ("-0.5", "0.5")),
    (("1", "1"),),
    (("0.21", "0.3"), ("0.72", "1"), ("0.07", "3")),
    (("0.555", "0.1"), ("0.375", "1"), ("0.07", "4")),
)
"""Laws of x in a cell, from light tails to heavy: (weight, scale) of each Laplace component. Between the normal law and
Laplace's, as gradients of language models are; Laplace's; and mixtures for log-normal magnitudes and sparse values."""
SHAPE_LIMITS = (0.765, 0.6, 0.4)
"""Σ|x| / Σ√(512 Σx²), outer sums over cells and inner ones over values, below which the next shape is taken: 0.80 for
normal values, 0.71 for Laplace's."""


@dataclass(frozen=True, slots=True, eq=False)
class Laws:
    """Frequencies of one shape, for all scales.

    widths   (N_SCALES,) uint8: bits w of a digit
    bytes_   (N_SCALES, N_CLASSES, 256) uint16: of the bytes of digits
    tails    (N_SCALES, 256) uint16: of the tail symbols
    scales   (N_SCALES + 1,) uint16, the law of a cell's scale minus the previous one, modulo N_SCALES, and of `ZEROS`
    bits     (N_SCALES,) float64: expected bits per value at each scale
    """

    widths: np.ndarray
    bytes_: np.ndarray
    tails: np.ndarray
    scales: np.ndarray
    bits: np.ndarray


@cache
def laws(shape: int) -> Laws:
    """The laws of a shape; computed once, in a tenth of a second.

    >>> laws(0).widths[[0, ZERO_SCALE, N_SCALES - 1]].tolist(), int(laws(0).bytes_[5, 3].sum())
    ([2, 4, 8], 4096)
    """
    widths, bytes_, tails, bits = [], [], [], []
    for scale in range(N_SCALES):
        p = _probabilities(shape, scale)
        width = next(w for w in (2, 4, 8) if w == 8 or _escape(p, w).mean() <= MAX_ESCAPES)
        digits = _digit_laws(p, width)
        coded = np.stack([_frequencies(_byte_law(law, width)) for law in digits])
        tail = _tail_law(p, width)
        widths.append(width)
        bytes_.append(coded)
        tails.append(tail)
        bits.append(_expected_bits(p, digits, coded, tail, width))
    distance = np.minimum(np.arange(N_SCALES), N_SCALES - np.arange(N_SCALES))
    near = np.ldexp(1.0, -distance)
    delta = _frequencies(np.append((1 - ZEROS_SHARE) * near / near.sum(), ZEROS_SHARE), least=1)
    return Laws(np.array(widths, np.uint8), np.stack(bytes_), np.stack(tails), delta, np.array(bits))


@cache
def thresholds() -> np.ndarray:
    """(N_SCALES − 1,) int64: scale i begins where the magnitude of a cell reaches threshold i − 1.

    >>> bool(thresholds()[ZERO_SCALE - 1] < CELL * FIXED_POINT < thresholds()[ZERO_SCALE])
    True
    """
    with localcontext() as context:
        context.prec = 40
        quarter = Decimal(2).sqrt().sqrt()
        marks = [CELL * FIXED_POINT * quarter ** (2 * (i - ZERO_SCALE) + 1) for i in range(N_SCALES - 1)]
        return np.array([int(mark) for mark in marks], np.int64)


def scale_of(magnitude: int) -> int:
    """The scale of a cell with this magnitude, a sum in fixed point."""
    return int(np.searchsorted(thresholds(), magnitude, side="right"))


def _probabilities(shape: int, scale: int) -> np.ndarray:
    """(N_CLASSES, 256) float64: P(κ | class) for κ from −127 to 127, and last of all values beyond.

    H(t) = max(t, 0) + (s/2) exp(−|t|/s) for a Laplace law of scale s. All arguments are whole sixteenths.
    """
    components = [(Decimal(weight), Decimal(size)) for weight, size in SHAPES[shape]]
    norm = sum(weight * size for weight, size in components)
    t = np.arange(-N_STRATA * (TAIL_LIMIT + 1), N_STRATA * (TAIL_LIMIT + 1) + 1)
    H = np.maximum(t, 0) / N_STRATA
    for weight, size in components:
        with localcontext() as context:
            context.prec = 40
            s = Decimal(2).sqrt() ** (scale - ZERO_SCALE) * size / norm
            ratio = float((-1 / (N_STRATA * s)).exp())
        decay = np.concatenate([[1.0], np.cumprod(np.full(t[-1], ratio))])
        H = H + float(weight * s / 2) * decay[np.abs(t)]
    kappa, c = np.arange(-TAIL_LIMIT, TAIL_LIMIT + 1), np.arange(N_CLASSES)[:, None]
    above, below = (N_STRATA * kappa + half - t[0] - c for half in (N_STRATA // 2, -N_STRATA // 2))
    mass = N_STRATA * ((H[above] - H[above - 1]) - (H[below] - H[below - 1]))
    found = np.zeros((N_CLASSES, 2 * TAIL_LIMIT + 2))
    found[:, :-1] = np.maximum(mass, 0.0)
    found[:, -1] = [max(1.0 - fsum(row), 0.0) for row in found]
    return found


def _in_range(width: int) -> slice:
    limit = 2 ** (width - 1) - 1
    return slice(TAIL_LIMIT - limit, TAIL_LIMIT + limit + 1)


def _escape(p: np.ndarray, width: int) -> np.ndarray:
    """(N_CLASSES,): the probability of an escape."""
    return np.array([max(1.0 - fsum(row), 0.0) for row in p[:, _in_range(width)]])


def _digit_laws(p: np.ndarray, width: int) -> np.ndarray:
    """(N_CLASSES, 2^width)."""
    return np.concatenate([p[:, _in_range(width)], _escape(p, width)[:, None]], 1)


def _byte_law(law: np.ndarray, width: int) -> np.ndarray:
    """(256,): the product law of 8 / width digits; the first digit is in the lowest bits."""
    product = law
    for _ in range(8 // width - 1):
        product = (product[:, None] * law[None, :]).ravel()
    return product


def _frequencies(p: np.ndarray, least: int = 0) -> np.ndarray:
    """Whole numbers that sum to TOTAL; the last, which an encoder can always fall back to, is at least 1."""
    f = np.maximum(np.floor(p * TOTAL + 0.5).astype(np.int64), least)
    f[-1] = max(f[-1], 1)
    f[f.argmax()] += TOTAL - f.sum()
    return f.astype(np.uint16)


def _tail_law(p: np.ndarray, width: int) -> np.ndarray:
    """(256,) frequencies of tail symbols: the values that escape, and with a sixteenth of the weight the others."""
    law = p.mean(0)
    inside = np.zeros(256, bool)
    inside[_in_range(width)] = True
    law = np.where(inside, law / max(law[inside].sum(), 1e-30) / 16, law / max(law[~inside].sum(), 1e-30))
    return _frequencies(law / law.sum(), least=1)


def _expected_bits(p: np.ndarray, digits: np.ndarray, coded: np.ndarray, tail: np.ndarray, width: int) -> float:
    """Bits per value, if values follow the law: digits, and tails where they escape."""
    total = 0.0
    for law, f in zip(digits, coded, strict=True):
        product, sent = _byte_law(law, width), np.where(f > 0, f, f[-1])
        total += float((product * (PRECISION - np.log2(sent))).sum()) * width / 8 / N_CLASSES
    law = p.mean(0).copy()
    law[_in_range(width)] = 0.0
    cost = PRECISION - np.log2(tail)
    cost[RAW] += 32
    return total + float((law * cost).sum())


def max_words(n: int) -> int:
    """Most 32-bit words of a block of n values: per value a digit and a tail of 12 bits each and the float32 itself."""
    cells = -(-n // CELL)
    return N_STATES + (cells * PRECISION + cells * CELL * 2 * (PRECISION + 1)) // 32 + 1 + n
